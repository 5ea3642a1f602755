"""Database composition: opens the database of a URL, shared by all who name it, with the stores for its kind."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

from uuid_utils import uuid7

from clew.config import DatabaseUrl, Settings
from clew.domain.errors import ConfigError
from clew.engine.notifier import NoNotifier
from clew.ports.api_keys import Keys
from clew.ports.audit import AuditTrail
from clew.ports.cipher import Cipher
from clew.ports.clock import Clock
from clew.ports.inbox import Inbox
from clew.ports.liveness import Liveness
from clew.ports.model_calls import ModelCalls, Summaries
from clew.ports.notifier import ClusterNotifier
from clew.ports.numbers import Numbers
from clew.ports.queue import QueueState
from clew.ports.retention import Space
from clew.ports.search import MessageSearch
from clew.ports.spending import Spending
from clew.ports.tool_calls import Calls
from clew.retention.cleanup import Cleanup
from clew.retention.thread_memory import ThreadMemory
from clew.server.encryption import open_cipher
from clew.stores.sql.assistants import AssistantRows
from clew.stores.sql.audit import AuditRows
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.cleanup import CleanupRows
from clew.stores.sql.cluster_state import ClusterStateRows
from clew.stores.sql.database_clock import DatabaseClock
from clew.stores.sql.files import FileRows
from clew.stores.sql.histories import HistoryRows
from clew.stores.sql.inbox import InboxRows
from clew.stores.sql.keys import KeyRows
from clew.stores.sql.migrate import begun_at, versions
from clew.stores.sql.model_calls import ModelCallRows
from clew.stores.sql.numbers import NumberRows
from clew.stores.sql.queue import QueueRows
from clew.stores.sql.search import PostgresSearchRows, SearchRows
from clew.stores.sql.spending import SpendingRows
from clew.stores.sql.summaries import SummaryRows
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.tombstones import TombstoneRows
from clew.stores.sql.tool_calls import CallRows
from clew.stores.sql.work import Database
from clew.stores.sqlite import SQLiteDatabase, open_sqlite
from clew.stores.sqlite_liveness import LockFiles
from clew.stores.sqlite_notifier import SQLiteNotifier
from clew.stores.sqlite_space import SQLiteSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores, on one database."""

    db: Database
    threads: ThreadRows
    calls: Calls
    summaries: Summaries
    audit: ModelCalls
    audit_trail: AuditTrail
    queue: QueueState
    spending: Spending
    files: FileRows
    inbox: Inbox
    keys: Keys
    assistants: AssistantRows
    numbers: Numbers

    async def begun_at(self) -> datetime:
        """When the database was created: the same for every process on it."""
        return await self.db.read(begun_at)

    async def version(self) -> int:
        """How many migrations the database has seen. Raises Unavailable if it does not answer."""
        return len(await self.db.read(versions))


def open_threads(db: Database, *, has_jobs: bool = False) -> ThreadRows:
    """With jobs, a thread that can be claimed is enqueued in the job queue of this database."""
    if isinstance(db, SQLiteDatabase):
        return ThreadRows(db)
    from clew.stores.postgres import PostgresDatabase  # noqa: PLC0415 - needs the extra, which is here
    from clew.stores.postgres_threads import EnqueuingThreads, PostgresThreads  # noqa: PLC0415 - the same

    if not isinstance(db, PostgresDatabase):
        return ThreadRows(db)
    return EnqueuingThreads(db) if has_jobs else PostgresThreads(db)


async def migrate_job_queue(db: Database) -> None:
    """Raises ConfigError."""
    try:
        from clew.stores.postgres_job_schema import migrate_jobs  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as exc:
        raise ConfigError(
            "runner.kind: workers needs another package: pip install 'clew-server[workers]'"
        ) from exc
    await migrate_jobs(db)


