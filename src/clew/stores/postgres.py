"""Postgres as a database for our work: a pool that heals, a deadline on everything, retries where they are safe."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from clew.domain.errors import ClewError, ConfigError, Conflict, Invalid, StorageFull, Unavailable
from clew.failpoints import failpoint
from clew.stores.sql import migrate as migrations
from clew.stores.sql.work import Many, Rows, Script, Statement, Update, Work

logger = logging.getLogger(__name__)
T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

ATTEMPTS = 3
BACKOFF_SECONDS = 0.05
SUPABASE_POOLER_PORT = 6543

# The server or the way to it is gone; a new connection may do.
GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    OSError,
)
# Two transactions met; whoever lost may simply try again.
MET = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


class PostgresDatabase:
    """A pool of connections. Every call ends within `deadline` seconds, with its answer or with Unavailable."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", *, deadline: float) -> None:
        self._pool = pool
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._writing: set[asyncio.Task[Any]] = set()

    async def write(self, work: Callable[[], Work[T]]) -> T:
        # In a task of its own: a caller that is cancelled must not take a transaction down half-way.
        task = asyncio.create_task(self._run(work, readonly=False))
        self._writing.add(task)
        task.add_done_callback(self._written)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not _is_cancelled():
                # To the caller it would mean that somebody cancelled it.
                raise Unavailable("the writing to the database was interrupted") from None
            raise

    async def read(self, work: Callable[[], Work[T]]) -> T:
        return await self._run(work, readonly=True)

    async def glance(self, work: Callable[[], Work[T]]) -> T:
        # One statement is its own snapshot: no BEGIN, no COMMIT, one round trip.
        async with self._connection() as connection:
            return await drive(connection, work())

    async def fetch(self, sql: str, *args: Any) -> Rows:
        """One statement in its own transaction, for what is fastest in Postgres' own dialect."""
        async with self._connection() as connection:
            return await connection.fetch(sql, *args)

    def write_from_thread(self, work: Callable[[], Work[T]]) -> T:
        """The same as `write` for a caller in another thread; blocks it."""
        return asyncio.run_coroutine_threadsafe(self.write(work), self._loop).result()

    def read_from_thread(self, work: Callable[[], Work[T]]) -> T:
        """The same as `read` for a caller in another thread; blocks it."""
        return asyncio.run_coroutine_threadsafe(self.read(work), self._loop).result()

    async def close(self) -> None:
        """Finish what was submitted, then close every connection."""
        await asyncio.gather(*self._writing, return_exceptions=True)
        try:
            async with asyncio.timeout(self._deadline):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    def _written(self, task: asyncio.Task[Any]) -> None:
        self._writing.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits gets it; if nobody does, it was cancelled and does not care

    async def _run(self, work: Callable[[], Work[T]], *, readonly: bool) -> T:
        attempt = 1
        while True:
            transaction = Transaction(readonly=readonly)
            try:
                async with self._connection() as connection:
                    return await transaction.run(connection, work)
            except Unavailable:
                # Once COMMIT is on its way nobody knows how it ended, so only what was not sent is sent again.
                if transaction.committing or attempt == ATTEMPTS:
                    raise
            except Met:
                if attempt == ATTEMPTS:
                    raise Conflict("other transactions were in the way; try again") from None
            await asyncio.sleep(BACKOFF_SECONDS * attempt)
            attempt += 1

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        connection: Any = None
        healthy = False
        try:
            async with asyncio.timeout(self._deadline):
                connection = await self._pool.acquire()
                yield connection
                healthy = True
        except TimeoutError as exc:
            # One silent connection means the others are likely no better: let the pool make new ones.
            with contextlib.suppress(asyncpg.InterfaceError):
                await self._pool.expire_connections()
            raise Unavailable(f"the database did not answer within {self._deadline:g} seconds") from exc
        except MET as exc:
            healthy = True
            raise Met from exc
        except asyncpg.DiskFullError as exc:
            healthy = True
            raise StorageFull("the database's disk is full; nothing was written") from exc
        except GONE as exc:
            raise Unavailable(f"the database cannot be reached ({type(exc).__name__})") from exc
        except asyncpg.IntegrityConstraintViolationError as exc:
            healthy = True
            raise Conflict(
                f"the database refused a duplicate or missing value ({type(exc).__name__})"
            ) from exc
        except asyncpg.DataError:
            healthy = True
            # The driver's own words would quote the value, and messages are private.
            raise Invalid(
                "not storable: a text with a NUL or half of a surrogate pair, or a number too big"
            ) from None
        except (ClewError, asyncpg.PostgresError):
            healthy = True
            raise
        finally:
            if connection is not None:
                if not healthy:
                    # One that the server has closed went back to the pool by itself.
                    with contextlib.suppress(asyncpg.InterfaceError):
                        connection.terminate()
                await self._pool.release(connection)  # shielded there


