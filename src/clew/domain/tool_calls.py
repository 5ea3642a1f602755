"""Tool calls as rows: where each call of a thread stands, folded from the log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from clew.domain.events import (
    Event,
    Outcome,
    Resolution,
    RoundFinished,
    RoundStarted,
    Suspension,
    ToolCall,
    ToolResult,
)
from clew.domain.thread import Executor, Json, SuspensionKind


class CallStatus(StrEnum):
    PENDING = "pending"  # not started yet
    STARTED = "started"  # its effect may have happened
    RESOLVED = "resolved"
    ERRORED = "errored"
    EXPIRED = "expired"
    IN_DOUBT = "in_doubt"  # started, then killed, and not safe to repeat: a person decides

    @property
    def is_open(self) -> bool:
        return self in (CallStatus.PENDING, CallStatus.STARTED, CallStatus.IN_DOUBT)


_SETTLED: Mapping[Outcome, CallStatus] = {
    "answered": CallStatus.RESOLVED,
    "expired": CallStatus.EXPIRED,
    "cancelled": CallStatus.ERRORED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call or one question to a person. Its id is unique in its thread, not beyond: providers repeat ids."""

    thread_id: str
    id: str
    round: int
    executor: Executor
    name: str
    args: Json
    created_at: datetime
    status: CallStatus = CallStatus.PENDING
    kind: SuspensionKind = SuspensionKind.NONE
    idempotent: bool = True
    prompt: Json = None
    result: Json = None
    deadline: datetime | None = None
    started_at: datetime | None = None
    resolved_at: datetime | None = None

    @property
    def was_cut_off(self) -> bool:
        """Whether the end of its round ended it: whatever else ends a tool's call leaves a result."""
        return bool(self.name) and self.status is CallStatus.ERRORED and self.result is None


def fold_calls(calls: Mapping[str, Call], events: Iterable[Event]) -> dict[str, Call]:
    """The calls after these events. Events about calls that are already settled change nothing: the first answer stays."""
    after = dict(calls)
    for event in events:
        _fold(after, event)
    return after


def rebuild_calls(log: Iterable[Event]) -> dict[str, Call]:
    """The calls as the log alone gives them.

    The log does not hold when a tool was begun, nor a deadline that was moved. So a tool that may have been begun
    counts as begun, and a deadline is the first one.
    """
    calls: dict[str, Call] = {}
    for event in log:
        _fold(calls, event)
        match event.body:
            case ToolCall(call_id=call_id) | Resolution(call_id=call_id, settles=False):
                if (call := calls.get(call_id)) and _may_have_begun(call):
                    calls[call_id] = replace(call, status=CallStatus.STARTED, started_at=event.at)
            case Suspension(call_id=call_id, kind=kind) if kind is not SuspensionKind.IN_DOUBT:
                calls[call_id] = replace(calls[call_id], started_at=None)
            case _:
                pass
    return calls


def _may_have_begun(call: Call) -> bool:
    return call.status is CallStatus.PENDING and call.executor in (Executor.SERVER, Executor.PROVIDER)


def _fold(calls: dict[str, Call], event: Event) -> None:
    match event.body:
        case ToolCall() as body:
            known = calls.get(body.call_id)
            # Some providers number their calls anew in every turn, so a later round may use an id again.
            if known is None or (known.round < event.round and not known.status.is_open):
                calls[body.call_id] = _opened(event, body)
        case Suspension() as body:
            calls[body.call_id] = _suspended(calls.get(body.call_id), event, body)
        case ToolResult(call_id=call_id) | Resolution(call_id=call_id) as body:
            if (call := calls.get(call_id)) and call.status.is_open:
                calls[call_id] = _answered(call, body, event.at)
        case RoundFinished():
            for call in [call for call in calls.values() if call.status.is_open]:
                calls[call.id] = replace(call, status=CallStatus.ERRORED, deadline=None, resolved_at=event.at)
        case RoundStarted(round=number):
            # Taken up again, a round that failed goes on with what it left open.
            for call in [call for call in calls.values() if call.round == number and call.was_cut_off]:
                calls[call.id] = _reopened(call)
        case _:
            pass


def _reopened(call: Call) -> Call:
    if call.started_at is not None:
        return replace(call, status=CallStatus.STARTED, resolved_at=None)
    # The row does not show whether it was allowed, so that is asked again.
    return replace(call, status=CallStatus.PENDING, kind=SuspensionKind.NONE, prompt=None, resolved_at=None)


def _opened(event: Event, body: ToolCall) -> Call:
    return Call(
        thread_id=event.thread_id,
        id=body.call_id,
        round=event.round,
        executor=body.executor,
        name=body.name,
        args=body.args,
        idempotent=body.idempotent,
        created_at=event.at,
    )


def _suspended(call: Call | None, event: Event, body: Suspension) -> Call:
    if call is None:  # a question that no tool call asked, such as a graph's own interrupt
        call = Call(
            thread_id=event.thread_id,
            id=body.call_id,
            round=event.round,
            executor=body.executor,
            name="",
            args=None,
            created_at=event.at,
        )
    status = CallStatus.IN_DOUBT if body.kind is SuspensionKind.IN_DOUBT else CallStatus.PENDING
    return replace(
        call,
        executor=body.executor,
        kind=body.kind,
        prompt=body.prompt,
        deadline=body.deadline,
        idempotent=call.idempotent and body.idempotent,
        status=status,
        # A graph that asks twice in one step asks under the same id: the answer of the first time is not this one's.
        result=None,
        resolved_at=None,
    )


def _answered(call: Call, body: ToolResult | Resolution, at: datetime) -> Call:
    if isinstance(body, ToolResult):
        status = CallStatus.RESOLVED if body.ok else CallStatus.ERRORED
        answer = body.result if body.ok else {"ok": False, "error": body.error}
    elif body.settles and body.outcome == "answered" and call.name:
        # The answer is the tool's result, or a no to its running: the result in the same commit says which.
        return replace(call, deadline=None)
    elif body.settles:
        status, answer = _SETTLED[body.outcome], body.answer
    else:
        # It was approved, and the call waits to be carried out: pending as a row, no longer pending in the thread.
        return replace(call, status=CallStatus.PENDING, deadline=None)
    return replace(call, status=status, result=answer, deadline=None, resolved_at=at)
