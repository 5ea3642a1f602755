"""Thread memory in a second database: chat histories of deleted threads are deleted there too."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from clew.domain.retention import REMEMBERED
from clew.engine.sweeper import Chore
from clew.ports.retention import Tombstones

SECONDS = 2.0
AT_ONCE = 500
# A deletion may commit after a later one: the last ones are looked at again.
OVERLAP = timedelta(minutes=1)
_BEGINNING = (datetime.fromtimestamp(0, UTC), "")


@dataclass(slots=True, kw_only=True)
class ThreadMemory:
    """Follows the tombstones of one database and forgets those threads in another.

    Its position is not stored: after a start all tombstones are looked at again.
    """

    tombstones: Tombstones
    memory: Tombstones
    _after: tuple[datetime, str] = field(default=_BEGINNING)

    async def forget_deleted(self) -> bool:
        """Whether there may be more."""
        found = await self.tombstones.purged(after=self._after, limit=AT_ONCE)
        if found:
            await self.memory.forget_threads(found)
            self._after = (found[-1].purged_at, found[-1].id)
        if len(found) == AT_ONCE:
            return True
        self._after = max(_BEGINNING, (self._after[0] - OVERLAP, "")) if found else self._after
        return False

    async def forget_all(self) -> None:
        while await self.forget_deleted():
            pass

    async def forget_old(self) -> bool:
        return await self.memory.forget_old(older=REMEMBERED, limit=AT_ONCE) == AT_ONCE

    def chores(self) -> list[Chore]:
        return [
            Chore(name="thread_memory", seconds=SECONDS, do=self.forget_deleted),
            Chore(name="forget_thread_memory", seconds=3600, do=self.forget_old),
        ]
