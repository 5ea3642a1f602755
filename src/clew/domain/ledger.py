"""Tool ledger: whether a call may run, by what is known of it; and what a model reads of a call that was left."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from json import dumps
from typing import TypeAlias

from clew.domain.durations import require_duration
from clew.domain.events import Event, Resolution, Suspension, ToolCall
from clew.domain.thread import Executor, Json, SuspensionKind
from clew.domain.tool_calls import Call, CallStatus

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
        prompt={"tool": call.name, "args": call.args, "args_hash": hashed},
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
