"""Thread access: reading a thread postpones its expiry. Accesses are collected and written in the background."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from clew.domain.errors import StorageFull, Unavailable
from clew.domain.retention import after
from clew.domain.thread import Owner, Thread, marked
from clew.ports.clock import Clock
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

# An access is recorded unless another one was less than this ago.
GRAIN = timedelta(seconds=1)
# Accesses are collected for this long. With the grain: the stored time is less than 2 seconds older than the last access.
COLLECT_SECONDS = 0.75
# A client that stays connected, through a stream or a socket, is recorded this often.
LASTING_GRAIN = timedelta(minutes=1)
# An access that cannot be written, because its row is locked or the database is away, is tried again for this long.
PATIENCE = timedelta(seconds=10)
# Threads written in one transaction, and threads whose last access is cached.
AT_ONCE = 2000
REMEMBERED = 10_000


class ThreadAccess:
    """Reads threads for their owners and records the accesses. No reader waits for a write."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._noted: dict[str, datetime] = {}  # of clients that stay connected, the oldest first
        self._waiting: dict[str, datetime] = {}  # accesses to be written, and since when
        self._writing: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._closing = asyncio.Event()

    async def at(self, thread_id: str, owner: Owner) -> Thread:
        """Raises NotFound, for another owner's as for one that does not exist."""
        thread, now = await self.before(thread_id, owner)
        if now is None:
            return thread
        expires_at = None if thread.ttl is None else after(now, thread.ttl)
        return replace(thread, last_accessed_at=now, expires_at=expires_at)

    async def before(self, thread_id: str, owner: Owner) -> tuple[Thread, datetime | None]:
        """The thread as it was before this access; and when that was, if it is recorded."""
        thread = await self._store.get(thread_id, owner)
        now = self._clock()
        if thread.last_accessed_at is not None and now - thread.last_accessed_at < GRAIN:
            return thread, None
        self._note(thread_id, now)
        return thread, now

    async def kept_as(self, thread_id: str, owner: Owner) -> str:
        """The stored id of a thread that a request body names by the id its caller chose."""
        kept = marked(thread_id, owner.tenant)
        return kept if await self._store.tenant_of(kept) == owner.tenant else thread_id

    def keep(self, thread_ids: Iterable[str]) -> None:
        """A client with access to these threads stays connected. Written at most once a minute for each thread."""
        now = self._clock()
        for one in thread_ids:
            if (noted := self._noted.get(one)) is None or now - noted >= LASTING_GRAIN:
                self._noted.pop(one, None)
                self._noted[one] = now
                self._note(one, now)
        while len(self._noted) > REMEMBERED:
            del self._noted[next(iter(self._noted))]

    async def flush(self) -> None:
        """Write the accesses that wait, and wait for those that are being written."""
        async with self._one_at_a_time:
            await self._write_all()

    async def close(self) -> None:
        self._closing.set()
        await self.flush()
        if self._writing is not None:
            await self._writing

    def _note(self, thread_id: str, now: datetime) -> None:
        self._waiting.setdefault(thread_id, now)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_later())

    async def _write_later(self) -> None:
        try:
            while self._waiting and not self._closing.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), COLLECT_SECONDS)
                await self.flush()
        finally:
            self._writing = None

    async def _write_all(self) -> None:
        batch, self._waiting = self._waiting, {}
        ids = [*batch]
        for start in range(0, len(ids), AT_ONCE):
            for one in await self._touch(ids[start : start + AT_ONCE]):
                del batch[one]
        # The rest is locked by another transaction, or gone, or was accessed through another process.
        now = self._clock()
        self._waiting = {one: since for one, since in batch.items() if now - since < PATIENCE} | self._waiting

    async def _touch(self, thread_ids: Sequence[str]) -> Collection[str]:
        """Those that need no other try."""
        try:
            return await self._store.touch(thread_ids, now=self._clock(), grain=GRAIN)
        except (Unavailable, StorageFull) as exc:
            logger.warning("accesses were not recorded", extra={"count": len(thread_ids), "code": exc.code})
            return ()
        except Exception as exc:  # noqa: BLE001 - whatever a damaged row makes the database say
            # A row that cannot be written does not keep the others.
            if len(thread_ids) == 1:
                logger.warning(
                    "an access cannot be recorded",
                    extra={"thread_id": thread_ids[0], "error_class": type(exc).__name__},
                )
                return thread_ids
            half = len(thread_ids) // 2
            return [*await self._touch(thread_ids[:half]), *await self._touch(thread_ids[half:])]
