"""Chat history: chunk arithmetic, the items a reader of the store sees, the tail window, and which messages are new."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from clew.domain.errors import Invalid
from clew.domain.thread import Owner

Role: TypeAlias = Literal["user", "assistant"]
T = TypeVar("T")

NAMESPACE: Final = ("agent_chat_history",)
# Waits before the second, third and fourth try of a write that another writer overtook, in seconds; jitter comes on top.
RETRY_DELAYS: Final = (0.025, 0.05, 0.1)


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


def check_namespace(labels: Sequence[str]) -> None:
    """Raises Invalid for labels that could be taken for others: a path is labels with periods between them."""
    if not labels or labels[0] == "langgraph":
        raise Invalid("a namespace has at least one label, and the first is not 'langgraph'", "namespace")
    if any(not label or "." in label or storable(label) != label for label in labels):
        raise Invalid("a label of a namespace is a text without periods", "namespace")


def storable(text: str) -> str:
    """The text as every database can hold it: without NUL and without halves of characters."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", "\ufffd")


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


def tail_chunks(last_seq: int, limit: int, size: int) -> range:
    """The chunks that hold the newest `limit` messages: at most ceil(limit / size) + 1 of them, in order."""
    if last_seq < 1 or limit < 1:
        return range(0)
    return range(chunk_of(max(last_seq - limit + 1, 1), size), chunk_of(last_seq, size) + 1)


def retry_delay(attempt: int, jitter: float) -> float | None:
    """How long to wait after the attempt (1, 2, ...) failed; None when that was the last one.

    `jitter` is between 0 and 1 and adds up to a half.
    """
    if attempt > len(RETRY_DELAYS):
        return None
    return RETRY_DELAYS[attempt - 1] * (1 + jitter / 2)


@dataclass(frozen=True, slots=True)
class Merged(Generic[T]):
    """A stored tail and a thread's own messages, each message once; and those of the thread that are not stored yet."""

    messages: Sequence[T]
    new: Sequence[T]


def merge(
    tail: Sequence[T],
    current: Sequence[T],
    *,
    identity: Callable[[T], Hashable | None],
    is_turn: Callable[[T], bool],
) -> Merged[T]:
    """Lay a thread's messages over the stored tail.

    Messages are the same when their identity is; texts are never compared, so that a second "ok" stays a second
    "ok". Everything up to the last message both sides know was seen before; what comes after it is new.
    Of the seen ones, the thread's own version counts, with the tool calls between them; one without an identity
    is in the tail already if it is a turn. Messages of other threads keep their place. A thread without anything new
    asks again where it stands, and does not know what was said later.
    """
    places = {identity(message): n for n, message in enumerate(tail) if identity(message) is not None}
    shared = [n for n, message in enumerate(current) if identity(message) in places]
    if not shared:
        return Merged([*tail, *current], current)
    seen, new = current[: shared[-1] + 1], current[shared[-1] + 1 :]
    own = {identity(message) for message in seen} - {None}
    merged: list[T] = []
    laid = 0  # how much of the tail is laid out
    for message in seen:
        place = places.get(identity(message))
        if place is not None:
            merged.extend(other for other in tail[laid:place] if identity(other) not in own)
            laid = max(laid, place + 1)
        if identity(message) is not None or not is_turn(message):
            merged.append(message)
    if new:
        merged.extend(other for other in tail[laid:] if identity(other) not in own)
    return Merged([*merged, *new], new)


def since_reset(messages: Sequence[T], is_reset: Callable[[T], bool]) -> Sequence[T]:
    """The messages from the latest reset on, the reset included."""
    for n in range(len(messages) - 1, -1, -1):
        if is_reset(messages[n]):
            return messages[n:]
    return messages


def newest(messages: Sequence[T], limit: int) -> Sequence[T]:
    """The newest `limit` messages."""
    return messages[max(len(messages) - limit, 0) :]
