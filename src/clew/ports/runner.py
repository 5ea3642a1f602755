"""Runner: what the engine and composition need of the part that executes threads."""

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from clew.domain.lifecycle import Change
from clew.ports.guards import Claim


class Runner(Protocol):
    """Executes threads whose status is `running`. A runner finds them in the store by itself: a lost call delays a
    thread, and loses none."""

    @property
    def name(self) -> str:
        """The owner of its leases."""
        ...

    def wake(self) -> None:
        """A thread can be claimed: by this runner, or by one in another process."""
        ...

    def look(self) -> None:
        """A thread may be claimable: a runner in another process called."""
        ...

    def place(self, change: Change) -> AbstractContextManager[Claim | None]:
        """A slot for a thread that is about to begin or go on, which runs at the end of the block.

        None if this runner has no slot for it: then the thread is committed without a claim, and claimed later. A block
        that raises leaves the slot; if the change may have been saved all the same, the thread is released.
        """
        ...

    def halt(self, thread_id: str) -> None:
        """Cancel the run of a thread that must not go on, if it is here."""
        ...

    def check(self, thread_id: str) -> None:
        """Another process wrote to the log of this thread: if it runs here, find out at once whether it was stopped."""
        ...

    def running(self, stopping: asyncio.Event) -> AbstractAsyncContextManager[None]:
        """Execute threads inside the block, until `stopping` is set; then drain."""
        ...
