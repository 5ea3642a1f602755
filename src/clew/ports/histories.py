"""Chat histories: messages by conversation key."""

from collections.abc import (
    Sequence,
)
from typing import Protocol

from clew.domain.history import HistoryId, HistoryMessage, NewMessage, Shape
from clew.domain.history import HistorySummary as HistorySummary
from clew.domain.thread import Owner


class Histories(Protocol):
    """Chat histories: one row a message, numbered from 1 without a gap inside the transaction that writes it."""

    async def append(
        self,
        place: HistoryId,
        messages: Sequence[NewMessage],
        *,
        shape: Shape,
        origin: str | None = None,
        thread_id: str | None = None,
        user_id: str = "",
    ) -> int:
        """Append the messages side by side, all or none; returns the seq of the history's last message.

        A history that begins with a `thread_id` is the memory of that thread, and is deleted with it. Raises NotFound
        if the thread was deleted. One that begins with a `user_id` is that user's; see `delete_all`.

        A message whose id is stored already is left out. When `origin`, a piece of work that may run again after a
        crash, answers a message for the second time, its new answer takes the place of its first.
        """
        ...

    async def tail(self, place: HistoryId, *, limit: int) -> Sequence[HistoryMessage]:
        """The newest messages, oldest first. Reads no more than it returns."""
        ...

    async def read(self, place: HistoryId, *, after: int = 0, limit: int = 1000) -> Sequence[HistoryMessage]:
        """Messages with a greater seq, in order."""
        ...

    async def summary(self, place: HistoryId) -> HistorySummary | None: ...

    async def delete(self, place: HistoryId) -> bool:
        """Forget a conversation for good; False if there was none."""
        ...

    async def delete_all(self, owner: Owner, *, limit: int = 100) -> int:
        """Delete up to `limit` conversations of the tenant, or of one user in it; returns how many, 0 when none is left."""
        ...
