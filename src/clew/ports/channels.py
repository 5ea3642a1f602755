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
    """Chats of channels. One of all processes at a time sees to one, under a lease by the database's time.

    The methods that take a held conversation raise LostLease when it is no longer its holder's.
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
        """Hold up to `limit` in which something came, or whose thread went on and has come to rest.

        Those that are seen to here, `alive`, are left alone, however old their lease is: nobody died.
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
        """Remember the cursor and the attempts, and hold on."""
        ...

    async def heartbeat(self, held: Conversation, *, lease: timedelta) -> int:
        """Hold on; returns the number of what came last."""
        ...

    async def release(self, held: Conversation, *, seen_seq: int, is_idle: bool) -> None:
        """Let go until something comes, or its thread has come to rest after `seen_seq`.

        One that `is_idle` has a thread that does not run. Its next look is due when that was answered, taken up or
        ended (Store.commit), so that waiting costs nothing however many wait.
        """
        ...

    async def snooze(self, held: Conversation, *, wait: timedelta) -> None:
        """Let go, and look again after so long."""
        ...

    async def move(self, held: Conversation, thread_id: str) -> None:
        """Let go, and lead it in that thread from now on; what waits goes along."""
        ...


Became: TypeAlias = Literal["admitted", "duplicate", "ignored"]


class WebhookReceiver(Protocol):
    """Where the webhooks of one bot knock. It asks for a proof of its own: raises Unauthenticated, Invalid."""

    @property
    def thanks(self) -> str:
        """What the provider wants to hear when all is well."""
        ...

    def greet(self, delivery: Delivery) -> str:
        """What to answer a provider that makes sure of us."""
        ...

    async def receive(self, delivery: Delivery) -> Became:
        """What became of it, durably: `admitted`, `duplicate`, or `ignored`. Raises Duplicate."""
        ...
