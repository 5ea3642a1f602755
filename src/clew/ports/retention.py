"""Retention: trash, cleanup, cluster-wide jobs and disk space."""

from collections.abc import (
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from clew.domain.retention import Binned, Candidate, CleanupJob, Gone, Orphan, Selection, Ticks, Usage
from clew.domain.thread import Owner


class Trash(Protocol):
    """Soft-deleted threads: other ports do not find them, and for a while they can be restored."""

    async def put(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> None:
        """The worker that runs the thread can write no more. Raises NotFound."""
        ...

    async def restore(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> None:
        """Restore the thread; that counts as an access. Raises NotFound, also once its grace period is over."""
        ...

    async def find(self, owner: Owner | None = None, *, limit: int = 100) -> Sequence[Binned]:
        """Those that were deleted last come first."""
        ...


class Cleanups(Protocol):
    """Deletes threads in bulk. One cleanup at a time in the whole cluster; one that was cut short can be continued.

    A `runner` is the worker that has the lease. Methods that delete raise LostLease once it is another.
    """

    async def begin(self, job: CleanupJob, *, runner: str, lease: timedelta) -> bool:
        """Write the job and lease it; False if another one is under way."""
        ...

    async def begin_turn(
        self, job: CleanupJob, is_due: Callable[[datetime], bool], *, runner: str, lease: timedelta
    ) -> bool:
        """The same for a scheduled cleanup, if `is_due` says so of the time of the last one.

        Of many callers one gets the turn. While another cleanup is under way none does, and it is still due after.
        Counting begins with the first call.
        """
        ...

    async def are_due(self) -> bool:
        """Whether there is a job that is not finished. A read, so that polling costs no write."""
        ...

    async def claim(self, *, runner: str, lease: timedelta) -> CleanupJob | None:
        """Lease the oldest job that is not finished; None while another runner has a lease."""
        ...

    async def heartbeat(self, *, runner: str, lease: timedelta) -> None:
        """Prolong the lease. Raises LostLease."""
        ...

    async def last(self) -> CleanupJob | None:
        """The one that was begun last."""
        ...

    async def due(
        self, wanted: Selection, *, after: tuple[int, str] | None, limit: int
    ) -> Sequence[Candidate]:
        """Threads that are due now, the oldest first, from behind `after`."""
        ...

    async def count(self, wanted: Selection) -> tuple[int, int]:
        """How many threads of the selection's owner are due, and how many are not."""
        ...

    async def delete(
        self, job: CleanupJob, some: Sequence[Candidate], *, runner: str, lease: timedelta, now: datetime
    ) -> Sequence[Gone]:
        """Delete those that are still due, all in one transaction with the job's progress. One that another
        transaction holds stays, for a later cleanup.

        Rows of very long logs are left to `Store.purge`.
        """
        ...

    async def skip(self, job: CleanupJob, one: Candidate, *, runner: str, lease: timedelta) -> None:
        """Count one that cannot be deleted, and go on behind it."""
        ...

    async def orphans(self, *, after: str) -> tuple[Sequence[Orphan], str | None]:
        """Checkpoints whose thread does not exist, of some threads after this id; and where to go on, if anywhere."""
        ...

    async def delete_orphans(
        self, job: CleanupJob, some: Sequence[Orphan], *, runner: str, lease: timedelta
    ) -> Sequence[Gone]:
        """Delete those that were not written to since they were read."""
        ...

    async def forget(self, owner: Owner, *, limit: int) -> int:
        """Delete up to `limit` chat histories and as many store items of a tenant, or of one user in it; how many."""
        ...

    async def forget_usage(self, owner: Owner) -> None:
        """Delete how many tokens a tenant, or one user in it, has used."""
        ...

    async def release(self, job: CleanupJob, *, runner: str, finished_at: datetime | None) -> CleanupJob:
        """Give the lease back; a job without `finished_at` is claimed again. Returns the job as it is now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedThread:
    id: str
    tenant: str
    purged_at: datetime


class Tombstones(Protocol):
    """Ids of deleted threads in one database."""

    async def purged(self, *, after: tuple[datetime, str], limit: int) -> Sequence[DeletedThread]:
        """Threads whose rows were removed, in the order of time and id, those after this time and id."""
        ...

    async def forget_threads(self, threads: Sequence[DeletedThread]) -> None:
        """Delete the chat histories that these threads have here, and refuse new ones."""
        ...

    async def forget_old(self, *, older: timedelta, limit: int) -> int:
        """Accept these ids again: up to `limit` that were purged longer ago than this; returns how many."""
        ...


class ClusterState(Protocol):
    """What happens once in the whole cluster."""

    async def tick(self, *, now: datetime) -> Ticks:
        """Compare the clock with the last tick of all processes, and save it."""
        ...

    async def use_up(self, signature: str, *, now: datetime, believed: timedelta) -> bool:
        """False if this signature was already used within its validity window."""
        ...


class Space(Protocol):
    """Disk space of the database."""

    async def by_status(self, owner: Owner | None = None) -> Mapping[str, int]:
        """How many threads of the owner have each status; a status without threads is left out."""
        ...

    async def usage(self, wanted: Selection) -> Usage:
        """What the threads of the selection's owner amount to, and how many of them are due by it."""
        ...

    async def sizes(self) -> Mapping[str, int]:
        """Bytes by table, indexes included, as far as the database reports them."""
        ...

    async def give_back(self, *, seconds: float) -> int:
        """Return unused disk space to the system, for about so long; how many bytes it was."""
        ...
