"""What a thread owes: the end of its log in, the next thing to do out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from clew.domain.events import (
    Event,
    Log,
    Resolution,
    RoundStarted,
    StageChanged,
    Suspension,
    ToolCall,
    ToolResult,
    UserMessage,
)
from clew.domain.records import SYSTEM, RunScope
from clew.domain.thread import Json, Status, Thread


@dataclass(frozen=True, slots=True)
class Nothing:
    """The round has ended, or was not begun."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody outside must answer first."""


@dataclass(frozen=True, slots=True)
class RunTurn:
    """Nothing came of this round's input yet: run the turn. Safe to repeat, for no effect has happened."""


@dataclass(frozen=True, slots=True)
class Redispatch:
    """These calls were asked for and have no result: carry out exactly them, under the same ids, before any model is asked."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Every question is answered: hand the answers to whoever asked."""

    answers: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class GoOn:
    """The turn was under way: continue from its last checkpoint, without input."""


Owed: TypeAlias = Nothing | Wait | RunTurn | Redispatch | Resume | GoOn


def owed(thread: Thread, this_round: Sequence[Event]) -> Owed:
    """What to do next, told by the events of the current round alone."""
    if thread.status is Status.BLOCKED:
        return Wait()
    if thread.status is not Status.RUNNING:
        return Nothing()
    if dangling := _dangling(this_round):
        return Redispatch(dangling)
    if answers := _fresh_answers(this_round):
        return Resume(answers)
    begun = any(not isinstance(event.body, RoundStarted | UserMessage | StageChanged) for event in this_round)
    return GoOn() if begun else RunTurn()


def woken_by(thread: Thread, this_round: Sequence[Event]) -> RunScope:
    """On whose behalf the thread goes on: whoever last began it, took it up or answered. A deadline is nobody."""
    for event in reversed(this_round):
        match event.body:
            case RoundStarted(by=None):
                return SYSTEM
            case RoundStarted(by=str(user_id)):
                return RunScope(user_id=user_id, is_system=False)
            case Resolution(outcome="answered", by=by):
                # Only its owner may answer, or a caller that is no user in particular and is named by its key.
                user_id = thread.owner.user_id if by == thread.owner.user_id else ""
                return RunScope(user_id=user_id, is_system=False)
            case Resolution():
                return SYSTEM
            case _:
                pass
    return SYSTEM


def _dangling(events: Sequence[Event]) -> tuple[ToolCall, ...]:
    calls: dict[str, ToolCall] = {}
    for event in events:
        match event.body:
            case ToolCall(call_id=call_id) as call:
                calls[call_id] = call
            case ToolResult(call_id=call_id) | Resolution(call_id=call_id, settles=True):
                calls.pop(call_id, None)
            case _:
                pass
    return tuple(calls.values())


def _fresh_answers(events: Sequence[Event]) -> dict[str, Json]:
    """The answers since the thread last waited, unless something already came of them."""
    answers: dict[str, Json] = {}
    for event in events:
        match event.body:
            case Resolution(call_id=call_id, answer=answer):
                answers[call_id] = answer
            case Suspension() | ToolResult():
                pass  # part of the asking and answering itself
            case _:
                answers.clear()
    return answers


def failed_attempts(log: Sequence[Event]) -> int:
    """Counted in the log, so that a kill between two attempts gives no attempt back. Taking a round up starts anew."""
    for event in reversed(log):
        match event.body:
            case Log(attempt=attempt) if attempt:
                return attempt
            case RoundStarted():
                return 0
            case _:
                pass
    return 0