class Met(Exception):
    """Two transactions met and this one lost."""


class Transaction:
    """One unit of work between BEGIN and COMMIT; knows whether COMMIT was already sent."""

    def __init__(self, *, readonly: bool) -> None:
        self.committing = False
        self._readonly = readonly

    async def run(self, connection: Connection, work: Callable[[], Work[T]]) -> T:
        transaction = connection.transaction(
            isolation="repeatable_read" if self._readonly else "read_committed", readonly=self._readonly
        )
        await transaction.start()
        failpoint("commit_begun")
        try:
            result = await drive(connection, work())
        except BaseException:
            if not connection.is_closed():
                await transaction.rollback()
            raise
        failpoint("commit_written")
        self.committing = True
        await transaction.commit()
        failpoint("commit_done")
        return result


@asynccontextmanager
async def open_postgres(
    dsn: str,
    *,
    pool_min: int = 1,
    pool_max: int = 10,
    deadline: float = 8.0,
    connect_seconds: float | None = None,
) -> AsyncGenerator[PostgresDatabase]:
    """Open a pool on a migrated database. Raises ConfigError if it cannot be reached now."""
    await migrate(dsn, deadline=connect_seconds or deadline)
    # Whoever takes a connection has a deadline for all it does with it, so that single statements need none.
    options = connect_options(dsn, deadline) | {
        "timeout": connect_seconds or deadline,
        "command_timeout": None,
    }
    async with asyncpg.create_pool(
        min_size=min(pool_min, pool_max), max_size=pool_max, reset=_keep, **options
    ) as pool:
        db = PostgresDatabase(pool, deadline=deadline)
        try:
            yield db
        finally:
            await db.close()


async def migrate(dsn: str, *, deadline: float = 8.0) -> None:
    """Bring the database to the newest version. A migration may take long, so only the connection has a deadline."""
    options = connect_options(dsn, deadline) | {"command_timeout": None}
    try:
        connection: Connection = await asyncpg.connect(**options)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise ConfigError(f"cannot connect to the Postgres database: {type(exc).__name__}") from exc
    try:
        await migrations.migrate(OneConnection(connection), "postgres")
    finally:
        await connection.close()


class OneConnection:
    """A database without a pool, for migrations."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def write(self, work: Callable[[], Work[T]]) -> T:
        return await Transaction(readonly=False).run(self._connection, work)

    async def read(self, work: Callable[[], Work[T]]) -> T:
        return await Transaction(readonly=True).run(self._connection, work)

    async def glance(self, work: Callable[[], Work[T]]) -> T:
        return await drive(self._connection, work())


async def drive(connection: Connection, work: Work[T]) -> T:
    """Send each statement to the connection and its rows back into the work, until the work returns."""
    with closing(work):
        try:
            step = next(work)
            while True:
                rows: Rows = ()
                match step:
                    case Many():
                        await connection.executemany(spoken(step.sql), step.rows)
                    case Script():
                        await connection.execute(step.sql)
                    case Update():
                        done_what = await connection.execute(spoken(step.sql), *step.args)
                        rows = ((int(done_what.rpartition(" ")[2]),),)
                    case Statement():
                        rows = await connection.fetch(spoken(step.sql), *step.args)
                step = work.send(rows)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


# What `among` makes.
_LIST = re.compile(r"IN \(SELECT value FROM json_each\((\$\d+)\)\)")


@lru_cache(maxsize=1024)
def spoken(sql: str) -> str:
    """What was said to Postgres alone is no longer a comment, and a list is an array."""
    return _LIST.sub(r"= ANY(\1::text[])", sql.replace("/*+", "").replace("*/", ""))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _keep(connection: object) -> None:
    """Nothing outlives our transactions (an open one is rolled back before this), so no round trip to forget it."""


def connect_options(dsn: str, deadline: float) -> dict[str, Any]:
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    pooled = query.pop("pgbouncer", "") == "true" or parts.port == SUPABASE_POOLER_PORT
    options: dict[str, Any] = {
        "dsn": urlunsplit(parts._replace(query=urlencode(query))),
        "timeout": deadline,
        "command_timeout": deadline,
    }
    if pooled:
        # A transaction pooler hands each transaction to another server connection: nothing may outlive one.
        return options | {"statement_cache_size": 0}
    settings = {
        "application_name": "clew",
        "jit": "off",
        # Whatever we ask for has an index, which the planner does not trust while it knows little of a table.
        "enable_seqscan": "off",
        "idle_in_transaction_session_timeout": str(int(deadline * 2000)),
    }
    return options | {"server_settings": settings}
