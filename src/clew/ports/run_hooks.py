"""Run hooks: what happens when runs end, webhooks included."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from clew.domain.records import FailedWebhook, RunHook
from clew.domain.thread import Owner

# So many hooks of one tenant are worked on at once in a process: receivers that hang leave room for other tenants.
PER_TENANT = 32


class RunHookStore(Protocol):
    """Leased jobs: what happens when runs end.

    A hook is written in the transaction that starts its run (Store.commit) or queues it (Inbox.admit).
    """

    async def are_due(self) -> bool:
        """Whether `claim` would find a hook."""
        ...

    async def claim(
        self, *, lease: timedelta, limit: int, alive: Collection[RunHook] = ()
    ) -> Sequence[RunHook]:
        """Lease hooks whose wait is over and whose thread does not run. Those that are `alive` are left out.

        Tenants take turns. At most PER_TENANT hooks of one tenant are leased with those of it that are `alive`.
        """
        ...

    async def heartbeat(self, hook: RunHook, *, lease: timedelta) -> None:
        """Prolong the lease."""
        ...

    async def snooze(self, hook: RunHook, *, wait: timedelta) -> None:
        """Save the hook as it is now and release it; it is due again after `wait`."""
        ...

    async def discard(self, hook: RunHook) -> None:
        """The hook is done."""
        ...

    async def give_up(self, hook: RunHook, *, reason: str) -> None:
        """Keep a hook whose webhook is called no more, for people to see. No claim finds it."""
        ...


class FailedWebhooks(Protocol):
    """Webhooks that were given up. Of an owner's threads, or of all for None."""

    async def failed(self, owner: Owner | None = None, *, limit: int = 100) -> Sequence[FailedWebhook]:
        """The most recent first."""
        ...

    async def call_again(self, run_id: str, owner: Owner | None = None) -> None:
        """Make it due now, with all its attempts. Raises NotFound."""
        ...

    async def dismiss(self, run_id: str, owner: Owner | None = None) -> None:
        """Raises NotFound."""
        ...


class Webhooks(Protocol):
    """The URLs that clients give to be called when a run ends."""

    async def rules(self) -> Callable[[str], None]:
        """What is allowed now: a function that raises Invalid for a URL that may not be called."""
        ...

    async def post(self, url: str, body: bytes, *, message_id: str) -> None:
        """Raises Transient or Permanent unless the receiver accepted it. A repetition has the same `message_id`."""
        ...
