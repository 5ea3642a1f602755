"""Suspensions: an interrupt or a breakpoint that waits for an answer, as the log keeps it."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_jsonable_python

from clew.domain.events import Suspension
from clew.domain.recovery import Breakpoint, OpenInterrupt, Wait
from clew.domain.thread import Executor, SuspensionKind
from clew.graph.stream import storable


def suspensions(
    wait: Wait, values: Mapping[str, Any], *, shows: Collection[str], now: datetime
) -> list[Suspension]:
    """`values` are the graph's state, of which a question at a breakpoint shows the channels in `shows`."""
    found = [_at_interrupt(one, now) for one in wait.interrupts]
    if wait.stopped_at is not None:
        found.append(at_breakpoint(wait.stopped_at, values, shows))
    return found


def at_breakpoint(stop: Breakpoint, values: Mapping[str, Any], shows: Collection[str]) -> Suspension:
    shown = {name: storable(values[name]) for name in shows if name in values}
    prompt = {"before": list(stop.before), **shown}
    return Suspension(call_id=stop.id, executor=Executor.HUMAN, kind=SuspensionKind.APPROVAL, prompt=prompt)


def _at_interrupt(one: OpenInterrupt, now: datetime) -> Suspension:
    value: Mapping[str, Any] = one.value if isinstance(one.value, dict) else {}
    kind = value.get("kind")
    return Suspension(
        call_id=one.id,
        executor=Executor.HUMAN,
        kind=SuspensionKind(kind)
        if kind in (SuspensionKind.APPROVAL, SuspensionKind.ELICITATION)
        else SuspensionKind.APPROVAL,
        prompt=to_jsonable_python(one.value, fallback=str),
        deadline=_deadline(value.get("timeout"), now),
        index=one.index,
        node=one.node,
    )


def _deadline(seconds: Any, now: datetime) -> datetime | None:
    """None for a time that no date can hold, or where the graph uses the key for something else."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return now + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None
