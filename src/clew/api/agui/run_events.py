"""Run events: the stream parts of one run as AG-UI's events, in the order that the protocol demands."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    aggregate_token_usage,
    token_usage_from_langchain_metadata,
)
from pydantic_core import from_json

from clew.api.agui.messages import is_chat, reasoning_id, reasoning_of, result_text, shown_call
from clew.api.answer_text import text_of
from clew.domain.records import StreamPart
from clew.domain.thread import Json
from clew.engine.stream_parts import PARTS

# What a run streams for this.
MODES = ("messages-tuple", "values", "tasks", "custom")
# What a client gives to a graph besides its state. It is not part of the state that the client sees.
GIVEN = ("tools", "ag-ui", "copilotkit")
CUSTOM = "custom"


def shared_state(values: Json, names: Collection[str] | None = None) -> Json:
    """The state that client and graph share: the values by these names, without messages, which have their own events."""
    if not isinstance(values, dict):
        return values
    left_out = (*GIVEN, "__interrupt__", *(("messages",) if is_chat(values) else ()))
    return {
        name: value
        for name, value in values.items()
        if name not in left_out and (names is None or name in names)
    }


@dataclass(slots=True)
class _OpenMessage:
    """A message that a model is still saying."""

    task: str
    has_text: bool = False
    is_thinking: bool = False
    # By their place in the message.
    calls: dict[Json, str] = field(default_factory=dict)


class AguiEvents:
    """`shown` are the names of the state that clients see. Of messages in `known` there are no events."""

    def __init__(self, shown: Collection[str] | None, known: Collection[str] = ()) -> None:
        self._shown = shown
        self._known = known
        self._open: dict[str, _OpenMessage] = {}
        self._steps: dict[str, str] = {}
        self._active: Counter[str] = Counter()
        self._state: Json = None
        self._attempt = 0
        self._usage: list[TokenUsage] = []

    @property
    def usage(self) -> list[TokenUsage] | None:
        return aggregate_token_usage(self._usage) or None

    def repeats(self, part: StreamPart) -> bool:
        """Whether the run has begun again, after a crash, with this part."""
        attempt, before = part.number // PARTS, self._attempt
        self._attempt = attempt
        return bool(before) and attempt != before

    def hear(self, part: StreamPart) -> Iterator[BaseEvent]:
        name, _, namespace = part.name.partition("|")
        data = from_json(part.data)
        match name:
            case "messages":
                yield from self._message(*data)
            case "custom":
                yield _custom(data)
            case "tasks" if not namespace:
                yield from self._task(data)
            case "values" if not namespace:
                yield from self._values(data)

    def close(self) -> Iterator[BaseEvent]:
        """Ends what is open, so that the run can end."""
        for key in [*self._open]:
            yield from self._end(key)
        for name in +self._active:
            yield StepFinishedEvent(step_name=name)
        self._steps.clear()
        self._active.clear()

    def steps(self) -> Iterator[BaseEvent]:
        """Begins the steps that are active, for a client that connects now."""
        for name in +self._active:
            yield StepStartedEvent(step_name=name)

    def _task(self, task: dict[str, Json]) -> Iterator[BaseEvent]:
        name, key = task["name"], task["id"]
        if "input" in task:
            self._steps[key] = name
            self._active[name] += 1
            if self._active[name] == 1:
                yield StepStartedEvent(step_name=name)
        elif self._steps.pop(key, None):
            for message in [one for one, told in self._open.items() if told.task == key]:
                yield from self._end(message)
            self._active[name] -= 1
            if not self._active[name]:
                yield StepFinishedEvent(step_name=name)

    def _values(self, values: Json) -> Iterator[BaseEvent]:
        state = shared_state(values, self._shown)
        before, self._state = self._state, state
        if not isinstance(before, dict) or not isinstance(state, dict):
            yield StateSnapshotEvent(snapshot=state)
        elif delta := _delta(before, state):
            yield StateDeltaEvent.model_validate({"delta": delta})

    def _message(self, message: dict[str, Json], described: dict[str, Json]) -> Iterator[BaseEvent]:
        key = message.get("id") or ""
        if key in self._known:
            return
        match message.get("type"):
            case "tool":
                call_id, content = str(message.get("tool_call_id")), result_text(message.get("content"))
                yield ToolCallResultEvent(message_id=key, tool_call_id=call_id, content=content, role="tool")
            case "AIMessageChunk" | "ai" as kind:
                self._count(message, described)
                yield from self._say(key, message, described)
                if kind == "ai" or message.get("chunk_position") == "last":
                    yield from self._end(key)
            case _:
                pass  # the user's, or the system's: snapshots show them

    def _say(self, key: str, message: dict[str, Json], described: dict[str, Json]) -> Iterator[BaseEvent]:
        told = self._open.setdefault(key, _OpenMessage(_task_of(described)))
        if thought := reasoning_of(message):
            yield from self._think(key, told, thought)
        text = text_of(message.get("content"))
        # How nodes for CopilotKit say that a model's output is not for the client.
        if text and described.get("emit-messages", True):
            yield from self._end_thinking(key, told)
            if not told.has_text:
                told.has_text = True
                yield TextMessageStartEvent(message_id=key, role="assistant", name=message.get("name"))
            yield TextMessageContentEvent(message_id=key, delta=text)
        if described.get("emit-tool-calls", True):
            yield from self._call(key, told, message)

    def _think(self, key: str, told: _OpenMessage, thought: str) -> Iterator[BaseEvent]:
        if not told.is_thinking:
            told.is_thinking = True
            yield ReasoningStartEvent(message_id=reasoning_id(key))
            yield ReasoningMessageStartEvent(message_id=reasoning_id(key))
        yield ReasoningMessageContentEvent(message_id=reasoning_id(key), delta=thought)

    def _end_thinking(self, key: str, told: _OpenMessage) -> Iterator[BaseEvent]:
        if told.is_thinking:
            told.is_thinking = False
            yield ReasoningMessageEndEvent(message_id=reasoning_id(key))
            yield ReasoningEndEvent(message_id=reasoning_id(key))

    def _call(self, key: str, told: _OpenMessage, message: dict[str, Json]) -> Iterator[BaseEvent]:
        if message["type"] == "ai":
            calls = [shown_call(call) for call in message.get("tool_calls") or ()]
            parts = [
                {"index": index, "id": call.id, "name": call.function.name, "args": call.function.arguments}
                for index, call in enumerate(calls)
            ]
        else:
            parts = message.get("tool_call_chunks") or []
        for part in parts:
            yield from self._end_thinking(key, told)
            yield from self._call_part(key, told, part)

    def _call_part(self, key: str, told: _OpenMessage, part: dict[str, Json]) -> Iterator[BaseEvent]:
        place, name = part.get("index"), part.get("name")
        is_next = bool(part.get("id")) and part["id"] != told.calls.get(place)
        if name and (is_next or place not in told.calls):
            if place in told.calls:
                yield ToolCallEndEvent(tool_call_id=told.calls[place])
            call_id = told.calls[place] = part.get("id") or f"{key}-{place}"
            yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, parent_message_id=key)
        if part.get("args") and place in told.calls:
            yield ToolCallArgsEvent(tool_call_id=told.calls[place], delta=part["args"])

    def _end(self, key: str) -> Iterator[BaseEvent]:
        told = self._open.pop(key)
        yield from self._end_thinking(key, told)
        if told.has_text:
            yield TextMessageEndEvent(message_id=key)
        for call_id in told.calls.values():
            yield ToolCallEndEvent(tool_call_id=call_id)

    def _count(self, message: dict[str, Json], described: dict[str, Json]) -> None:
        used = token_usage_from_langchain_metadata(
            message.get("usage_metadata"),
            provider=described.get("ls_provider"),
            model=described.get("ls_model_name"),
        )
        if used is not None:
            self._usage.append(used)


def _custom(data: Json) -> CustomEvent:
    """A node may name its event: {"name": ..., "value": ...}."""
    match data:
        case {"name": str() as name, "value": value} if len(data) == 2:
            return CustomEvent(name=name, value=value)
        case _:
            return CustomEvent(name=CUSTOM, value=data)


def _task_of(described: dict[str, Json]) -> str:
    """The id of the task of the graph itself in which a model speaks, maybe in a subgraph."""
    return str(described.get("langgraph_checkpoint_ns", "")).partition("|")[0].rpartition(":")[2]


def _delta(before: dict[str, Json], after: dict[str, Json]) -> list[dict[str, Json]]:
    """A JSON Patch, key by key."""
    written = [
        {"op": "replace" if name in before else "add", "path": _pointer(name), "value": value}
        for name, value in after.items()
        if name not in before or before[name] != value
    ]
    return written + [{"op": "remove", "path": _pointer(name)} for name in before if name not in after]


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
