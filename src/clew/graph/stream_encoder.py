"""Stream encoder: what a graph streams as the named JSON parts that LangGraph's clients expect."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, BaseMessageChunk, message_chunk_to_message
from langchain_core.runnables import RunnableConfig
from langgraph.stream import ProtocolEvent
from langgraph.types import Interrupt, StreamMode
from pydantic_core import to_json

from clew.checkpointer.rows import FENCE
from clew.domain.events import PROTOCOL_MODE, RunSpec
from clew.graph.stream import as_json, named
from clew.graph.tools import CALL

INTERRUPT = "__interrupt__"
# Modes that clients name differently from LangGraph.
TUPLES = "messages-tuple"
# What LangGraph streams by another method.
EVENTS = "events"
# How LangChain tags what is not to be shown.
HIDDEN = "langsmith:hidden"
MODES: Mapping[str, StreamMode] = {
    "values": "values",
    "updates": "updates",
    "messages": "messages",
    TUPLES: "messages",
    "custom": "custom",
    "debug": "debug",
    "tasks": "tasks",
    "checkpoints": "checkpoints",
}
# Keys of a config that clients are not shown.
_OURS = ("clew_", "__")

Tell = Callable[[str, bytes], None]


class StreamEncoder:
    """Encodes what one run streams, in the modes of its RunSpec only."""

    def __init__(self, spec: RunSpec, tell: Tell) -> None:
        self._wanted = frozenset(spec.modes)
        self._tell = tell
        if self.is_protocol:  # so that its readers learn of the run before it says anything
            tell("metadata", to_json({"run_id": spec.run_id}))
        self._said: dict[str, BaseMessage] = {}

    @property
    def modes(self) -> list[StreamMode]:
        return [MODES[mode] for mode in self._wanted if mode in MODES]

    @property
    def is_protocol(self) -> bool:
        return PROTOCOL_MODE in self._wanted

    @property
    def has_events(self) -> bool:
        return EVENTS in self._wanted

    def hear_event(self, event: Mapping[str, Any]) -> None:
        """An event of `astream_events`, whatever is in it."""
        if HIDDEN not in (event.get("tags") or ()):
            self._tell(EVENTS, as_bytes({**event, "metadata": without_ours(event.get("metadata") or {})}))

    def hear_protocol(self, event: ProtocolEvent) -> None:
        """An event of the thread protocol, as LangGraph makes it."""
        method, params = event["method"], event["params"]
        data: Any = params["data"]
        match method:
            case "messages":
                data = data[0] if isinstance(data, tuple) else data
                if not isinstance(data, Mapping):
                    return  # a whole message, which is among the values
            case "tasks":
                data = _task(data)
            case "checkpoints":
                data = _envelope(data)
            case "updates":
                data = _asking(data)
            case _:
                pass
        shown: dict[str, Any] = {**params, "data": data}
        if shown.get("interrupts"):
            shown["interrupts"] = [asked(one) for one in shown["interrupts"]]
        told = {"type": "event", "method": method, "params": shown}
        self._tell("|".join((method, *params["namespace"])), as_bytes(told))

    def hear(self, ns: Sequence[str], mode: str, part: Any) -> None:
        if self.is_protocol:
            return
        for name, data in self._parts(mode, part):
            self._tell("|".join((name, *ns)), as_bytes(data))

    def _parts(self, mode: str, part: Any) -> Iterator[tuple[str, Any]]:
        match mode:
            case "messages" if TUPLES in self._wanted:
                message, described = part
                yield "messages", [message, without_ours(described)]
            case "messages" if mode in self._wanted:
                yield from self._messages(*part)
            case "updates" if mode not in self._wanted:
                # An interrupt is sent in every mode, with the values where those are wanted; a breakpoint has no
                # question.
                if part.get(INTERRUPT) and "values" not in self._wanted:
                    yield "values", _asking(part)
            case _ if mode not in self._wanted:
                pass  # for ourselves
            case "debug":
                shown = _checkpoint if part["type"] == "checkpoint" else _task
                yield mode, {**part, "payload": shown(part["payload"])}
            case "checkpoints":
                yield mode, _checkpoint(part)
            case "tasks":
                yield mode, _task(part)
            case "updates" | "values":
                yield mode, _asking(part)
            case _:
                yield mode, part

    def _messages(self, message: BaseMessage, described: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Each time all that was said of the message so far."""
        key = message.id or ""
        if key in self._said:
            self._said[key] = self._said[key] + message  # type: ignore[assignment]
        else:
            self._said[key] = message
            yield "messages/metadata", {key: {"metadata": without_ours(described)}}
        if isinstance(message, BaseMessageChunk):
            yield "messages/partial", [message_chunk_to_message(self._said[key])]
        else:
            yield "messages/complete", [message]


def asked(one: Interrupt) -> Interrupt:
    """A question of a tool has the id of its call: of those asked side by side LangGraph knows one id, or one question."""
    if isinstance(one.value, Mapping) and CALL in one.value:
        value = {name: said for name, said in one.value.items() if name != CALL}
        return Interrupt(value=value, id=str(one.value[CALL]))
    return one


def as_bytes(data: Any) -> bytes:
    """As JSON, whatever it is: a part that cannot be encoded must not end a run."""
    try:
        return to_json(data, bytes_mode="base64", inf_nan_mode="null", fallback=_described)
    except ValueError:
        pass
    try:
        return to_json(as_json(data))
    except ValueError:
        return to_json({"error": f"{type(data).__name__} cannot be shown as JSON"})


def _described(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    return named(value)


def place_of(config: RunnableConfig | None) -> dict[str, Any] | None:
    """Which checkpoint a config means, as clients name one."""
    configurable = (config or {}).get("configurable", {})
    if not configurable.get("checkpoint_id"):
        return None
    names = ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
    return {"checkpoint_ns": "", **{name: configurable[name] for name in names if name in configurable}}


def without_ours(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if not name.startswith(_OURS) and name != FENCE}


def _asking(part: Any) -> Any:
    if isinstance(part, Mapping) and part.get(INTERRUPT):
        return {**part, INTERRUPT: [asked(one) for one in part[INTERRUPT]]}
    return part


def _checkpoint(payload: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**payload}
    shown["config"] = _config(payload.get("config"))
    shown["parent_config"] = _config(payload.get("parent_config"))
    shown["metadata"] = without_ours(payload.get("metadata") or {})
    shown["checkpoint"] = place_of(payload.get("config"))
    shown["parent_checkpoint"] = place_of(payload.get("parent_config"))
    shown["tasks"] = [_task_at(task) for task in payload.get("tasks", ())]
    return shown


def _envelope(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Which checkpoint was written, without what is in it."""
    metadata = payload.get("metadata") or {}
    place, parent = place_of(payload.get("config")), place_of(payload.get("parent_config"))
    told = {
        "id": place and place["checkpoint_id"],
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }
    return {**told, "parent_id": parent["checkpoint_id"]} if parent else told


def _task_at(task: Mapping[str, Any]) -> dict[str, Any]:
    return {**task, "state": _config(task.get("state")), "checkpoint": place_of(task.get("state"))}


def _config(config: RunnableConfig | None) -> dict[str, Any] | None:
    return {"configurable": without_ours(config.get("configurable", {}))} if config else None


def _task(task: Mapping[str, Any]) -> dict[str, Any]:
    """As it begins, with what it is called by, or as it ends."""
    return {**task, "metadata": without_ours(task["metadata"])} if task.get("metadata") else {**task}
