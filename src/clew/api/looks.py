"""Looking at a thread keeps it from expiring."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from clew.domain.errors import Conflict, Unavailable
from clew.domain.thread import Owner, Thread
from clew.ports import Clock, Store

logger = logging.getLogger(__name__)

# A thread that is polled is told so once in a while, not with every look.
GRAIN = timedelta(minutes=1)
# Threads that are told so at once, by somebody who watches many; and of how many it is remembered.
AT_ONCE = 50
REMEMBERED = 10_000


class Looks:
    """Threads as their owners look at them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._noted: dict[str, datetime] = {}  # the oldest first

    async def at(self, thread_id: str, owner: Owner) -> Thread:
        """Raises NotFound, for another owner's as for one that does not exist."""
        thread = await self._store.get(thread_id, owner)
        now = self._clock()
        if not _is_recent(thread.last_accessed_at, now):
            self._remember(thread_id, now)
            await self._note(thread_id, now)
        return thread

    async def keep(self, thread_ids: Iterable[str]) -> None:
        """Somebody who may see them goes on looking at these. Written at most once a minute and thread."""
        now = self._clock()
        due = [one for one in thread_ids if not _is_recent(self._noted.get(one), now)]
        for one in due:
            self._remember(one, now)
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._note(one, now) for one in due[start : start + AT_ONCE]))

    def _remember(self, thread_id: str, now: datetime) -> None:
        self._noted.pop(thread_id, None)
        self._noted[thread_id] = now
        if len(self._noted) > REMEMBERED:
            del self._noted[next(iter(self._noted))]

    async def _note(self, thread_id: str, now: datetime) -> None:
        try:
            await self._store.touch(thread_id, now=now)
        except (Unavailable, Conflict) as exc:
            # Reading goes on when the disk is full.
            logger.warning("an access was not recorded", extra={"thread_id": thread_id, "code": exc.code})


def _is_recent(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and now - moment < GRAIN
