"""Chat histories: messages by conversation key, and the chunks that readers of the graph store see of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeAlias

from clew.domain.errors import Invalid
from clew.domain.thread import Owner

Role: TypeAlias = Literal["user", "assistant"]

NAMESPACE: Final = ("agent_chat_history",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryId:
    """Where a conversation is kept. The last label of its path is the conversation key."""

    namespace: tuple[str, ...]
    key: str
    tenant: str = Owner().tenant

    @property
    def path(self) -> tuple[str, ...]:
        return (*self.namespace, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How readers of the store see a history. Settled by its first message: chunks that moved would be of no use."""

    chunk_size: int = 200
    value_field: str = "content"
    meta_key: str = "__meta__"

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise Invalid("a chunk holds at least one message", "chunk_size")
        if self.value_field in ("", "seq", "role"):
            raise Invalid("the text of a message needs a field of its own", "value_field")
        if not self.meta_key or chunk_index(self.meta_key) is not None:
            raise Invalid("the metadata needs a key that is no chunk's", "meta_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to append. One whose `id` is stored already is not stored again."""

    role: Role
    content: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMessage:
    """A message as it is stored; `seq` counts from 1 without a gap, `origin` is the work that wrote it."""

    seq: int
    role: Role
    content: str
    id: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """What is known of a history without reading it."""

    key: str
    shape: Shape
    last_seq: int
    version: int
    created_at: datetime
    updated_at: datetime

    def metadata(self) -> dict[str, Any]:
        """The metadata item of the seed."""
        return {
            "conversation_key": self.key,
            "last_seq": self.last_seq,
            "chunk_size": self.shape.chunk_size,
            "latest_chunk_key": chunk_key(chunk_of(self.last_seq, self.shape.chunk_size)),
            "updated_at": stamp(self.updated_at),
            "version": self.version,
        }

    def chunk(self, index: int, messages: Sequence[HistoryMessage], updated_at: datetime) -> dict[str, Any]:
        """A chunk item of the seed."""
        start, end = chunk_range(index, self.shape.chunk_size, self.last_seq)
        return {
            "conversation_key": self.key,
            "chunk_key": chunk_key(index),
            "start_seq": start,
            "end_seq": end,
            "messages": [message_item(message, self.shape.value_field) for message in messages],
            "updated_at": stamp(updated_at),
        }


def message_item(message: HistoryMessage, value_field: str) -> dict[str, Any]:
    return {"seq": message.seq, "role": message.role, value_field: message.content}


def stamp(at: datetime) -> str:
    """`2026-02-26T20:30:00Z`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def chunk_of(seq: int, size: int) -> int:
    """The chunk a message lies in: with 200 a chunk, message 200 is the last of chunk 0 and 201 the first of chunk 1."""
    return max(seq - 1, 0) // size


def chunk_key(index: int) -> str:
    return f"chunk:{index:06d}"


def chunk_index(key: str) -> int | None:
    """The number in `chunk:000021`; None for any other text."""
    prefix, _, digits = key.partition(":")
    if prefix != "chunk" or not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        return None
    return int(digits) if chunk_key(int(digits)) == key else None


def chunk_range(index: int, size: int, last_seq: int) -> tuple[int, int]:
    """The first and last seq in a chunk of a history that ends at `last_seq`."""
    return index * size + 1, min((index + 1) * size, last_seq)


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
