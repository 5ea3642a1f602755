"""Notifier between processes on one SQLite file: polls often whether another connection wrote, which costs little."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path

from clew.domain.errors import ClewError
from clew.ports.notifier import Message
from clew.stores.codec import MICROSECOND
from clew.stores.datagrams import Datagrams
from clew.stores.sql.thread_writes import ACCESS_GRAIN
from clew.stores.sql.work import Statement, Work
from clew.stores.sqlite import SQLiteDatabase

logger = logging.getLogger(__name__)

# A poll takes a few microseconds.
LOOK_SECONDS = 0.05
# A commit is stamped before it is written, and may wait for its turn in between.
LATE = timedelta(seconds=5)
# More threads than this in one poll are left to readers that poll the store themselves.
MOST = 500

Heard = Callable[[str, int | None], None]


class SQLiteNotifier:
    """Detects the commits of other processes."""

    def __init__(self, db: SQLiteDatabase, path: Path | None = None) -> None:
        """`path` is that of the file. Without it, messages are not sent."""
        self._db = db
        self._datagrams = None if path is None else Datagrams(path)
        self._version = 0
        self._foreign = 0
        self._ends: dict[str, int] = {}  # the last seq of each thread that was lately active

    def ring(self, thread_id: str, after: int | None, end: int | None = None) -> None:  # noqa: ARG002 - the port's
        """The others see the commit itself. Here it is known already."""
        if end is not None:
            self._ends[thread_id] = end

    def call(self) -> None:
        """The others see the commit itself."""

    def send(self, message: Message) -> None:
        if self._datagrams is not None:
            self._datagrams.send(message)

    @asynccontextmanager
    async def listening(
        self,
        heard: Heard,
        called: Callable[[], None],
        received: Callable[[Message], None] = lambda _: None,
    ) -> AsyncGenerator[None]:
        looked_at = time.monotonic()
        self._version = await self._db.glance(_version)
        self._foreign = await self._db.write(_version)
        self._ends = dict(await self._db.read(_active))
        looking = asyncio.create_task(self._look_forever(heard, called, looked_at))
        messages = nullcontext() if self._datagrams is None else self._datagrams.receiving(received)
        try:
            with messages:
                yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look_forever(self, heard: Heard, called: Callable[[], None], looked_at: float) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            try:
                version = await self._db.glance(_version)
                if version == self._version:
                    looked_at = now
                    continue
                # To the connection that writes here, only what another one wrote makes a new version.
                foreign = await self._db.write(_version)
                if foreign == self._foreign:
                    self._version, looked_at = version, now
                    if len(self._ends) > 2 * MOST:
                        self._ends = dict(await self._db.read(_active))
                    continue
                # However long ago that was: a process can be kept from polling for longer than a commit is late.
                unseen = timedelta(seconds=now - looked_at)
                for thread_id, before in self._grown(await self._db.read(partial(_active, unseen))):
                    heard(thread_id, before)
                self._version, self._foreign, looked_at = version, foreign, now
            except ClewError as exc:
                logger.warning("cannot poll for other processes' commits", extra={"code": exc.code})
            except Exception:
                # Whatever it was, a process that stops polling is worse.
                logger.exception("cannot poll for other processes' commits")
            else:
                called()

    def _grown(self, active: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int | None]]:
        # What was committed here while they were read is known better.
        before, self._ends = (
            self._ends,
            {thread_id: max(end, self._ends.get(thread_id, 0)) for thread_id, end in active},
        )
        return [
            (thread_id, before.get(thread_id))
            for thread_id, end in self._ends.items()
            if before.get(thread_id) != end
        ]


def _version() -> Work[int]:
    rows = yield Statement("PRAGMA data_version")
    return int(rows[0][0])


def _active(unseen: timedelta = timedelta()) -> Work[list[tuple[str, int]]]:
    late = LATE + unseen
    # Where a log grew, the thread was active, and accessed not long before: by that there is an index.
    rows = yield Statement(
        "SELECT id, last_seq FROM threads WHERE last_accessed_at >= clew_now() - $1"
        " AND last_active_at >= clew_now() - $2 AND deleted_at IS NULL ORDER BY last_accessed_at DESC LIMIT $3",
        ((ACCESS_GRAIN + late) // MICROSECOND, late // MICROSECOND, MOST),
    )
    return [(row[0], row[1]) for row in rows]
