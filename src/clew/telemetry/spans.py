"""Spans of a round, built from its log: the round, its stages, tool calls, model calls, and the times it waited.

Ids come from the thread and the log, so a round that is sent twice is the same trace. No span holds what was said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeAlias

from clew.domain.events import (
    AssistantMessage,
    Event,
    Log,
    Resolution,
    RoundFinished,
    RoundStarted,
    StageChanged,
    Suspension,
    ToolCall,
    ToolResult,
)
from clew.domain.records import ModelCall
from clew.domain.thread import Status, Thread
from clew.telemetry.trace_context import TraceParent, parse_traceparent

Attributes: TypeAlias = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    name: str
    at: datetime
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    name: str
    trace_id: int
    id: int
    parent_id: int | None
    start: datetime
    end: datetime
    attributes: Attributes = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    links: Sequence[int] = ()  # spans of the same trace
    has_failed: bool = False


def round_spans(thread: Thread, log: Sequence[Event], model_calls: Iterable[ModelCall] = ()) -> list[Span]:
    """The spans of one round. Empty if the caller's trace is not sampled, or the round did not begin in `log`."""
    if not log or not isinstance(log[0].body, RoundStarted):
        return []
    if len(log) == 2 and isinstance(log[1].body, RoundFinished) and log[0].body.spec is None:
        return []  # a thread that was opened without a run
    caller = _caller(log)
    if caller is not None and not caller.is_sampled:
        return []
    return list(_Spans(thread, log, caller).all(model_calls))


