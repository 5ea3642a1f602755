"""Crons: scheduled runs."""

from collections.abc import (
    Callable,
    Sequence,
)
from datetime import datetime, timedelta
from typing import Protocol

from clew.domain.cron_jobs import CronJob, CronSearch
from clew.domain.thread import Owner


class Crons(Protocol):
    """Runs that are ordered again and again. Another owner's does not exist: NotFound."""

    async def add(self, job: CronJob, *, most: int) -> None:
        """Raises NotAllowed where its owner has so many, NotFound if its thread is gone."""
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
        """Those that are due, or that a clock far ahead has counted. Nobody else gets them until the lease has run out."""
        ...

    async def advance(self, claimed: CronJob, counted: CronJob) -> bool:
        """Let go of it with its next time; False if it was changed or deleted meanwhile, and that counts."""
        ...
