"""Crons: scheduled runs."""

from collections.abc import (
    Callable,
    Sequence,
)
from datetime import datetime, timedelta
from typing import Protocol

from clew.domain.crons import CronJob, CronSearch
from clew.domain.thread import Owner


class Crons(Protocol):
    """Scheduled runs, each a leased job when it is due. Another owner's cron does not exist: NotFound."""

    async def add(self, job: CronJob, *, most: int) -> None:
        """Raises InvalidState where its owner has so many, NotFound if its thread is gone."""
        ...

    async def get(self, cron_id: str, owner: Owner) -> CronJob: ...

    async def find(self, owner: Owner, wanted: CronSearch) -> Sequence[CronJob]:
        """All that the search wants, in no order."""
        ...

    async def revise(self, cron_id: str, owner: Owner, change: Callable[[CronJob], CronJob]) -> CronJob:
        """Of two changes none is lost. Whose it is, and in which thread, does not change."""
        ...

    async def delete(self, cron_id: str, owner: Owner) -> None: ...

    async def are_due(self, *, now: datetime) -> bool:
        """Whether `claim` would find anything. A read, so that waiting costs nothing."""
        ...

    async def claim(self, *, now: datetime, lease: timedelta, limit: int) -> Sequence[CronJob]:
        """Lease those that are due, or whose next time was counted by a clock far ahead."""
        ...

    async def heartbeat(self, claimed: CronJob, *, lease: timedelta) -> None:
        """Prolong the lease. Raises LostLease if the cron was released, changed or deleted."""
        ...

    async def snooze(self, claimed: CronJob, *, wait: timedelta) -> None:
        """Keep it from being claimed for so long. Raises LostLease as `heartbeat` does."""
        ...

    async def release(self, claimed: CronJob, counted: CronJob) -> bool:
        """Save its next time and give the lease back; False if it was changed or deleted meanwhile: that stands."""
        ...
