"""Leased jobs: rows that one worker of all processes works on at a time, under a lease by the database's time."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

Job = TypeVar("Job")


class LeasedJobs(Protocol[Job]):
    """What a LeasedLoop needs of a kind of job. A worker ends a job with `release` or `discard` of its own port."""

    async def are_due(self) -> bool:
        """Whether `claim` would find a job. A read, so that polling costs no write."""
        ...

    async def claim(self, *, lease: timedelta, limit: int, alive: Collection[Job]) -> Sequence[Job]:
        """Lease up to `limit` due jobs. Those this process works on, `alive`, are not returned again."""
        ...

    async def heartbeat(self, job: Job, *, lease: timedelta) -> object:
        """Prolong the lease. Raises LostLease if another worker has it."""
        ...

    async def snooze(self, job: Job, *, wait: timedelta) -> None:
        """Give the lease back; the job is due again after `wait`."""
        ...
