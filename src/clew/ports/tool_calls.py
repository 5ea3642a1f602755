"""Tool call rows: the status of every tool call of a thread."""

from collections.abc import (
    Collection,
    Sequence,
)
from datetime import datetime
from typing import Protocol

from clew.domain.tool_calls import Call, CallStatus


class Calls(Protocol):
    """Where each tool call stands. The rows follow the log; only `start` writes here by itself.

    A row that is missing or cannot be read back is rebuilt from the log, when it is asked for or by `rebuild`.
    Methods that need one raise Corrupt if the log cannot be read either.
    """

    async def find(self, thread_id: str, *, status: Collection[CallStatus] = ()) -> Sequence[Call]: ...

    async def get(self, thread_id: str, call_id: str) -> Call:
        """Raises NotFound."""
        ...

    async def start(
        self, thread_id: str, call_id: str, *, idempotent: bool = True, fence: int, now: datetime
    ) -> bool:
        """Mark that the effect may happen from now on, and whether it may twice.

        False if the call was not pending; raises LostLease.
        """
        ...

    async def pause(self, thread_id: str, call_id: str, *, fence: int) -> None:
        """Take the mark back: the tool stopped to ask, and will be carried out from its beginning."""
        ...

    async def reschedule(self, thread_id: str, call_id: str, deadline: datetime | None) -> bool:
        """Move or lift the deadline of a pending call. False if it is no longer pending."""
        ...

    async def rebuild(self, thread_id: str) -> None:
        """Rebuild the rows that are missing or cannot be read. Readable rows stay as they are."""
        ...

    async def lost(self, *, after: str = "", limit: int) -> Sequence[str]:
        """Threads with an id greater than `after` that wait for an answer, and have no row of an open call."""
        ...

    async def due(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Pending calls past their deadline, the longest overdue first."""
        ...
