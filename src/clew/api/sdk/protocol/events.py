"""Events of the thread protocol: one run's stream parts and its end, as the protocol's events with their numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic_core import from_json

from clew.api.sdk.protocol.messages import INTERRUPT, protocol_state
from clew.domain.records import StreamPart
from clew.domain.runs import Run, RunStatus
from clew.domain.thread import Json

# One part can make several events. The number of an event is that of its part times this, and its place among them.
EVENTS_PER_PART = 64

ProtocolEvent = dict[str, Any]


@dataclass(slots=True)
class Namespace:
    """A graph inside the run's graph, or that graph itself."""

    path: tuple[str, ...]
    status: str
    graph: str


@dataclass(slots=True)
class RunEvents:
    """Translates one run from its first part that is kept, so that every reader gets the same events."""

    run: Run
    namespaces: dict[tuple[str, ...], Namespace] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _checkpoints: set[tuple[tuple[str, ...], str]] = field(default_factory=set)
    _started: set[tuple[str, ...]] = field(default_factory=set)
    # Ids of messages that models said, by namespace: in this attempt, and in earlier ones.
    _said: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    _said_before: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    _number: int = 0
    _place: int = 0
    _at: int = 0

    def begin(self, number: int) -> list[ProtocolEvent]:
        self._at_part(number, _millis(self.run.created_at))
        return list(self._status((), "running", self.run.spec.graph))

    def feed(self, part: StreamPart) -> list[ProtocolEvent]:
        method, *namespace = part.name.split("|")
        if method == "metadata":
            self._begin_attempt()
            return []
        data = from_json(part.data)
        params: Mapping[str, Any] = {}
        if isinstance(data, dict) and data.get("type") == "event" and isinstance(data.get("params"), dict):
            params = data["params"]
            namespace, data = params["namespace"], params["data"]
        self._at_part(part.number, params.get("timestamp") or _millis(self.run.updated_at))
        return list(self._events(method, tuple(namespace), data, params.get("interrupts") or ()))

    def end(self, run: Run, number: int) -> list[ProtocolEvent]:
        self.run = run
        self._at_part(number, _millis(run.updated_at))
        return list(self._end(run))

    def tree(self, path: tuple[str, ...] = ()) -> dict[str, Any]:
        found = self.namespaces.get(path) or Namespace(path, "started", self._graph(path))
        below = sorted(each for each in self.namespaces if each[:-1] == path and len(each) == len(path) + 1)
        shown: dict[str, Any] = {
            "namespace": list(path),
            "status": found.status,
            "graph_name": found.graph,
        }
        return {**shown, "children": [self.tree(each) for each in below]} if below else shown

    def _at_part(self, number: int, at: int) -> None:
        self._number, self._place, self._at = number, 0, at

    def _event(
        self, method: str, namespace: Sequence[str], data: Json, *, node: str | None = None, key: str = ""
    ) -> ProtocolEvent:
        seq = self._number * EVENTS_PER_PART + min(self._place, EVENTS_PER_PART - 1)
        self._place += 1
        params: dict[str, Any] = {"namespace": list(namespace), "timestamp": self._at, "data": data}
        if node is not None:
            params["node"] = node
        event_id = f"{self.run.id}:{key or seq}"
        return {"type": "event", "event_id": event_id, "seq": seq, "method": method, "params": params}

    def _events(
        self, method: str, namespace: tuple[str, ...], data: Any, interrupts: Sequence[Any]
    ) -> Iterator[ProtocolEvent]:
        if method != "lifecycle":
            self._know(namespace)
        match method:
            case "lifecycle":
                yield from self._lifecycle(namespace, data)
            case "values":
                yield from self._values(namespace, data, interrupts)
            case "updates":
                yield from self._updates(namespace, data)
            case "messages":
                if isinstance(data, dict) and isinstance(data.get("event"), str):
                    if data["event"] == "message-start" and isinstance(data.get("id"), str):
                        self._said.setdefault(namespace, []).append(data["id"])
                    yield self._event(method, namespace, data)
            case "checkpoints":
                yield from self._checkpoint(namespace, data)
            case "tools":
                yield from self._tools(namespace, data)
            case "tasks":
                yield self._event(method, namespace, data)
            case "custom":
                yield self._event(method, namespace, {"payload": data})
            case _ if method.startswith("custom:"):
                named = {"name": method.removeprefix("custom:"), "payload": data}
                yield self._event("custom", namespace, named)
            case _:
                pass  # of a run that was streamed in other modes too

    def _values(
        self, namespace: tuple[str, ...], data: Any, interrupts: Sequence[Any]
    ) -> Iterator[ProtocolEvent]:
        beside = data.get(INTERRUPT) if isinstance(data, dict) else None
        yield from self._asks(namespace, [*interrupts, *(beside or ())])
        shown = protocol_state(data)
        if shown or not isinstance(shown, dict):
            yield from self._cut_off(namespace, shown)
            yield self._event("values", namespace, shown)

    def _begin_attempt(self) -> None:
        for namespace, messages in self._said.items():
            self._said_before.setdefault(namespace, []).extend(messages)
        self._said.clear()

    def _cut_off(self, namespace: tuple[str, ...], shown: Any) -> Iterator[ProtocolEvent]:
        """Once after a crash or an error: the state with the messages of the attempt before that it does not hold.

        Clients keep a streamed message until a state had it and the next one does not."""
        before = self._said_before.pop(namespace, ())
        messages = shown.get("messages") if isinstance(shown, dict) else None
        if not isinstance(messages, list):
            return
        kept = {message.get("id") for message in messages if isinstance(message, dict)}
        lost = [{"type": "ai", "content": "", "id": one} for one in before if one not in kept]
        if lost:
            yield self._event("values", namespace, {**shown, "messages": [*messages, *lost]})

    def _updates(self, namespace: tuple[str, ...], data: Any) -> Iterator[ProtocolEvent]:
        if not isinstance(data, dict):
            yield self._event("updates", namespace, {"values": {"value": data}})
            return
        yield from self._asks(namespace, data.get(INTERRUPT) or ())
        for node, written in data.items():
            if node != INTERRUPT:
                values = protocol_state(written) if isinstance(written, dict) else {"value": written}
                yield self._event("updates", namespace, {"node": node, "values": values}, node=node)

    def _asks(self, namespace: tuple[str, ...], interrupts: Sequence[Any]) -> Iterator[ProtocolEvent]:
        """Each question once, by the innermost graph: LangGraph tells it again on every level."""
        new = [one for one in interrupts if isinstance(one, dict) and one.get("id") not in self._asked]
        for one in new:
            self._asked.add(one["id"])
            asks = {"interrupt_id": one["id"], "payload": one.get("value")}
            yield self._event("input.requested", namespace, asks, key=f"input:{one['id']}")
        if new:
            yield from self._status((), "interrupted")

    def _checkpoint(self, namespace: tuple[str, ...], data: Any) -> Iterator[ProtocolEvent]:
        if not isinstance(data, dict):
            return
        place = data.get("id")
        if place is None and isinstance(data.get("checkpoint"), dict):  # of a run in the mode `checkpoints`
            parent, about = data.get("parent_checkpoint") or {}, data.get("metadata") or {}
            place = data["checkpoint"].get("checkpoint_id")
            data = {"id": place, "step": about.get("step"), "source": about.get("source")}
            data |= {"parent_id": parent["checkpoint_id"]} if parent else {}
        if isinstance(place, str) and (namespace, place) not in self._checkpoints:
            self._checkpoints.add((namespace, place))
            yield self._event("checkpoints", namespace, data)

    def _tools(self, namespace: tuple[str, ...], data: Any) -> Iterator[ProtocolEvent]:
        if not isinstance(data, dict):
            return
        node = data.pop("__node", None)
        yield self._event("tools", namespace, data, node=node if isinstance(node, str) else None)
        output = data.get("output")
        if data.get("event") == "tool-finished" and isinstance(output, dict):
            yield from self._tool_message(namespace, data, output)

    def _tool_message(
        self, namespace: tuple[str, ...], data: Mapping[str, Any], output: Mapping[str, Any]
    ) -> Iterator[ProtocolEvent]:
        """The output of a tool is a message as well, in a namespace of the call."""
        call = data.get("tool_call_id") or output.get("tool_call_id")
        message = output.get("id") or (f"tool-{call}" if call else None)
        if message is None:
            return
        content = output.get("content")
        text = content if isinstance(content, str) else "" if content is None else str(content)
        inside = (*namespace, f"tools:{call}") if call else namespace
        start = {"event": "message-start", "role": "tool", "id": message}
        yield self._event("messages", inside, {**start, "tool_call_id": call} if call else start)
        for event, said in (("start", ""), ("delta", text), ("finish", text)):
            block = {"event": f"content-block-{event}", "index": 0, "content": {"type": "text", "text": said}}
            yield self._event("messages", inside, block)
        yield self._event("messages", inside, {"event": "message-finish", "metadata": {}})

    def _lifecycle(self, namespace: tuple[str, ...], data: Any) -> Iterator[ProtocolEvent]:
        """Of graphs inside: that of the run's own graph comes from the log."""
        if not isinstance(data, dict) or not isinstance(data.get("event"), str):
            return
        path = tuple(data.get("namespace") or namespace)
        if not path:
            return
        if data["event"] != "started":
            yield from self._status(path, data["event"], data.get("graph_name"), data.get("error"))
        elif path not in self._started:
            self._started.add(path)
            self.namespaces[path] = Namespace(path, "started", data.get("graph_name") or self._graph(path))
            yield self._event("lifecycle", path, data)

    def _end(self, run: Run) -> Iterator[ProtocolEvent]:
        left = [{"id": call, "value": prompt} for call, prompt in run.asked.items()]
        yield from self._asks((), left)
        for path in sorted(self.namespaces, key=len, reverse=True):
            if path and self.namespaces[path].status == "started":
                yield from self._status(path, "completed")
        match run.status:
            case RunStatus.ERROR | RunStatus.TIMEOUT:
                yield from self._status((), "failed", error=_words(run))
            case RunStatus.INTERRUPTED:
                yield from self._status((), "interrupted")
            case _:
                yield from self._status((), "interrupted" if self._asked else "completed")

    def _status(
        self, path: tuple[str, ...], status: str, graph: str | None = None, error: str | None = None
    ) -> Iterator[ProtocolEvent]:
        known = self.namespaces.get(path)
        name = graph or (known.graph if known else self._graph(path))
        if known is not None and known.status == status and error is None:
            return
        self.namespaces[path] = Namespace(path, status, name)
        told = {"event": status, "graph_name": name}
        yield self._event("lifecycle", path, told if error is None else {**told, "error": error})

    def _know(self, namespace: tuple[str, ...]) -> None:
        for length in range(1, len(namespace) + 1):
            path = namespace[:length]
            self.namespaces.setdefault(path, Namespace(path, "started", self._graph(path)))

    def _graph(self, path: tuple[str, ...]) -> str:
        return path[-1].partition(":")[0] if path else self.run.spec.graph


def _words(run: Run) -> str:
    name, _, words = run.error.partition(": ")
    return words if name.isidentifier() and words else run.error or run.reason


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)
