"""Runs as LangGraph's clients know them: told by a thread's log, from the orders in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from clew.domain.errors import NotAllowed
from clew.domain.events import (
    Event,
    Order,
    Resolution,
    RoundFinished,
    RoundStarted,
    Suspension,
    ToolResult,
)
from clew.domain.ledger import GATE
from clew.domain.thread import Json, Status, Thread

# Under which those that wait for their turn are in the inbox.
SOURCE = "langgraph"
# What has to be read to tell which runs there were and how they ended.
TELLING = frozenset(
    {RoundStarted.type, RoundFinished.type, Suspension.type, Resolution.type, ToolResult.type}
)


class RunStatus(StrEnum):
    """In LangGraph's words. A run that ended with a question has done what it could: that is a success."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"  # somebody cancelled it

    @property
    def is_over(self) -> bool:
        return self not in (RunStatus.PENDING, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    thread_id: str
    order: Order
    input: Json
    status: RunStatus
    created_at: datetime
    updated_at: datetime
    first_seq: int = 0  # where in the log it begins; 0 for one that waits for its turn
    reason: str = ""  # why it failed
    error: str = ""  # the same in the words of what failed

    @property
    def id(self) -> str:
        return self.order.run_id


_ENDS: Mapping[Status, RunStatus] = {
    Status.COMPLETED: RunStatus.SUCCESS,
    Status.STOPPED: RunStatus.INTERRUPTED,
    Status.FAILED: RunStatus.ERROR,
}


def runs_of(log: Iterable[Event]) -> list[Run]:
    """Every run in this part of a log, in order. Which other rounds there were does not matter."""
    runs: list[Run] = []
    current: Run | None = None
    waits: set[str] = set()

    def ends(event: Event, status: RunStatus, reason: str = "", error: str = "") -> None:
        nonlocal current
        if current is not None:
            runs[-1] = replace(current, status=status, updated_at=event.at, reason=reason, error=error)
            current = None

    for event in log:
        match event.body:
            case RoundStarted(order=Order() as order, input=given):
                current = _begun(event, order, given)
                runs.append(current)
            case Resolution(order=Order() as order, call_id=call_id):
                waits.discard(call_id)
                current = _begun(event, order, None)
                runs.append(current)
                if waits:
                    # Some of what was asked is still open: the graph is not asked to go on.
                    ends(event, RunStatus.SUCCESS)
            case Resolution(call_id=call_id) | ToolResult(call_id=call_id):
                waits.discard(call_id)
            case Suspension(call_id=call_id):
                waits.add(call_id)
                ends(event, RunStatus.SUCCESS)
            case RoundFinished(status=status, reason=reason, error=error):
                waits.clear()
                timed_out = status is Status.FAILED and reason.startswith("timeout:")
                ends(event, RunStatus.TIMEOUT if timed_out else _ENDS[status], reason, error)
            case _:
                pass
    return runs


def undone(run_id: str) -> str:
    """How a thread remembers that what the run led to is not to be built on."""
    return f"undone/{run_id}"


def unquoted(run: Run) -> Run:
    """The run without what its graph was given: that may quote a message that was taken back."""
    return replace(run, input=None, order=replace(run.order, command=None))


def still_asked(thread: Thread, interrupts: Iterable[Mapping[str, Json]]) -> list[Json]:
    """Of what a graph that waits has asked, what nobody has answered; and what LangGraph does not know of, since it
    stops at the first of several tools that ask."""
    known = {one["id"]: one for one in interrupts}
    if not known:
        return []
    return [
        known.get(call_id, {"id": call_id, "value": asked.prompt})
        for call_id, asked in thread.pending.items()
        if not call_id.startswith(GATE)
    ]


def answers_in(thread: Thread, resume: Json) -> dict[str, Json]:
    """Which question each answer is for: by its id, or without one if there is only one to answer."""
    if not thread.pending:
        raise NotAllowed(f"thread {thread.id!r} is {thread.status} and waits for no answer")
    if isinstance(resume, dict) and resume and all(key in thread.pending for key in resume):
        return resume
    if len(thread.pending) > 1:
        raise NotAllowed(f"thread {thread.id!r} waits for {len(thread.pending)} answers; give each by its id")
    return dict.fromkeys(thread.pending, resume)


def _begun(event: Event, order: Order, given: Json) -> Run:
    return Run(
        thread_id=event.thread_id,
        order=order,
        input=given,
        status=RunStatus.RUNNING,
        created_at=event.at,
        updated_at=event.at,
        first_seq=event.seq,
    )
