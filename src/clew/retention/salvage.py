"""Salvage of a damaged log: its readable events, in order, and where some are missing."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from clew.domain.errors import Corrupt
from clew.domain.events import Event
from clew.domain.thread import Thread
from clew.ports.threads import Store

PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that could not be read: where it is stored, and why. Never what it says."""

    table: str
    code: str
    reason: str
    # Of events: the first and the last that are missing here.
    from_seq: int | None = None
    to_seq: int | None = None
    # Of a document.
    id: str | None = None

    def told(self) -> dict[str, str | int]:
        return {name: value for name, value in asdict(self).items() if value is not None}


Stretch: TypeAlias = Sequence[Event] | Problem


async def legible(store: Store, thread: Thread) -> AsyncIterator[Stretch]:
    """The log as long as it was when the thread was looked up."""
    pages = [(first, min(first + PAGE - 1, thread.last_seq)) for first in range(1, thread.last_seq + 1, PAGE)]
    waiting = pages[::-1]
    while waiting:
        first, last = waiting.pop()
        try:
            found = await store.read(thread.id, after=first - 1, before=last + 1, limit=last - first + 1)
        except Corrupt as exc:
            if first == last:
                yield Problem(table="events", code=exc.code, reason=str(exc), from_seq=first, to_seq=last)
            else:
                # One corrupt event fails the whole read: halves are read until it is isolated.
                middle = (first + last) // 2
                waiting += [(middle + 1, last), (first, middle)]
            continue
        if not found:
            yield _gap(first, last)
            continue
        if first < found[0].seq:
            yield _gap(first, found[0].seq - 1)
        yield found
        if found[-1].seq < last:
            yield _gap(found[-1].seq + 1, last)


def _gap(first: int, last: int) -> Problem:
    return Problem(table="events", code=Corrupt.code, reason="not there", from_seq=first, to_seq=last)
