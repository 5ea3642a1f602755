"""Outcomes of a step: how one attempt at a round ended, one class each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from clew.domain.errors import Drained, Unavailable
from clew.domain.events import Body, Event, Resolution, RoundStarted, Suspension
from clew.domain.thread import Executor
from clew.domain.tool_calls import GATE, is_yes


@dataclass(frozen=True, slots=True)
class Suspended:
    """The graph or its tools wait for answers."""

    questions: Sequence[Suspension]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The graph ran to its end. `messages` are recorded in the commit that ends the round."""

    messages: Sequence[Body] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """No further attempt is made. `error` is the failure in its own words; `reason` says what was made of it."""

    reason: str
    error: str = ""
    messages: Sequence[Body] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """The attempt failed for a passing cause: another follows after `seconds`."""

    attempt: int
    error_class: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StoreAway:
    """The database was away: another attempt follows once it answers, and none is counted."""

    cause: Unavailable


# `Drained` ends the run and leaves the round as it is: another process continues it.
Rest: TypeAlias = Suspended | Completed | Failed | Drained
Outcome: TypeAlias = Rest | Retrying | StoreAway


def ended(log: Sequence[Event], messages: Sequence[Body]) -> Completed | Failed:
    """The outcome of a graph that ran to its end: after a person said no it has failed, for that person's reason.

    In a run of LangGraph's API the meaning of an answer is up to the graph and its client.
    """
    is_ordered = any(
        isinstance(event.body, RoundStarted | Resolution) and event.body.spec is not None for event in log
    )
    human = {
        event.body.call_id
        for event in log
        if isinstance(event.body, Suspension) and event.body.executor is Executor.HUMAN
    }
    for event in reversed(log):
        match event.body:
            case Resolution(call_id=call_id, answer=answer) if call_id in human:
                said = answer if isinstance(answer, dict) else {}
                is_no_or_yes = not is_ordered and isinstance(said.get("approved"), bool)
                if call_id.startswith(GATE) or is_no_or_yes:
                    if is_yes(answer):
                        break
                    return Failed(reason=str(said.get("feedback") or "rejected"), messages=messages)
            case _:
                pass
    return Completed(messages=messages)
