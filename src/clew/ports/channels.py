"""Channels: conversations and the webhook receivers of chat providers."""

from collections.abc import (
    Collection,
    Sequence,
)
from datetime import timedelta
from typing import Literal, Protocol, TypeAlias

from clew.domain.records import (
    Conversation,
    Delivery,
    Incoming,
)
from clew.domain.thread import Json


class Conversations(Protocol):
    """Chats of channels, and the queues of threads, as leased jobs: one worker of all processes has one at a time.

    The methods that take a held conversation raise LostLease when another worker has it.
    """

    async def are_due(self, sources: Collection[str]) -> bool:
        """Whether `claim` would find anything. A read, so that waiting costs nothing."""
        ...

    async def claim(
        self,
        holder: str,
        sources: Collection[str],
        *,
        lease: timedelta,
        limit: int,
        alive: Collection[Conversation] = (),
    ) -> Sequence[Conversation]:
        """Lease up to `limit` in which a message came, or whose thread went on and has come to rest.

        Those this process works on, `alive`, are left out, however old their lease is.
        """
        ...

    async def are_quiet(self, sources: Collection[str]) -> bool:
        """Whether nothing waits, runs or is being said in any of them."""
        ...

    async def position(self, source: str) -> Json:
        """How far the updates of a bot that is polled were admitted; None if it never was."""
        ...

    async def set_position(self, source: str, position: Json) -> None: ...

    async def first(self, held: Conversation, *, after: int = 0) -> Incoming | None:
        """What has waited longest in it, of those with a greater number."""
        ...

    async def save_cursor(self, held: Conversation, cursor: Json, *, lease: timedelta) -> None:
        """Save the cursor and the attempts, and prolong the lease."""
        ...

    async def heartbeat(self, held: Conversation, *, lease: timedelta) -> int:
        """Prolong the lease; returns the number of the newest message."""
        ...

    async def release(self, held: Conversation, *, seen_seq: int, is_idle: bool) -> None:
        """Give the lease back until a message comes, or its thread has come to rest after `seen_seq`.

        One that `is_idle` has a thread that does not run. It is due again when that thread was answered, retried or
        ended (Store.commit), so that polling costs nothing however many wait.
        """
        ...

    async def snooze(self, held: Conversation, *, wait: timedelta) -> None:
        """Give the lease back; it is due again after `wait`, and counts one more attempt."""
        ...

    async def move(self, held: Conversation, thread_id: str) -> None:
        """Give the lease back, and lead it in that thread from now on, with its queued messages."""
        ...


Became: TypeAlias = Literal["admitted", "duplicate", "ignored"]


class WebhookReceiver(Protocol):
    """Receives the webhooks of one bot and checks their signature: raises Unauthenticated, Invalid."""

    @property
    def thanks(self) -> str:
        """The response body that the provider expects on success."""
        ...

    def greet(self, delivery: Delivery) -> str:
        """The response to a provider that verifies the webhook URL."""
        ...

    async def receive(self, delivery: Delivery) -> Became:
        """What became of it, durably: `admitted`, `duplicate`, or `ignored`. Raises Duplicate."""
        ...
