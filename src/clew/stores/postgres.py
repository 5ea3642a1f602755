"""Postgres database: a pool that reconnects, a deadline on everything, retries where they are safe."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from functools import lru_cache
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from clew.domain.errors import ClewError, ConfigError, Conflict, Unavailable
from clew.failpoints import failpoint
from clew.ports.cipher import PLAIN, Cipher
from clew.stores.postgres_errors import Connection, Met, in_our_words, unreachable
from clew.stores.sql import migrate as migrations
from clew.stores.sql.encryption_keys import require_keys
from clew.stores.sql.private import opened, sealed
from clew.stores.sql.work import Many, Rows, Script, Statement, Update, Work

logger = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

ATTEMPTS = 3
BACKOFF_SECONDS = 0.05
SUPABASE_POOLER_PORT = 6543
# The first version that has `transaction_timeout`.
TRANSACTION_TIMEOUT = (17,)
# How long a connection that goes back to the pool may take to be closed, where the pool has no more use for it.
RELEASE_SECONDS = 0.5


class PostgresDatabase:
    """A pool of connections. Every call ends within `deadline` seconds, with its answer or with Unavailable."""

    def __init__(
        self, pool: "asyncpg.Pool[asyncpg.Record]", *, deadline: float, cipher: Cipher = PLAIN
    ) -> None:
        self.cipher = cipher
        self._pool = pool
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._writing: set[asyncio.Task[Any]] = set()

    async def write(self, work: Callable[[], Work[T]]) -> T:
        # In a task of its own: a caller that is cancelled must not take a transaction down half-way.
        task = asyncio.create_task(self._run(work, lambda: Transaction(self.cipher, readonly=False)))
        self._writing.add(task)
        task.add_done_callback(self._written)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not _is_cancelled():
                # To the caller it would mean that the caller itself was cancelled.
                raise Unavailable("the write to the database was interrupted") from None
            raise

    async def read(self, work: Callable[[], Work[T]]) -> T:
        return await self._run(work, lambda: Transaction(self.cipher, readonly=True))

    async def glance(self, work: Callable[[], Work[T]]) -> T:
        return await self._run(work, lambda: SingleRead(self.cipher))

    async def fetch(self, sql: str, *args: Any) -> Rows:
        """One statement in its own transaction, for what is fastest in Postgres' own dialect. Never sent twice."""
        async with self._connection(self._loop.time() + self._deadline) as connection:
            with in_our_words(connection):
                return await connection.fetch(sql, *args)

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
            task.exception()  # retrieved here too: the caller gets it, unless it was cancelled

    async def _run(self, work: Callable[[], Work[T]], new_unit: "Callable[[], Unit]") -> T:
        until = self._loop.time() + self._deadline
        attempt = 1
        while True:
            unit = new_unit()
            try:
                async with self._connection(until) as connection:
                    return await unit.run(connection, work)
            except Unavailable:
                # Nothing says how a COMMIT that was sent has ended, so only what was not sent is sent again.
                if unit.committing or attempt == ATTEMPTS or self._loop.time() >= until:
                    raise
            except Met:
                if attempt == ATTEMPTS:
                    raise Conflict("other transactions conflicted with this one; try again") from None
            await asyncio.sleep(BACKOFF_SECONDS * attempt)
            attempt += 1

    @asynccontextmanager
    async def _connection(self, until: float) -> AsyncGenerator[Connection]:
        connection: Any = None
        healthy = False
        try:
            async with asyncio.timeout_at(until):
                connection = await self._acquire()
                yield connection
                healthy = True
        except TimeoutError as exc:
            # One silent connection means the others are likely no better: let the pool make new ones.
            with contextlib.suppress(asyncpg.InterfaceError):
                await self._pool.expire_connections()
            raise Unavailable(f"the database did not answer within {self._deadline:g} seconds") from exc
        except Unavailable:
            raise
        except (ClewError, Met, asyncpg.PostgresError):
            healthy = True
            raise
        finally:
            if connection is not None:
                await self._release(connection, healthy=healthy)

    async def _acquire(self) -> Any:
        try:
            return await self._pool.acquire()
        except TimeoutError as exc:
            raise Unavailable("the database did not accept a connection in time") from exc
        except Exception as exc:
            # Nothing was asked yet: whatever it is, there is no connection to be had.
            raise unreachable(exc) from exc

    async def _release(self, connection: Any, *, healthy: bool) -> None:
        if not healthy:
            _terminate(connection)
        try:
            await self._pool.release(connection, timeout=RELEASE_SECONDS)  # shielded there
        except Exception as exc:  # noqa: BLE001 - what was asked of the connection has been answered
            logger.debug("a connection was not taken back: %s", type(exc).__name__)
            _terminate(connection)