class _Spans:
    def __init__(self, thread: Thread, log: Sequence[Event], caller: TraceParent | None) -> None:
        self._thread = thread
        self._log = log
        self._caller = caller
        self._round = log[0].round
        self._trace = caller.trace_id if caller else _number(16, thread.id, "round", self._round)
        self._root = self._id("round", log[0].seq)
        self._end = log[-1].at

    def all(self, model_calls: Iterable[ModelCall]) -> Iterator[Span]:
        yield self._of_round()
        yield from self._stages()
        yield from self._tools()
        yield from self._waits()
        first, last = self._log[0].seq, self._log[-1].seq
        for call in model_calls:
            if first <= call.turn_ref <= last:
                yield self._model(call)

    def _of_round(self) -> Span:
        bodies = [event.body for event in self._log]
        ends = [body for body in bodies if isinstance(body, RoundFinished)]
        specs = [body.spec for body in bodies if isinstance(body, RoundStarted | Resolution) and body.spec]
        said = [body for body in bodies if isinstance(body, AssistantMessage)]
        status = ends[-1].status if ends else Status.RUNNING
        attributes: dict[str, str | int | bool] = {
            "clew.thread_id": self._thread.id,
            "clew.round": self._round,
            "clew.graph": specs[-1].graph if specs else self._thread.graph,
            "clew.tenant": self._thread.owner.tenant,
            "clew.status": str(status),
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self._thread.id,
            "gen_ai.usage.input_tokens": sum(message.tokens_in for message in said),
            "gen_ai.usage.output_tokens": sum(message.tokens_out for message in said),
        }
        if specs:
            attributes["clew.run_id"] = specs[-1].run_id
        return Span(
            name=f"round {attributes['clew.graph']}",
            trace_id=self._trace,
            id=self._root,
            parent_id=self._caller.span_id if self._caller else None,
            start=self._log[0].at,
            end=self._end,
            attributes=attributes,
            events=list(self._incidents()),
            has_failed=status is Status.FAILED,
        )

    def _incidents(self) -> Iterator[SpanEvent]:
        """What interrupted the round: attempts that failed, deaths of its process, a retry of the whole round."""
        for event in self._log[1:]:
            match event.body:
                case Log(attempt=attempt) if attempt:
                    yield SpanEvent(name="attempt failed", at=event.at, attributes={"clew.attempt": attempt})
                case Log(ref=ref) if ref.startswith(RECOVERED):
                    number = int(ref.removeprefix(RECOVERED))
                    yield SpanEvent(
                        name="recovered after a crash", at=event.at, attributes={"clew.recovery": number}
                    )
                case RoundStarted():
                    yield SpanEvent(name="round retried", at=event.at)
                case _:
                    pass

    def _stages(self) -> Iterator[Span]:
        changes = [event for event in self._log if isinstance(event.body, StageChanged | RoundFinished)]
        for event, after in zip(changes, [*changes[1:], None], strict=True):
            if isinstance(event.body, StageChanged):
                end = after.at if after else self._end
                yield self._child("stage", event, end, event.body.stage, {"clew.stage": event.body.stage})

    def _tools(self) -> Iterator[Span]:
        results = {event.body.call_id: event for event in self._log if isinstance(event.body, ToolResult)}
        for event in self._log:
            if not isinstance(event.body, ToolCall):
                continue
            call, result = event.body, results.get(event.body.call_id)
            ok = isinstance(result.body, ToolResult) and result.body.ok if result else False
            outcome = "unfinished" if result is None else "ok" if ok else "error"
            attributes: dict[str, str | int | bool] = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.name,
                "gen_ai.tool.call.id": call.call_id,
                "clew.tool.executor": str(call.executor),
                "clew.tool.outcome": outcome,
                "clew.attempt": self._attempt(event, result),
            }
            end = result.at if result else self._end
            yield self._child(
                "execute_tool", event, end, call.name, attributes, has_failed=outcome == "error"
            )

    def _attempt(self, event: Event, result: Event | None) -> int:
        """Which attempt of the round ended the call."""
        last = result.seq if result else self._log[-1].seq
        return 1 + sum(
            isinstance(other.body, Log) and other.body.attempt > 0 and event.seq < other.seq < last
            for other in self._log
        )

    def _waits(self) -> Iterator[Span]:
        answers = {event.body.call_id: event for event in self._log if isinstance(event.body, Resolution)}
        for event in self._log:
            if not isinstance(event.body, Suspension):
                continue
            answer = answers.get(event.body.call_id)
            attributes: dict[str, str | int | bool] = {
                "clew.call_id": event.body.call_id,
                "clew.wait.kind": str(event.body.kind),
                "clew.wait.for": str(event.body.executor),
                "clew.wait.outcome": (
                    answer.body.outcome if answer and isinstance(answer.body, Resolution) else "unfinished"
                ),
            }
            end = answer.at if answer else self._end
            span = self._child("wait", event, end, str(event.body.kind), attributes, links=(self._root,))
            yield span

    def _model(self, call: ModelCall) -> Span:
        usage = call.usage if isinstance(call.usage, Mapping) else {}
        attributes: dict[str, str | int | bool] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": call.model,
            "clew.model_call.outcome": call.status,
        }
        for name in ("input_tokens", "output_tokens"):
            if isinstance(tokens := usage.get(name), int):
                attributes[f"gen_ai.usage.{name}"] = tokens
        return Span(
            name=f"chat {call.model}",
            trace_id=self._trace,
            id=self._id("chat", call.id),
            parent_id=self._root,
            start=call.created_at - timedelta(milliseconds=call.latency_ms),
            end=call.created_at,
            attributes=attributes,
            has_failed=call.status == "failed",
        )

    def _child(
        self,
        kind: str,
        event: Event,
        end: datetime,
        subject: str,
        attributes: Attributes,
        *,
        links: Sequence[int] = (),
        has_failed: bool = False,
    ) -> Span:
        return Span(
            name=f"{kind} {subject}",
            trace_id=self._trace,
            id=self._id(kind, event.seq),
            parent_id=self._root,
            start=event.at,
            end=end,
            attributes=attributes,
            links=links,
            has_failed=has_failed,
        )

    def _id(self, kind: str, number: int | str) -> int:
        return _number(8, self._thread.id, kind, number)


# How the ref of a log line begins that says that the round goes on after its process died; its number follows.
RECOVERED = "recovered:"


def _caller(log: Sequence[Event]) -> TraceParent | None:
    for event in log:
        match event.body:
            case RoundStarted(trace=trace, spec=spec):
                header = trace or (spec.trace if spec else "")
                return parse_traceparent(header)
            case _:
                pass
    return None


def _number(size: int, *parts: str | int) -> int:
    """Never zero, which would be no id."""
    digest = sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:size]) or 1
