"""Message merging: a stored tail and a thread's own messages, each message once."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


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
