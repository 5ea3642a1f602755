"""SQLite database: one writer thread with group commit, reader threads beside it."""

import asyncio
import json
import logging
import os
import queue
import re
import sqlite3
import stat
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from clew.domain.errors import ClewError, ConfigError, Conflict, Corrupt, Invalid, StorageFull, Unavailable
from clew.failpoints import failpoint
from clew.ports.cipher import PLAIN, Cipher
from clew.stores.sql.encryption_keys import require_keys
from clew.stores.sql.migrate import migrate
from clew.stores.sql.private import opened, sealed
from clew.stores.sql.work import Floats, Many, Rows, Script, Statement, Texts, Update, Work
from clew.stores.sqlite_vectors import add_vectors

logger = logging.getLogger(__name__)
T = TypeVar("T")

# RETURNING came with it. Distributions that still have it build their library with JSON.
OLDEST = (3, 35)

# How many units of work may share one transaction: enough to hide the fsync, few enough to keep latency even.
BATCH = 256
READERS = 4
# How long a writer waits for another process that holds the file's write lock before it gives up.
BUSY_SECONDS = 15.0


@dataclass(slots=True, eq=False)
class WriteJob:
    """One unit of work and its waiting caller: a coroutine of `loop`, or another thread when there is none."""

    work: Callable[[], Work[Any]]
    future: "asyncio.Future[Any] | Future[Any]"
    loop: asyncio.AbstractEventLoop | None


@dataclass(slots=True)
class WriteOutcome:
    job: WriteJob
    result: Any = None
    error: BaseException | None = None


class SQLiteDatabase:
    """One file (or one database in memory). Writes queue up; all that wait at a moment share one fsync."""

    def __init__(
        self,
        path: Path | None,
        readers: int = READERS,
        busy_seconds: float = BUSY_SECONDS,
        cipher: Cipher = PLAIN,
    ) -> None:
        self.cipher = cipher
        self._uri = _uri(path)
        self._busy_seconds = busy_seconds
        self._writer = connect(self._uri, busy_seconds)
        if path is not None:
            _use_wal(self._writer, busy_seconds)
        self._path = path
        self._file = _identity(path)
        self._queue: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_forever, name="clew-writer", daemon=True)
        # A database in memory lives in one connection, so there the writer reads as well.
        self._readers = ThreadPoolExecutor(readers, "clew-reader") if path is not None else None
        self._local = threading.local()
        self._reader_connections: list[sqlite3.Connection] = []
        self._closed = False
        self._closing = threading.Lock()
        # Called with how many units of work shared a transaction, in the writer's thread.
        self.on_batch: Callable[[int], None] = lambda size: None  # noqa: ARG005 - not measured
        self._thread.start()

    async def write(self, work: Callable[[], Work[T]]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._submit(WriteJob(work, future, loop))
        return await future

    async def read(self, work: Callable[[], Work[T]]) -> T:
        if self._readers is None:
            return await self.write(work)
        if self._closed:
            raise Unavailable("the database is closed")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, self._read, work)
        except sqlite3.Error as exc:
            raise refusal(exc) from exc

    async def glance(self, work: Callable[[], Work[T]]) -> T:
        # Handing a few microseconds of reading to another thread costs ten times as much as the reading. In WAL
        # mode a reader waits only for the recovery after a crash: then a thread may wait for it.
        if self._readers is None:
            return await self.write(work)
        if self.cipher.waits:
            return await self.read(work)
        try:
            return drive(self._glancing(), work(), self.cipher)
        except sqlite3.OperationalError as exc:
            if not _is_busy(exc):
                raise refusal(exc) from exc
        except sqlite3.Error as exc:
            raise refusal(exc) from exc
        return await self.read(work)

    def close(self) -> None:
        """Finish what was submitted, then close every connection. Blocks: call it from a thread."""
        with self._closing:
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        if self._readers is not None:
            self._readers.shutdown()
        for connection in self._reader_connections:
            connection.close()
        self._writer.close()

    def _submit(self, job: WriteJob) -> None:
        with self._closing:  # nothing may come after the end: it would wait for ever
            if self._closed:
                raise Unavailable("the database is closed")
            self._queue.put(job)

    def _read(self, work: Callable[[], Work[T]]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "reading", None)
        if connection is None:
            connection = self._local.reading = self._reader(self._busy_seconds)
        self._require_file()
        connection.execute("BEGIN")
        try:
            return drive(connection, work(), self.cipher)
        finally:
            connection.execute("COMMIT")

    def _glancing(self) -> sqlite3.Connection:
        """The connection of this event loop's thread, which never waits."""
        if self._closed:
            raise Unavailable("the database is closed")
        connection: sqlite3.Connection | None = getattr(self._local, "glancing", None)
        if connection is None:
            connection = self._local.glancing = self._reader(0)
        return connection

    def _reader(self, busy_seconds: float) -> sqlite3.Connection:
        self._require_file()  # or SQLite would make another one
        connection = connect(self._uri, busy_seconds)
        connection.execute("PRAGMA query_only = ON")
        self._reader_connections.append(connection)
        return connection

    def _write_forever(self) -> None:
        stopping = False
        while not stopping:
            batch: list[WriteJob] = []
            job = self._queue.get()
            while job is not None:
                batch.append(job)
                if len(batch) == BATCH:
                    break
                try:
                    job = self._queue.get_nowait()
                except queue.Empty:
                    break
            else:
                stopping = True
            if batch:
                settle(self._transact(batch))
                self.on_batch(len(batch))

    def _transact(self, batch: list[WriteJob]) -> list[WriteOutcome]:
        try:
            self._begin()
            failpoint("commit_begun")
            outcomes = self._run_together(batch)
            failpoint("commit_written")
            self._require_file()
            self._writer.execute("COMMIT")
            failpoint("commit_done")
        except BaseException as exc:  # noqa: BLE001 - whatever it is, it belongs to the waiting callers
            # A full disk or a failing one makes SQLite roll back the whole transaction by itself.
            with suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
            return [WriteOutcome(job, error=refusal(exc)) for job in batch]
        return outcomes

    def _require_file(self) -> None:
        """Whatever is written to a file without a name is gone with this process, acknowledged or not."""
        if self._path is not None and _identity(self._path) != self._file:
            raise Unavailable("the database file was removed or replaced; stop Clew, and start it again")

    def _begin(self) -> None:
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as exc:
                if not _is_busy(exc) or time.monotonic() > deadline:
                    raise
            else:
                return

    def _run_together(self, batch: list[WriteJob]) -> list[WriteOutcome]:
        """Run the units one after another. A failure that had written nothing yet needs no undoing: most are so."""
        outcomes: list[WriteOutcome] = []
        for job in batch:
            if job.future.cancelled():
                continue
            changes = self._writer.total_changes
            try:
                outcomes.append(WriteOutcome(job, result=drive(self._writer, job.work(), self.cipher)))
            except Exception as exc:
                if not self._writer.in_transaction:
                    raise
                if self._writer.total_changes == changes:
                    outcomes.append(WriteOutcome(job, error=refusal(exc)))
                    continue
                self._writer.execute("ROLLBACK")
                self._begin()
                return [self._run_apart(job) for job in batch if not job.future.cancelled()]
        return outcomes

    def _run_apart(self, job: WriteJob) -> WriteOutcome:
        """Run one unit so that its failure undoes only itself."""
        self._writer.execute("SAVEPOINT unit")
        try:
            outcome = WriteOutcome(job, result=drive(self._writer, job.work(), self.cipher))
        except Exception as exc:
            if not self._writer.in_transaction:
                raise
            outcome = WriteOutcome(job, error=refusal(exc))
            self._writer.execute("ROLLBACK TO unit")
        self._writer.execute("RELEASE unit")
        return outcome


