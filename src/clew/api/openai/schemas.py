"""Schemas of chat completions: what a client sends, and which of its messages a kept thread does not have yet."""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import to_json

from clew.domain.errors import Invalid
from clew.domain.thread import Json

Role = Literal["system", "developer", "user", "assistant", "tool"]
ModelName = Annotated[str, Field(min_length=1, max_length=256)]
SYSTEM = ("system", "developer")

# Values that ask for nothing: clients send them by themselves.
NEUTRAL: Mapping[str, tuple[Json, ...]] = {
    "n": (1,),
    "temperature": (1,),
    "top_p": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "store": (False,),
}


class ChatMessageIn(BaseModel):
    """A message of the conversation. Its content is a text, or parts such as texts and images."""

    model_config = ConfigDict(frozen=True)

    role: Role
    content: str | list[dict[str, Json]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Json]] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """What it says in words."""
        if not isinstance(self.content, list):
            return self.content or ""
        texts = [part.get("text") for part in self.content if part.get("type") == "text"]
        return "\n\n".join(text for text in texts if isinstance(text, str))

    def as_input(self) -> dict[str, Json]:
        """As a graph takes it. A system message has the id of its text: sent again, it is no second message."""
        given = self.model_dump(exclude_none=True)
        given.setdefault("content", "")
        if self.role in SYSTEM:
            given["id"] = f"system-{sha256(to_json(given['content'])).hexdigest()[:32]}"
        return given


class StreamOptionsIn(BaseModel):
    model_config = ConfigDict(frozen=True)

    include_usage: bool = False


class CompletionIn(BaseModel):
    """A chat completion. Other parameters are settings of the graph, by the names in its context schema."""

    model_config = ConfigDict(frozen=True, extra="allow")

    model: ModelName
    messages: Annotated[list[ChatMessageIn], Field(min_length=1)]
    stream: bool = False
    stream_options: StreamOptionsIn | None = None
    user: Annotated[str, Field(max_length=256)] | None = None
    metadata: dict[str, Json] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        """Null parameters count as left out."""
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def graph_settings(self, known: Collection[str]) -> dict[str, Json]:
        """The parameters that the graph's context schema names. Raises Invalid for others that ask for something."""
        given = self.model_extra or {}
        for name, value in given.items():
            if name not in known and value not in NEUTRAL.get(name, ()):
                raise Invalid(
                    f"{name} is not supported: the model {self.model!r} has no setting of this name",
                    field=name,
                )
        return {name: value for name, value in given.items() if name in known}


def unheard(messages: Sequence[ChatMessageIn]) -> list[ChatMessageIn]:
    """The messages after the last one of the assistant: those that a kept thread does not have yet."""
    answered = [index for index, message in enumerate(messages) if message.role == "assistant"]
    return [*messages[answered[-1] + 1 :]] if answered else [*messages]