def open_checkpoints(db: Database) -> CheckpointRows:
    if isinstance(db, SQLiteDatabase):
        return CheckpointRows(db)
    from clew.stores.postgres import PostgresDatabase  # noqa: PLC0415 - needs the extra, which is here
    from clew.stores.postgres_checkpoints import PostgresCheckpoints  # noqa: PLC0415 - the same

    return PostgresCheckpoints(db) if isinstance(db, PostgresDatabase) else CheckpointRows(db)


def open_search(db: Database) -> MessageSearch:
    return SearchRows(db) if isinstance(db, SQLiteDatabase) else PostgresSearchRows(db)


def open_histories(db: Database) -> HistoryRows:
    if isinstance(db, SQLiteDatabase):
        return HistoryRows(db)
    from clew.stores import postgres_histories  # noqa: PLC0415 - needs the extra, which is here

    return postgres_histories.open_histories(db)


def open_space(db: Database, path: Path | None) -> Space:
    """`path` is the file of a SQLite database that has one."""
    if isinstance(db, SQLiteDatabase):
        return SQLiteSpace(db, path)
    from clew.stores.postgres_space import PostgresSpace  # noqa: PLC0415 - the extra may be missing

    return PostgresSpace(db)


def open_bell(db: Database, settings: Settings) -> ClusterNotifier:
    """The notifier between processes that share this database, if its kind has one."""
    database = settings.database
    if isinstance(db, SQLiteDatabase):
        return SQLiteNotifier(db, database.url.path) if database.url.path is not None else NoNotifier()
    if database.direct_url is None and database.is_behind_transaction_pooler:
        return NoNotifier()
    from clew.stores.postgres_notifier import PostgresNotifier  # noqa: PLC0415 - the extra may be missing

    return PostgresNotifier(
        (database.direct_url or database.url).reveal(), deadline=database.statement_seconds
    )


def open_liveness(db: Database, settings: Settings) -> Liveness | None:
    """How processes that share this database see that one died. None where only leases show it."""
    database = settings.database
    if isinstance(db, SQLiteDatabase):
        return LockFiles(database.url.path) if database.url.path is not None else None
    if database.direct_url is None and database.is_behind_transaction_pooler:
        return None
    from clew.stores.postgres_liveness import AdvisoryLocks  # noqa: PLC0415 - the extra may be missing

    return AdvisoryLocks((database.direct_url or database.url).reveal(), deadline=database.statement_seconds)


@dataclass(slots=True)
class _SharedDatabase:
    """A database and how many use it."""

    users: int = 0
    db: Database | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)


_open: dict[tuple[asyncio.AbstractEventLoop, DatabaseUrl], _SharedDatabase] = {}


@asynccontextmanager
async def open_database(url: DatabaseUrl, settings: Settings | str) -> AsyncGenerator[Database]:
    """One database for all who name it in this event loop: two writers on one file would wait for each other."""
    if url.kind == "memory":
        async with open_sqlite(None) as db:
            yield db
        return
    key = (asyncio.get_running_loop(), url)
    entry = _open.setdefault(key, _SharedDatabase())
    entry.users += 1
    try:
        async with entry.opening:
            if entry.db is None:
                entry.db = await entry.closing.enter_async_context(_opened(url, settings))
        yield entry.db
    finally:
        entry.users -= 1
        if not entry.users:
            del _open[key]
            await entry.closing.aclose()


@asynccontextmanager
async def _opened(url: DatabaseUrl, settings: Settings | str) -> AsyncGenerator[Database]:
    async with open_cipher(settings) as cipher, _opened_with(cipher, url, settings) as db:
        yield db