@asynccontextmanager
async def open_sqlite(
    path: Path | None,
    *,
    readers: int = READERS,
    busy_seconds: float = BUSY_SECONDS,
    cipher: Cipher = PLAIN,
) -> AsyncGenerator[SQLiteDatabase]:
    """Open the file, made and migrated as needed; `None` is a database in memory that ends with the process."""
    require_version(sqlite3.sqlite_version_info)
    try:
        if path is not None:
            await asyncio.to_thread(_create, path)
        db = await asyncio.to_thread(SQLiteDatabase, path, readers, busy_seconds, cipher)
    except (sqlite3.Error, OSError) as exc:
        raise ConfigError(f"cannot open the SQLite database at {path}: {exc}") from exc
    try:
        await migrate(db, "sqlite")
        await require_keys(db)
        yield db
    finally:
        await asyncio.to_thread(db.close)


def _create(path: Path) -> None:
    """Make the file if it is missing, for its owner only: SQLite gives its journals the mode of the database."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for one in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        _make_private(one)


def _make_private(path: Path) -> None:
    """A file that others may read, as those of a database from elsewhere, becomes its owner's alone."""
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & 0o077:
            return
        try:
            path.chmod(mode & 0o700)
        except OSError as exc:
            logger.warning(
                "other users of this machine may read the database file %s (mode %o), and its mode cannot be changed: %s",
                path,
                mode,
                exc.strerror,
            )


def require_version(version: tuple[int, ...]) -> None:
    """Raises ConfigError for a library without what our SQL is written in: RETURNING, and lists as JSON."""
    if version < OLDEST:
        found, needed = (".".join(map(str, each)) for each in (version, OLDEST))
        raise ConfigError(
            f"the SQLite library of this Python is {found}, and Clew needs {needed} or newer: use a newer Python or"
            " system, or Postgres"
        )


