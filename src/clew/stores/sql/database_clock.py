"""Database clock: the time by the database's clock, so that processes on several machines date events alike."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from clew.stores.codec import MICROSECOND, micros
from clew.stores.sql.work import Database, Statement, Work


class DatabaseClock:
    """Adds to this machine's clock what the database's is ahead, as far as measurements show it.

    A measurement says when the database read its clock only to within the time it took. The clock moves no further than
    it must to agree: a slow answer does not set it back, so that what follows is dated later.
    """

    def __init__(self, db: Database, local: Callable[[], datetime]) -> None:
        self._db = db
        self._local = local
        self._ahead = timedelta(0)

    def __call__(self) -> datetime:
        return self._local() + self._ahead

    async def measure(self) -> bool:
        """Raises Unavailable if the database does not answer. Returns False: a chore with nothing left to do."""
        before, begun = self._local(), time.monotonic()
        at = await self._db.glance(_now)
        took = timedelta(seconds=time.monotonic() - begun)
        most = (at - micros(before)) * MICROSECOND
        self._ahead = max(most - took, min(self._ahead, most))
        return False


def _now() -> Work[int]:
    ((at,),) = yield Statement("SELECT clew_now()")
    return int(at)