@asynccontextmanager
async def _opened_with(
    cipher: Cipher, url: DatabaseUrl, settings: Settings | str
) -> AsyncGenerator[Database]:
    if url.dsn is None:
        if isinstance(settings, Settings):
            opened = open_sqlite(
                url.path,
                readers=settings.database.readers,
                busy_seconds=settings.database.busy_seconds,
                cipher=cipher,
            )
        else:
            opened = open_sqlite(url.path, cipher=cipher)
        async with opened as db:
            yield db
        return
    try:
        from clew.stores.postgres import open_postgres  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as exc:
        raise ConfigError("Postgres needs another package: pip install 'clew-server[postgres]'") from exc
    dsn = url.reveal()
    if _is_pooled(url, settings):
        dsn += f"{'&' if '?' in dsn else '?'}pgbouncer=true"
    if isinstance(settings, Settings):
        database = settings.database
        deadline = database.acquire_seconds + database.statement_seconds
        opening = open_postgres(
            dsn,
            pool_min=database.pool_min,
            pool_max=database.pool_max,
            deadline=deadline,
            connect_seconds=database.connect_seconds,
            cipher=cipher,
        )
    else:
        opening = open_postgres(dsn, cipher=cipher)
    async with opening as server:
        yield server


def _is_pooled(url: DatabaseUrl, settings: Settings | str) -> bool:
    if isinstance(settings, Settings) and settings.database.transaction_pooler != "auto":
        return settings.database.transaction_pooler == "yes"
    return url.is_transaction_pooler


def utc_now() -> datetime:
    return datetime.now(UTC)


async def open_clock(db: Database) -> Clock:
    """The clock by which events are dated: that of the database, where its machine may be another."""
    if isinstance(db, SQLiteDatabase):
        return utc_now
    clock = DatabaseClock(db, utc_now)
    await clock.measure()
    return clock


def new_id() -> str:
    return str(uuid7())


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncGenerator[Stores]:
    """Open the database the settings name, made and migrated as needed. Raises ConfigError if that cannot be done."""
    url = settings.database.url
    make_folder(url)
    has_jobs = settings.runner.kind == "workers"
    async with open_database(url, settings) as db:
        if has_jobs:
            await migrate_job_queue(db)
        yield stores_on(db, has_jobs=has_jobs)


def make_folder(url: DatabaseUrl) -> None:
    """Clew's folder is readable by its owner only and ignored by Git: conversations are private."""
    if url.path is None or url.path.parent.exists():
        return
    try:
        url.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if url.path.parent.name == ".clew":
            (url.path.parent / ".gitignore").write_text("*\n", "utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot make the folder {url.path.parent}: {exc.strerror}") from exc


@asynccontextmanager
async def open_graph_database(settings: Settings, db: Database) -> AsyncGenerator[Database]:
    """The database of the graph store: `db` itself, unless the settings name another."""
    if settings.graph_store_url == settings.database.url:  # also in memory, which cannot be opened twice
        yield db
    else:
        async with open_database(settings.graph_store_url, settings) as other:
            yield other


def open_thread_memory(db: Database, graph_db: Database) -> ThreadMemory | None:
    """None where both are one database."""
    if graph_db is db:
        return None
    return ThreadMemory(tombstones=TombstoneRows(db), memory=TombstoneRows(graph_db))


def open_cleanup(
    stores: Stores, graph_db: Database, path: Path | None, *, lease: timedelta, ttl: timedelta
) -> Cleanup:
    """A cleanup without a server: no request waits for it, so it runs to the end. `path` is as in `open_space`."""
    return Cleanup(
        rows=CleanupRows(stores.db),
        memory=CleanupRows(graph_db),
        cluster_state=ClusterStateRows(stores.db),
        store=stores.threads,
        calls=stores.calls,
        space=open_space(stores.db, path),
        clock=utc_now,
        new_id=new_id,
        evict=lambda _: None,
        lease=lease,
        budget_seconds=inf,
        ttl=ttl,
    )


def stores_on(db: Database, *, has_jobs: bool = False) -> Stores:
    return Stores(
        db=db,
        threads=open_threads(db, has_jobs=has_jobs),
        calls=CallRows(db),
        summaries=SummaryRows(db),
        audit=ModelCallRows(db),
        audit_trail=AuditRows(db),
        queue=QueueRows(db),
        spending=SpendingRows(db),
        files=FileRows(db),
        inbox=InboxRows(db),
        keys=KeyRows(db),
        assistants=AssistantRows(db),
        numbers=NumberRows(db),
    )