def connect(uri: str, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """A connection as we use it: we say BEGIN ourselves, and a full fsync makes COMMIT mean durable."""
    connection = sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=busy_seconds,
        cached_statements=512,
    )
    for pragma in (
        "auto_vacuum = INCREMENTAL",
        "synchronous = FULL",
        "journal_size_limit = 67108864",
        # What is deleted is overwritten, but for pages that are given back whole. How SQLite was built decides otherwise.
        "secure_delete = FAST",
    ):
        connection.execute(f"PRAGMA {pragma}")
    connection.create_function("clew_now", 0, lambda: time.time_ns() // 1000)
    # SQLite has it from 3.43 on.
    connection.create_function("octet_length", 1, _octets, deterministic=True)
    add_vectors(connection)
    return connection


def _octets(value: str | bytes) -> int:
    return len(value.encode() if isinstance(value, str) else value)


def drive(connection: sqlite3.Connection, work: Work[T], cipher: Cipher = PLAIN) -> T:
    """Send each statement to the connection and its rows back into the work, until the work returns."""
    try:
        step = next(work)
        while True:
            rows: Rows = ()
            if cipher.is_active:
                step = sealed(step, cipher)
            match step:
                case Statement():
                    cursor = connection.execute(numbered(step.sql), step.args)
                    rows = cursor.fetchall()
                    if rows and cipher.is_active:
                        rows = opened(rows, [column[0] for column in cursor.description], step, cipher)
                case Update():
                    # Cheaper than RETURNING, for which SQLite builds a table.
                    rows = ((connection.execute(numbered(step.sql), step.args).rowcount,),)
                case Many():
                    connection.executemany(numbered(step.sql), step.rows)
                case Script():
                    for statement in _statements(step.sql):
                        connection.execute(statement)
                        failpoint("migration_mid")
            step = work.send(rows)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        work.close()


sqlite3.register_adapter(Texts, json.dumps)
sqlite3.register_adapter(Floats, lambda vector: array("f", vector).tobytes())


@lru_cache(maxsize=1024)
def numbered(sql: str) -> str:
    """The statement as SQLite has it. It had no `octet_length` for a long time."""
    return re.sub(r"\$(\d+)", r"?\1", re.sub(r"octet_length\((\w+)\)", r"length(CAST(\1 AS BLOB))", sql))


def settle(outcomes: Iterable[WriteOutcome]) -> None:
    """Hand the results to all waiting callers; one wake-up a loop, however many wait in it."""
    by_loop: defaultdict[asyncio.AbstractEventLoop | None, list[WriteOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_loop[outcome.job.loop].append(outcome)
    for loop, ready in by_loop.items():
        if loop is None:
            _deliver(ready)
            continue
        try:
            loop.call_soon_threadsafe(_deliver, ready)
        except RuntimeError:
            logger.warning("an event loop was closed before its database work was done")


def refusal(exc: BaseException) -> BaseException:
    """Errors of SQLite as Clew's; anything else as it is."""
    if isinstance(exc, UnicodeEncodeError):
        return Invalid("not storable as text: it has half of a surrogate pair")
    if isinstance(exc, asyncio.CancelledError):
        # To the waiting caller it would mean that the caller itself was cancelled.
        return Unavailable("the write to the database was interrupted")
    if isinstance(exc, ClewError) or not isinstance(exc, sqlite3.Error):
        return exc
    if isinstance(exc, sqlite3.IntegrityError):
        return Conflict(f"the database refused a duplicate or missing value ({exc.sqlite_errorname})")
    if _code(exc) == sqlite3.SQLITE_FULL:
        return StorageFull("the disk or the database is full; nothing was written")
    if _is_busy(exc):
        return Unavailable("the database is busy with another process; try again")
    if _code(exc) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return Unavailable(f"the database file cannot be read or written ({exc.sqlite_errorname})")
    if _code(exc) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(f"the database file is damaged ({exc.sqlite_errorname})")
    if "decode to UTF-8" in str(exc):
        return Corrupt("a stored text is not UTF-8")
    return exc


def _deliver(outcomes: list[WriteOutcome]) -> None:
    for outcome in outcomes:
        future = outcome.job.future
        if future.done():
            continue
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result)


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Which file that is, whatever its name was before. None if there is none."""
    try:
        found = path.stat() if path is not None else None
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None


def _uri(path: Path | None) -> str:
    return ":memory:" if path is None else f"file:{quote(str(path))}"


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Two first starts at once may both try to switch the journal; the switch does not wait for locks by itself."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if not _is_busy(exc) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _is_busy(exc: sqlite3.Error) -> bool:
    return _code(exc) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(exc: sqlite3.Error) -> int:
    """SQLite's primary code; what the module raises by itself has none."""
    return getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the transaction we are in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError("a migration ends in the middle of a statement")
