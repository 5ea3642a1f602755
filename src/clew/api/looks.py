"""Looking at a thread keeps it from expiring."""

import logging
from datetime import timedelta

from clew.domain.errors import Conflict, Unavailable
from clew.domain.thread import Owner, Thread
from clew.ports import Clock, Store

logger = logging.getLogger(__name__)

# A thread that is polled is told so once in a while, not with every look.
GRAIN = timedelta(minutes=1)


class Looks:
    """Threads as their owners look at them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def at(self, thread_id: str, owner: Owner) -> Thread:
        """Raises NotFound, for another owner's as for one that does not exist."""
        thread = await self._store.get(thread_id, owner)
        now = self._clock()
        if thread.last_accessed_at is None or now - thread.last_accessed_at >= GRAIN:
            await self._note(thread_id)
        return thread

    async def _note(self, thread_id: str) -> None:
        try:
            await self._store.touch(thread_id, now=self._clock())
        except (Unavailable, Conflict) as exc:
            # Reading goes on when the disk is full.
            logger.warning("an access was not recorded", extra={"thread_id": thread_id, "code": exc.code})
