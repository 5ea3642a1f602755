"""Model calls: summaries of a log and the audit of what models were sent."""

from collections.abc import (
    Sequence,
)
from datetime import datetime
from typing import Protocol

from clew.domain.events import Event
from clew.domain.records import (
    ModelCall,
    Summary,
)


class Summaries(Protocol):
    """Compactions of a log's beginning. Derived: deleting all of them changes nothing but speed."""

    async def add(self, thread_id: str, summary: Summary) -> None:
        """Raises NotFound if the thread was deleted."""
        ...

    async def load_since(self, thread_id: str) -> tuple[Summary | None, Sequence[Event]]:
        """The summary that reaches furthest, and the events after it; without one, all events."""
        ...

    async def drop(self, thread_id: str) -> int: ...


class ModelCalls(Protocol):
    """What was sent to models. Bounded by age and by rows a thread."""

    async def add(self, call: ModelCall, *, keep: int | None = None) -> None:
        """Record one call; with `keep`, forget the thread's oldest beyond that many. Raises NotFound.

        What was sent is not kept of a call that is older than the thread's last redaction.
        """
        ...

    async def find(self, thread_id: str, *, limit: int = 100) -> Sequence[ModelCall]:
        """The newest calls of a thread, newest first."""
        ...

    async def trim(self, *, older_than: datetime, limit: int = 1000) -> int:
        """Forget up to `limit` old calls; returns how many."""
        ...