class Unit(Protocol):
    """A unit of work on one connection; knows whether it may have taken effect already."""

    committing: bool

    async def run(self, connection: Connection, work: Callable[[], Work[T]]) -> T: ...


class SingleRead:
    """One statement that reads. It is its own snapshot: no BEGIN, no COMMIT, one round trip."""

    committing = False

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    async def run(self, connection: Connection, work: Callable[[], Work[T]]) -> T:
        return await drive(connection, work(), self._cipher)


class Transaction:
    """One unit of work between BEGIN and COMMIT; knows whether COMMIT was already sent."""

    def __init__(self, cipher: Cipher, *, readonly: bool) -> None:
        self.committing = False
        self._cipher = cipher
        self._readonly = readonly

    async def run(self, connection: Connection, work: Callable[[], Work[T]]) -> T:
        with in_our_words(connection):
            transaction = connection.transaction(
                isolation="repeatable_read" if self._readonly else "read_committed", readonly=self._readonly
            )
            await transaction.start()
        failpoint("commit_begun")
        try:
            result = await drive(connection, work(), self._cipher)
        except Exception:
            # A caller that was cancelled, or ran out of time, leaves a connection that is thrown away.
            await _roll_back(connection, transaction)
            raise
        failpoint("commit_written")
        # A reader has nothing to lose: it may be asked again whatever became of it.
        self.committing = not self._readonly
        with in_our_words(connection):
            await transaction.commit()
        failpoint("commit_done")
        return result


async def _roll_back(connection: Connection, transaction: Any) -> None:
    """The error that led here says more than one met on the way back, which the server undoes by itself."""
    try:
        await transaction.rollback()
    except Exception as exc:  # noqa: BLE001 - whatever it is, this connection is of no more use
        logger.debug("a transaction was not rolled back: %s", type(exc).__name__)
        _terminate(connection)


def _terminate(connection: Any) -> None:
    # One that the server has closed returned to the pool by itself.
    with contextlib.suppress(asyncpg.InterfaceError):
        connection.terminate()


@asynccontextmanager
async def open_postgres(
    dsn: str,
    *,
    pool_min: int = 1,
    pool_max: int = 10,
    deadline: float = 8.0,
    connect_seconds: float | None = None,
    cipher: Cipher = PLAIN,
) -> AsyncGenerator[PostgresDatabase]:
    """Open a pool on a migrated database. Raises ConfigError if it cannot be reached now."""
    await migrate(dsn, deadline=connect_seconds or deadline)
    # A caller that takes a connection has a deadline for all it does with it, so that single statements need none.
    options = connect_options(dsn, deadline) | {
        "timeout": connect_seconds or deadline,
        "command_timeout": None,
    }

    async def bound(connection: Connection) -> None:
        # A process that is frozen in a transaction keeps its rows from all others. Between two statements
        # idle_in_transaction_session_timeout ends it; while it prepares one, only this does.
        if "server_settings" in options and connection.get_server_version() >= TRANSACTION_TIMEOUT:
            await connection.execute(f"SET transaction_timeout = {_abandoned_after(deadline)}")

    async with asyncpg.create_pool(
        min_size=min(pool_min, pool_max), max_size=pool_max, init=bound, reset=_keep, **options
    ) as pool:
        db = PostgresDatabase(pool, deadline=deadline, cipher=cipher)
        try:
            await require_keys(db)
            yield db
        finally:
            await db.close()


