"""Inbox: deliveries and requests that are accepted once."""

from collections.abc import (
    Sequence,
)
from datetime import datetime
from typing import Protocol

from clew.domain.records import (
    Incoming,
    RunHook,
)
from clew.domain.thread import Json
from clew.ports.guards import QueueRoom


class Inbox(Protocol):
    """Deliveries and requests, each accepted once; also the queue of a busy thread."""

    async def admit(
        self,
        incoming: Incoming,
        *,
        now: datetime,
        is_opened: bool = False,
        hook: RunHook | None = None,
        room: QueueRoom | None = None,
    ) -> bool:
        """Queue it, and wake its conversation if it is of one; False if it is here already.

        A conversation that is new is led in the thread named here, and so is one whose thread was deleted since.
        Raises Duplicate if it came before with another content, NotFound if it is of a thread that was deleted;
        with `is_opened`, also if that thread is not there yet, whatever conversation it is of.
        The `hook` of a queued run is written with it, and AtCapacity is raised if there is no `room` for it.
        """
        ...

    async def discard(self, incoming: Incoming, *, now: datetime) -> None:
        """Take it off the queue without a commit, and forget its payload."""
        ...

    async def withdraw(self, incoming: Incoming, *, now: datetime) -> bool:
        """Take it off the queue and keep its payload for a while; False if it is not queued any more."""
        ...

    async def queued(self, *, limit: int = 100) -> Sequence[Incoming]:
        """What waits, oldest first. It leaves the queue with the commit that `admits` it."""
        ...

    async def waiting(self, source: str, thread_id: str) -> Sequence[Incoming]:
        """What waits for one thread, in the order it came, and what was withdrawn."""
        ...

    async def is_awaited(self, source: str, conversation: str) -> bool:
        """Whether anything waits in this conversation."""
        ...

    async def answered(self, tenant: str, key: str, fingerprint: str) -> Json | None:
        """The answer given to this request before, if any. Raises Duplicate if the key asked for something else."""
        ...

    async def forget(self, *, older_than: datetime, limit: int = 1000) -> int:
        """Drop old idempotency keys and admissions that are done; returns how many."""
        ...
