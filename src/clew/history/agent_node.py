"""Agent node for any graph: model, tools, and if wanted a chat history that outlives threads."""

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime, get_runtime
from langgraph.store.base import BaseStore

from clew.domain.errors import ConfigError, Invalid, Permanent
from clew.domain.items import check_namespace
from clew.domain.thread import ModelSettings
from clew.history import keys
from clew.history.chat_history import ChatHistory, HistoryOutcome, backend_of
from clew.history.graph_store import GraphStore
from clew.history.merging import Merged, merge, newest, since_reset
from clew.history.model_settings import settings_of
from clew.ports.histories import NAMESPACE, HistoryMessage, NewMessage, Shape
from clew.telemetry import Metrics, channel_label, shared_metrics
from clew.texts.reasoning import without_thoughts

logger = logging.getLogger(__name__)

Model: TypeAlias = Runnable[LanguageModelInput, AIMessage] | Runnable[LanguageModelInput, BaseMessage]

# In a run's configurable: the tenant and user it belongs to, set by the server alone; and that its thread lives for one
# delivery.
TENANT: Final = "clew_tenant"
USER: Final = "clew_user"
WEBHOOK: Final = "webhook"
# In the response_metadata of the answer: whether the turn is in the history.
REPORT: Final = "chat_history"


