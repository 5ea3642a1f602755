"""Tool calls: where each call of a thread stands, by its log; whether one may run; and what a model reads of one left open."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from json import dumps
from typing import TypeAlias

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
from clew.domain.retention import require_duration
from clew.domain.thread import Executor, Json, SuspensionKind

# Prefix of the call id of a question at a graph's breakpoint: may it go on?
GATE = "gate_"

# What a model reads of a call that its round left without a result.
NO_RESULT = "[no result]"
NOT_BEGUN = "[no result: it was not begun]"
CUT_OFF = "[no result: it was begun and cut off, so its effect may have happened]"
NOT_RUN = "[no result: it was approved, and not run]"
NOT_APPROVED = "[no result: it was not approved, and not run]"
NOT_REPORTED = "[no result: a client was to do it and did not report, so its effect may have happened]"
NOT_ANSWERED = "[no result: no answer came]"
# The error of a call that is not repeated after a crash, as its tool declares.
INTERRUPTED = "tool call interrupted: it was begun and cut off, so its effect may have happened"


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


class OnCrash(StrEnum):
    """What becomes of a call that was begun and cut off."""

    RETRY = "retry"  # carried out again, under the same id
    ASK = "ask"  # a person says how it ended
    INTERRUPTED = "interrupted"  # it ends as an error, and the turn goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a tool's author declared about it."""

    approval: bool = False
    patience: timedelta | None = None  # how long to wait for a person or a client; None: for ever
    needs_user: bool = False
    on_crash: OnCrash | None = None  # None: by whether it is idempotent
    server: str = ""  # the MCP server that carries it out

    def __post_init__(self) -> None:
        require_duration(self.patience, field="patience")


@dataclass(frozen=True, slots=True)
class Go:
    """It was not done yet, or doing it again is harmless: carry it out."""


@dataclass(frozen=True, slots=True)
class Settled:
    """It has a result already, and this is it."""

    ok: bool
    result: Json
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """An answer is needed first."""

    suspension: Suspension


Verdict: TypeAlias = Go | Settled | Ask


def judge(call: ToolCall, known: Call | None, terms: Terms, *, now: datetime) -> Verdict:
    """What to do with a call, given what became of it so far. A tool that asks here is not waiting any more."""
    if known is not None and not known.status.is_open:
        return _settled(known)
    if known is not None and known.status is CallStatus.STARTED:
        match terms.on_crash or (OnCrash.RETRY if call.idempotent else OnCrash.ASK):
            case OnCrash.ASK:
                # It may have happened. Doing it twice is worse than asking.
                return Ask(_suspension(call, SuspensionKind.IN_DOUBT, terms, now))
            case OnCrash.INTERRUPTED:
                return Settled(ok=False, result=None, error=INTERRUPTED)
            case OnCrash.RETRY:
                pass
    if known is not None and known.kind is SuspensionKind.IN_DOUBT:
        return Go()
    if terms.approval and (known is None or known.kind is SuspensionKind.NONE):
        return Ask(_suspension(call, SuspensionKind.APPROVAL, terms, now))
    match call.executor:
        case Executor.CLIENT:
            return Ask(_suspension(call, SuspensionKind.CLIENT_EXEC, terms, now))
        case Executor.HUMAN:
            return Ask(_suspension(call, SuspensionKind.ELICITATION, terms, now))
        case Executor.SERVER | Executor.PROVIDER:
            return Go()


def fate(left: Call | None, *, is_approved: bool) -> Settled:
    """What became of a call that a failed round left: its result, which a graph may have lost, or how far it came."""
    if left is not None and not left.status.is_open and not left.was_cut_off:
        return _settled(left)
    return Settled(ok=False, result=None, error=_how_far(left, is_approved))


def _how_far(left: Call | None, is_approved: bool) -> str:
    if left is None:
        return NO_RESULT
    if left.started_at is not None:
        return CUT_OFF
    match left.kind:
        case SuspensionKind.NONE:
            return NOT_BEGUN
        case SuspensionKind.APPROVAL:
            return NOT_RUN if is_approved else NOT_APPROVED
        case SuspensionKind.CLIENT_EXEC:
            return NOT_REPORTED
        case SuspensionKind.ELICITATION:
            return NOT_ANSWERED
        case SuspensionKind.IN_DOUBT:
            return CUT_OFF


def approved(log: Iterable[Event]) -> set[str]:
    """The calls whose last answer lets them run. Their rows do not show it."""
    found: set[str] = set()
    for event in log:
        match event.body:
            case Suspension(call_id=call_id):
                found.discard(call_id)
            case Resolution(call_id=call_id, settles=False):
                found.add(call_id)
            case _:
                pass
    return found


def is_yes(answer: Json) -> bool:
    """Whether the answer is a plain yes; any other answer is a no."""
    return answer is True or (isinstance(answer, dict) and answer.get("approved") is True)


def args_hash(name: str, args: Json) -> str:
    """What a person approves is exactly what runs: the same hash, or it does not run."""
    return sha256(dumps([name, args], sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _suspension(call: ToolCall, kind: SuspensionKind, terms: Terms, now: datetime) -> Suspension:
    hashed = args_hash(call.name, call.args)
    return Suspension(
        call_id=call.call_id,
        executor=call.executor,
        kind=kind,
        prompt={"tool": call.name, "args": call.args, "args_hash": hashed}
        | ({"server": terms.server} if terms.server else {}),
        args_hash=hashed,
        idempotent=call.idempotent,
        # A deadline cannot decide whether it happened: that waits for a person, however long.
        deadline=None if terms.patience is None or kind is SuspensionKind.IN_DOUBT else now + terms.patience,
    )


def _settled(known: Call) -> Settled:
    if known.status is CallStatus.RESOLVED:
        return Settled(ok=True, result=known.result)
    error = known.result.get("error", "") if isinstance(known.result, dict) else ""
    return Settled(ok=False, result=known.result, error=error or f"tool call {known.status}")
