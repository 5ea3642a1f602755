"""Database clock: the time by the database's clock, so that processes on several machines date events alike."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from clew.stores.codec import MICROSECOND, micros
from clew.stores.sql.work import Database, Statement, Work

# A measurement that took longer says little: the clock goes on as before.
SLOWEST = timedelta(seconds=1)


class DatabaseClock:
    """Adds to this machine's clock what the database's was ahead when it was last measured."""

    def __init__(self, db: Database, local: Callable[[], datetime]) -> None:
        self._db = db
        self._local = local
        self._ahead: timedelta | None = None

    def __call__(self) -> datetime:
        return self._local() + (self._ahead or timedelta(0))

    async def measure(self) -> bool:
        """Raises Unavailable if the database does not answer. Returns False: a chore with nothing left to do."""
        before, begun = self._local(), time.monotonic()
        at = await self._db.glance(_now)
        took = timedelta(seconds=time.monotonic() - begun)
        if self._ahead is None or took <= SLOWEST:
            self._ahead = (at - micros(before)) * MICROSECOND - took / 2
        return False


def _now() -> Work[int]:
    ((at,),) = yield Statement("SELECT clew_now()")
    return int(at)
