"""Job queue: what a runner needs of the table of jobs beside the engine that hands them out."""

from collections.abc import Collection
from typing import Protocol


class JobQueue(Protocol):
    """A thread that can be claimed is one job, which the store enqueues in the commit that made it so.

    Jobs are hints: the claim of the thread decides who runs it. A job too many finds nothing to do, and one that was
    lost is enqueued again.
    """

    async def enqueue_lost(self) -> int:
        """Enqueue threads that can be claimed and have no job; returns how many there were. Raises Unavailable."""
        ...

    async def unleased(self) -> Collection[int]:
        """The jobs that a worker has taken, and whose thread no worker holds. Raises Unavailable.

        For a moment that is so before each run and after it.
        """
        ...

    async def put_back(self, jobs: Collection[int]) -> int:
        """Replace these jobs, as far as they are still unleased: their threads are enqueued anew where they can be claimed.

        Returns how many there were. Raises Unavailable."""
        ...