class AgentNode(Runnable[Any, dict[str, Any]]):
    """Answers the messages in a graph's state: `builder.add_node("agent", AgentNode(model, tools=[...]))`.

    `model` is a LangChain chat model, anything that answers like one, or a name for `init_chat_model` such as
    "openai:gpt-5". Tools may be sync or async. Tokens appear in LangGraph's `messages` stream.

    With `use_graph_chat_history` the node remembers by conversation key, in the store the graph was compiled with:
    it reads the newest `max_messages`, puts the thread's own messages over them, and appends the new turn. Without it
    the store is never touched. A store that fails costs the memory, never the answer; the answer's
    `response_metadata["chat_history"]` says `ok`, `fallback` or `conflict`.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Sequence[BaseTool | Callable[..., Any]] = (),
        system_prompt: str | None = None,
        max_messages: int = 30,
        reset_command: str = "",
        max_tool_rounds: int = 25,
        use_graph_chat_history: bool = False,
        history_namespace: Sequence[str] = NAMESPACE,
        history_key_template: str = keys.DEFAULT_TEMPLATE,
        history_key_candidates: Sequence[str] = keys.DEFAULT_CANDIDATES,
        history_meta_key_suffix: str = "__meta__",
        history_chunk_size: int = 200,
        history_value_field: str = "content",
        name: str = "agent",
        metrics: Metrics | None = None,
    ) -> None:
        if max_messages < 1:
            raise Invalid("a prompt holds at least one message", "max_messages")
        for template in (history_key_template, *history_key_candidates):
            if keys.is_ambiguous(template):
                raise Invalid(f"put a ':' between the names in {template!r}", "history_key_candidates")
        check_namespace(history_namespace)
        # Made only to be checked: a wrong value fails here, not in the middle of a conversation.
        Shape(
            chunk_size=history_chunk_size, value_field=history_value_field, meta_key=history_meta_key_suffix
        )
        self.name = name
        self.system_prompt = system_prompt
        self.max_messages = max_messages
        self.reset_command = reset_command
        self.max_tool_rounds = max_tool_rounds
        self.use_graph_chat_history = use_graph_chat_history
        self.history_namespace = tuple(history_namespace)
        self.history_key_template = history_key_template
        self.history_key_candidates = tuple(history_key_candidates)
        self.history_meta_key_suffix = history_meta_key_suffix
        self.history_chunk_size = history_chunk_size
        self.history_value_field = history_value_field
        self._given_model = model
        self._tools = ToolNode(list(tools)) if tools else None
        self._metrics = metrics or shared_metrics()

    @property
    def model_settings(self) -> ModelSettings | None:
        return settings_of(self._given_model, self.system_prompt or "")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:
        config = ensure_config(config)
        current = _messages(input)
        memory = self._memory(input, config) if self.use_graph_chat_history else None
        merged = await self._recall(memory, current) if memory else Merged(current, current)
        said = await self._answer(self._prompt(merged.messages, current, memory), config)
        # With tools elsewhere in the graph the turn is not over: question and answer are stored together, then.
        if self.use_graph_chat_history and not _calls_tools(said[-1]):
            outcome = await memory.keep([*merged.new, *said]) if memory else HistoryOutcome.FALLBACK
            said[-1] = _reporting(said[-1], outcome)
        return {"messages": said}

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> dict[str, Any]:
        """For graphs run without `await`. Blocks its thread; where an event loop runs in it, the work gets another."""
        work = self.ainvoke(input, config)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        runtime = _runtime()
        if runtime and isinstance(runtime.store, GraphStore) and runtime.store.loop is loop:
            work.close()
            raise asyncio.InvalidStateError(
                "the store works in the event loop that this would block; use ainvoke"
            )
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(copy_context().run, asyncio.run, work).result()

    def _memory(self, state: Any, config: RunnableConfig) -> "_Memory | None":
        """The conversation this run belongs to; None, counted or logged, if it cannot be known or there is no store."""
        runtime = _runtime()
        if runtime is None or runtime.store is None:
            logger.warning("chat history is switched on, but the graph was compiled without a store")
            return None
        configurable = config.get("configurable", {})
        scope = keys.KeyScope(
            inputs=_field(state, "inputs"),
            results=_field(state, "results"),
            configurable=configurable,
            thread_id=configurable.get("thread_id"),
            webhook=bool(configurable.get(WEBHOOK)),
        )
        key = keys.resolve(scope, self.history_key_candidates, self.history_key_template)
        if key is None:
            labels = (backend_of(runtime.store), channel_label(""), HistoryOutcome.FALLBACK.value)
            self._metrics.history_key_failures.labels(*labels).inc()
            logger.warning("no conversation key could be found; going on without chat history")
            return None
        task = runtime.execution_info.task_id if runtime.execution_info else None
        # Found by nothing but the thread's id, it is the thread's own history and is deleted with it.
        others = {name: value for name, value in configurable.items() if name != "thread_id"}
        nobodys = replace(scope, configurable=others, thread_id=None)
        is_mine = keys.resolve(nobodys, self.history_key_candidates, self.history_key_template) != key
        mine = str(scope.thread_id) if is_mine else None
        user = str(configurable.get(USER) or "")
        return _Memory(self._history(runtime.store, configurable), key, task, mine, user)

    def _history(self, store: BaseStore, configurable: Mapping[str, Any]) -> ChatHistory:
        tenant = configurable.get(TENANT)
        return ChatHistory(
            store,
            namespace=self.history_namespace,
            tenant=None if tenant is None else str(tenant),
            user_id=str(configurable.get(USER) or ""),
            chunk_size=self.history_chunk_size,
            value_field=self.history_value_field,
            meta_key=self.history_meta_key_suffix,
            metrics=self._metrics,
        )

    async def _recall(self, memory: "_Memory", current: Sequence[BaseMessage]) -> Merged[BaseMessage]:
        try:
            tail = await memory.tail(self.max_messages)
        except Exception:  # noqa: BLE001 - a foreign store may raise anything; it was logged and counted
            # What of the thread is stored cannot be known now, but its last turn is surely not.
            return Merged(current, _last_turn(current))
        return merge(
            [_from_stored(message) for message in tail],
            current,
            identity=lambda message: message.id,
            is_turn=lambda message: isinstance(message, HumanMessage | AIMessage),
        )

    def _prompt(
        self, messages: Sequence[BaseMessage], current: Sequence[BaseMessage], memory: "_Memory | None"
    ) -> list[BaseMessage]:
        instructions = [message for message in current if isinstance(message, SystemMessage)]
        if self.system_prompt:
            instructions.insert(0, SystemMessage(self.system_prompt))
        turns = [message for message in messages if not isinstance(message, SystemMessage)]
        if self.reset_command:
            turns = list(since_reset(turns, self._is_reset))
        kept = list(newest(turns, self.max_messages))
        if len(kept) < len(turns) and memory:
            memory.history.count_truncation(memory.key)
        while kept and isinstance(kept[0], ToolMessage):
            del kept[0]  # its call was cut off, and providers refuse a result without one
        return [*instructions, *kept]

    def _is_reset(self, message: BaseMessage) -> bool:
        return isinstance(message, HumanMessage) and message.text.strip() == self.reset_command

    async def _answer(self, prompt: list[BaseMessage], config: RunnableConfig) -> list[BaseMessage]:
        """Ask the model, and run the tools it asks for, until it has nothing more to ask."""
        said: list[BaseMessage] = []
        for _ in range(self.max_tool_rounds + 1):
            answer = await self._model.ainvoke([*prompt, *said], config)
            answer = _thoughtless(answer)
            said.append(answer)
            if self._tools is None or not _calls_tools(answer):
                return said
            results = await self._tools.ainvoke([*prompt, *said], config)
            if not all(isinstance(result, ToolMessage) for result in results):
                raise ConfigError(
                    "a tool that steers the graph belongs in a node of its own, not in an AgentNode"
                )
            said.extend(results)
        raise Permanent(f"the model asked for tools more than {self.max_tool_rounds} times in one turn")

    @cached_property
    def _model(self) -> Model:
        model = (
            _init_chat_model(self._given_model) if isinstance(self._given_model, str) else self._given_model
        )
        if self._tools is None:
            return model
        if not isinstance(model, BaseChatModel):
            raise ConfigError(
                f"{type(model).__name__} is no chat model that tools can be bound to; bind them yourself"
            )
        return model.bind_tools(list(self._tools.tools_by_name.values()))


@dataclass(frozen=True, slots=True)
class _Memory:
    """One conversation, as one run sees it."""

    history: ChatHistory
    key: str
    task: str | None
    thread_id: str | None
    user_id: str

    async def tail(self, limit: int) -> list[HistoryMessage]:
        """The newest messages but for this task's own: after a crash it answers again, as if for the first time."""
        found = await self.history.tail(self.key, limit)
        return [message for message in found if self.task is None or message.origin != self.task]

    async def keep(self, messages: Sequence[BaseMessage]) -> HistoryOutcome:
        new = [_to_store(message) for message in messages]
        return await self.history.extend(
            self.key,
            [message for message in new if message],
            origin=self.task,
            thread_id=self.thread_id,
            user_id=self.user_id,
        )


