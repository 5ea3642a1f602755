"""Advisory locks: each process on a Postgres holds one in a session of its own, and Postgres releases it with the session."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress

import asyncpg

from clew.domain.errors import Unavailable
from clew.stores.postgres import connect_options
from clew.stores.postgres_errors import Connection, in_our_words, unreachable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
# A silent connection is probed after so long.
PROBE_SECONDS = 15.0
# A lock must be free for so long before its process counts as dead: one whose connection was cut takes it again.
SURE_SECONDS = 0.4
# By how much a timer may be early.
MARGIN_SECONDS = 0.01
# After an outage all processes take their locks again. So long none of them counts as dead.
SETTLE_SECONDS = 3.0
LOCK = "SELECT pg_advisory_lock(hashtextextended('clew:' || $1::text, 0))"
# Shared: processes that look at the same moment do not take each other for the living one.
FIND_FREE = (
    "SELECT name FROM unnest($1::text[]) AS name"
    " WHERE pg_try_advisory_xact_lock_shared(hashtextextended('clew:' || name, 0))"
)


class AdvisoryLocks:
    """The port Liveness for processes with a direct connection. A transaction pooler would share their sessions."""

    def __init__(self, dsn: str, *, deadline: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dsn = dsn
        self._deadline = deadline
        self._monotonic = monotonic
        self._connection: Connection | None = None
        self._in_use = asyncio.Lock()
        self._settled_at = 0.0
        self._free_since: dict[str, float] = {}

    @asynccontextmanager
    async def held(self, name: str) -> AsyncGenerator[None]:
        try:
            connection = await self._connect(name)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as exc:
            raise unreachable(exc) from exc
        holding = asyncio.create_task(self._hold_forever(name, connection))
        try:
            yield
        finally:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)

    async def find_dead(self, names: Collection[str]) -> Collection[str]:
        dead = await self._look(names)
        if len(dead) < len(self._free_since):
            # Some locks are free for too short a time: look again as soon as that says something.
            await asyncio.sleep(SURE_SECONDS + MARGIN_SECONDS)
            dead = await self._look(names)
        return dead

    async def _look(self, names: Collection[str]) -> Collection[str]:
        connection, now = self._connection, self._monotonic()
        if connection is None or now < self._settled_at:
            self._free_since.clear()
            return ()
        async with self._in_use:
            with in_our_words(connection):
                rows = await connection.fetch(FIND_FREE, list(names))
        self._free_since = {row[0]: self._free_since.get(row[0], now) for row in rows}
        return [name for name, since in self._free_since.items() if now - since >= SURE_SECONDS]

    async def _connect(self, name: str) -> Connection:
        connection: Connection = await asyncpg.connect(**connect_options(self._dsn, self._deadline))
        try:
            await connection.execute(LOCK, name)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _hold_forever(self, name: str, connection: Connection) -> None:
        while True:
            try:
                self._connection = connection
                await self._until_lost(connection)
            finally:
                self._connection = None
                connection.terminate()
            logger.warning("the connection that shows that this process lives was lost")
            connection = await self._reconnect(name)
            self._settled_at = self._monotonic() + SETTLE_SECONDS

    async def _reconnect(self, name: str) -> Connection:
        while True:
            try:
                return await self._connect(name)
            except Exception:  # noqa: BLE001 - whatever it is, without the lock this process counts as dead
                await asyncio.sleep(RETRY_SECONDS)

    async def _until_lost(self, connection: Connection) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        with suppress(Unavailable):
            while not connection.is_closed():
                with suppress(TimeoutError):
                    async with asyncio.timeout(PROBE_SECONDS):
                        await lost.wait()
                        return
                async with self._in_use:
                    with in_our_words(connection):
                        await connection.execute("SELECT 1")