async def migrate(dsn: str, *, deadline: float = 8.0) -> None:
    """Bring the database to the newest version.

    A migration may take long, so only the connection and the read of the schema version have a deadline.
    """
    options = connect_options(dsn, deadline) | {"command_timeout": None}
    connection: Connection | None = None
    try:
        try:
            async with asyncio.timeout(deadline):
                connection = await asyncpg.connect(**options)
                if await migrations.is_current(OneConnection(connection), "postgres"):
                    return
        except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
            raise ConfigError(f"cannot connect to the Postgres database: {type(exc).__name__}") from exc
        await migrations.migrate(OneConnection(connection), "postgres")
    except Unavailable as exc:
        raise ConfigError(f"the Postgres database went away while it was opened: {exc}") from exc
    finally:
        if connection is not None:
            await _close(connection)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=RELEASE_SECONDS)
    except Exception:  # noqa: BLE001 - the connection is dropped even if the server does not confirm
        connection.terminate()


class OneConnection:
    """A database without a pool, for migrations."""

    cipher = PLAIN

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def write(self, work: Callable[[], Work[T]]) -> T:
        return await Transaction(self.cipher, readonly=False).run(self._connection, work)

    async def read(self, work: Callable[[], Work[T]]) -> T:
        return await Transaction(self.cipher, readonly=True).run(self._connection, work)

    async def glance(self, work: Callable[[], Work[T]]) -> T:
        return await drive(self._connection, work())


async def drive(connection: Connection, work: Work[T], cipher: Cipher = PLAIN) -> T:
    """Send each statement to the connection and its rows back into the work, until the work returns."""
    with closing(work):
        try:
            step = next(work)
            while True:
                if cipher.is_active:
                    step = await beside_loop(cipher, sealed, step, cipher)
                with in_our_words(connection):
                    rows = await _carried_out(connection, step)
                if rows and cipher.is_active and isinstance(step, Statement):
                    rows = await beside_loop(cipher, opened, rows, tuple(rows[0].keys()), step, cipher)
                step = work.send(rows)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


async def beside_loop(cipher: Cipher, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Work that encrypts or decrypts, in a thread if the cipher waits for another machine."""
    return await asyncio.to_thread(work, *args, **kwargs) if cipher.waits else work(*args, **kwargs)


async def _carried_out(connection: Connection, step: Statement | Update | Many | Script) -> Rows:
    match step:
        case Many():
            await connection.executemany(spoken(step.sql), step.rows)
        case Script():
            await connection.execute(step.sql)
        case Update():
            done_what = await connection.execute(spoken(step.sql), *step.args)
            return ((int(done_what.rpartition(" ")[2]),),)
        case Statement():
            return await connection.fetch(spoken(step.sql), *step.args)
    return ()


# What `among` makes.
_LIST = re.compile(r"IN \(SELECT value FROM json_each\((\$\d+)\)\)")


_DISTANCE = re.compile(r"vec_distance_cosine\((\w+), (\$\d+)\)")


@lru_cache(maxsize=1024)
def spoken(sql: str) -> str:
    """What was said to Postgres alone is no longer a comment, a list is an array, and vectors are pgvector's."""
    sql = _DISTANCE.sub(r"(\1::vector <=> \2::real[]::vector)", sql)
    return _LIST.sub(r"= ANY(\1::text[])", sql.replace("/*+", "").replace("*/", ""))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _keep(connection: object) -> None:
    """Nothing outlives our transactions (an open one is rolled back before this), so no round trip to forget it."""


def _abandoned_after(deadline: float) -> str:
    """In milliseconds: the client gives up a transaction after `deadline` seconds, if it lives."""
    return str(int(deadline * 2000))


def connect_options(dsn: str, deadline: float) -> dict[str, Any]:
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    hosts = parts.netloc.rpartition("@")[2].split(",")  # a DSN may name several
    pooled = query.pop("pgbouncer", "") == "true" or any(
        host.endswith(f":{SUPABASE_POOLER_PORT}") for host in hosts
    )
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
        "idle_in_transaction_session_timeout": _abandoned_after(deadline),
    }
    return options | {"server_settings": settings}
