"""Thread access: reading a thread postpones its expiry."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from clew.domain.durations import after
from clew.domain.errors import ClewError
from clew.domain.thread import Owner, Thread, marked
from clew.ports.clock import Clock
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

# An access is recorded unless another one was less than this ago: the stored time lags the last access by at most this.
GRAIN = timedelta(seconds=1)
# A client that stays connected, through a stream or a socket, is recorded this often.
LASTING_GRAIN = timedelta(minutes=1)
# A reader waits this long for its access to be recorded. Reads continue while the database is slow to write.
PATIENCE_SECONDS = 0.5
# Threads written in one batch, and threads whose last access is cached.
AT_ONCE = 500
REMEMBERED = 10_000


class ThreadAccess:
    """Reads threads for their owners and records the accesses. Those that wait at one moment are written together."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._noted: dict[str, datetime] = {}  # the oldest first
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()

    async def at(self, thread_id: str, owner: Owner) -> Thread:
        """Raises NotFound, for another owner's as for one that does not exist."""
        thread = await self._store.get(thread_id, owner)
        now = self._clock()
        if _is_recent(thread.last_accessed_at, now, GRAIN):
            return thread
        self._remember(thread_id, now)
        await self._note([thread_id])
        return _looked_at(thread, now)

    async def kept_as(self, thread_id: str, owner: Owner) -> str:
        """The stored id of a thread that a request body names by the id its caller chose."""
        kept = marked(thread_id, owner.tenant)
        return kept if await self._store.tenant_of(kept) == owner.tenant else thread_id

    async def keep(self, thread_ids: Iterable[str]) -> None:
        """A client with access to these threads stays connected. Written at most once a minute for each thread."""
        now = self._clock()
        due = [one for one in thread_ids if not _is_recent(self._noted.get(one), now, LASTING_GRAIN)]
        for one in due:
            self._remember(one, now)
        if due:
            await self._note(due)

    def _remember(self, thread_id: str, now: datetime) -> None:
        self._noted.pop(thread_id, None)
        self._noted[thread_id] = now
        if len(self._noted) > REMEMBERED:
            del self._noted[next(iter(self._noted))]

    async def _note(self, thread_ids: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        written = [self._waiting.setdefault(one, loop.create_future()) for one in thread_ids]
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        # Not cancelled with its caller: the batch holds other callers' accesses too.
        await asyncio.wait(written, timeout=PATIENCE_SECONDS)

    async def _write(self) -> None:
        """Write batch after batch until no access waits. While one is being written the next one fills."""
        try:
            while self._waiting:
                batch = {one: self._waiting.pop(one) for one in list(self._waiting)[:AT_ONCE]}
                await self._write_together(batch)
        finally:
            self._writing = None

    async def _write_together(self, batch: dict[str, "asyncio.Future[None]"]) -> None:
        written = await self._touch(list(batch))
        for one, future in batch.items():
            if written is None or one in written:
                future.set_result(None)
            else:
                # Another transaction holds it, or it was accessed a moment ago, or it is gone. The others do not wait.
                task = asyncio.create_task(self._write_alone(one, future))
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)

    async def _write_alone(self, thread_id: str, future: "asyncio.Future[None]") -> None:
        await self._touch([thread_id], waits=True)
        future.set_result(None)

    async def _touch(self, thread_ids: Sequence[str], *, waits: bool = False) -> set[str] | None:
        """Those that were written; None if the database refused."""
        try:
            return {*await self._store.touch(thread_ids, now=self._clock(), grain=GRAIN, waits=waits)}
        except ClewError as exc:
            # Reads continue when the disk is full.
            logger.warning("accesses were not recorded", extra={"count": len(thread_ids), "code": exc.code})
        return None


def _looked_at(thread: Thread, now: datetime) -> Thread:
    expires_at = None if thread.ttl is None else after(now, thread.ttl)
    return replace(thread, last_accessed_at=now, expires_at=expires_at)


def _is_recent(moment: datetime | None, now: datetime, grain: timedelta) -> bool:
    return moment is not None and now - moment < grain
