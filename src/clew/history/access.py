"""Chat histories for a caller outside of a graph: append a message to one, read it, delete it."""

from collections.abc import Sequence
from dataclasses import dataclass

from clew.domain.errors import Invalid, NotFound
from clew.domain.items import check_namespace, from_path, storable, user_label
from clew.domain.thread import Owner
from clew.history import keys
from clew.ports.histories import (
    NAMESPACE,
    Histories,
    HistoryId,
    HistoryMessage,
    HistorySummary,
    NewMessage,
    Shape,
)

# Conversations deleted in one transaction.
PORTION = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatHistories:
    """The histories that `AgentNode` reads and writes. What runs of one user remember is that user's alone: an API key of
    one user reaches it and nothing else."""

    histories: Histories

    async def append(self, owner: Owner, key: str, message: NewMessage, *, namespace: str = "") -> int:
        """Add one message; returns the seq of the last one. Raises Invalid."""
        fit = NewMessage(
            role=message.role,
            content=storable(message.content),
            id=None if message.id is None else storable(message.id),
        )
        place = place_of(owner, key, namespace)
        return await self.histories.append(place, [fit], shape=Shape(), user_id=owner.user_id)

    async def read(
        self, owner: Owner, key: str, *, namespace: str = "", after: int = 0, limit: int
    ) -> tuple[HistorySummary, Sequence[HistoryMessage]]:
        """Raises NotFound if nothing is kept under the key."""
        place = place_of(owner, key, namespace)
        summary = await self.histories.summary(place)
        if summary is None:
            raise _no_history(key)
        return summary, await self.histories.read(place, after=after, limit=limit)

    async def delete(self, owner: Owner, key: str, *, namespace: str = "") -> None:
        """Delete one conversation for good. Raises NotFound if nothing is kept under the key."""
        if not await self.histories.delete(place_of(owner, key, namespace)):
            raise _no_history(key)

    async def delete_all(self, owner: Owner) -> int:
        """Delete every conversation of a tenant, or of one user in it; returns how many."""
        deleted = 0
        while some := await self.histories.delete_all(owner, limit=PORTION):
            deleted += some
        return deleted


def place_of(owner: Owner, key: str, namespace: str) -> HistoryId:
    """Where the caller's conversation is kept: the one place that decides whose histories a caller reaches."""
    if keys.valid(key) is None:
        raise Invalid("a conversation key is 1 to 256 of letters, digits, ':', '_' and '-'", "key")
    labels = from_path(f"{namespace}.") if namespace else NAMESPACE
    check_namespace(labels)
    return HistoryId(namespace=(*user_label(owner.user_id), *labels), key=key, tenant=owner.tenant)


def _no_history(key: str) -> NotFound:
    return NotFound(f"no chat history {key!r}")