def _thoughtless(answer: BaseMessage) -> BaseMessage:
    content = without_thoughts(answer.content)
    return answer if content is answer.content else answer.model_copy(update={"content": content})


def _calls_tools(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.tool_calls)


def _to_store(message: BaseMessage) -> NewMessage | None:
    """User messages and answers, as text; tools, instructions and calls for tools stay in the thread."""
    text = message.text
    if not text.strip():
        return None
    if isinstance(message, HumanMessage):
        return NewMessage(role="user", content=str(text), id=message.id)
    if isinstance(message, AIMessage) and not _calls_tools(message):
        return NewMessage(role="assistant", content=str(text), id=message.id)
    return None


def _reporting(answer: BaseMessage, outcome: HistoryOutcome) -> BaseMessage:
    return answer.model_copy(update={"response_metadata": answer.response_metadata | {REPORT: outcome.value}})


def _from_stored(message: HistoryMessage) -> BaseMessage:
    kind = HumanMessage if message.role == "user" else AIMessage
    return kind(message.content, id=message.id)


def _last_turn(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    for n in range(len(messages) - 1, -1, -1):
        if isinstance(messages[n], AIMessage):
            return messages[n + 1 :]
    return messages


def _messages(state: Any) -> list[BaseMessage]:
    found = _field(state, "messages")
    if found:
        return convert_to_messages(found if isinstance(found, list | tuple) else [found])
    inputs = _field(state, "inputs")
    text = inputs.get("message") if isinstance(inputs, Mapping) else None
    return [HumanMessage(text)] if isinstance(text, str) and text.strip() else []


def _field(state: Any, name: str) -> Any:
    """A field of the state, whether the graph keeps it in a dict or in an object."""
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


def _runtime() -> Runtime[Any] | None:
    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None  # called outside a graph


def _init_chat_model(name: str) -> BaseChatModel:
    try:
        # With every provider it knows it is a large package, and a graph with a model of its own needs none of it.
        models = importlib.import_module("langchain.chat_models")
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"the model {name!r} needs another package: pip install 'clew-server[langchain]'"
        ) from exc
    model: BaseChatModel = models.init_chat_model(name)
    return model
