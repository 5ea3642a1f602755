"""The few fakes there are."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import Field

Answer = str | ToolCall


class ScriptedModel(BaseChatModel):
    """A chat model that says what it was told to, word by word, and remembers what it was asked."""

    answer: Callable[[Sequence[BaseMessage]], Answer]
    prompts: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        assert all(isinstance(tool, BaseTool) for tool in tools)
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        said = self._say(messages)
        message = AIMessage(said) if isinstance(said, str) else AIMessage("", tool_calls=[said])
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        said = self._say(messages)
        if isinstance(said, str):
            for n, word in enumerate(said.split(" ")):
                yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}" if n else word))
        else:
            yield ChatGenerationChunk(
                message=AIMessageChunk(
                    content="",
                    tool_call_chunks=[{"name": said["name"], "args": "{}", "id": said["id"], "index": 0}],
                )
            )

    def _say(self, messages: Sequence[BaseMessage]) -> Answer:
        self.prompts.append(list(messages))
        return self.answer(messages)

    def texts(self, prompt: int = -1) -> list[str]:
        """The texts of one prompt, the last one unless told otherwise."""
        return [str(message.text) for message in self.prompts[prompt]]


def scripted(*answers: Answer) -> ScriptedModel:
    """A model that gives these answers in turn, then its last one for ever."""
    rest = list(answers)
    return ScriptedModel(answer=lambda _: rest.pop(0) if len(rest) > 1 else rest[0])


def echo() -> ScriptedModel:
    """A model that repeats what it was told last."""
    return ScriptedModel(answer=lambda messages: f"you said {messages[-1].text}")
