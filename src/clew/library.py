"""What people use who bring a graph of their own and do not run our server: a checkpointer and a store, opened by a URL."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import TTLConfig

from clew.config import DatabaseUrl, Settings, read_database_url
from clew.domain.errors import ConfigError
from clew.graph.checkpoints import Checkpointer
from clew.graph.store import GraphStore
from clew.ports import Histories
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.histories import HistoryRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.work import Database
from clew.stores.sqlite import open_sqlite


class UnknownBackend(ConfigError, ValueError):
    """No database of ours has such a URL."""


@asynccontextmanager
async def create_graph_store(
    settings: Settings | str, *, tenant: str = "", ttl: TTLConfig | None = None
) -> AsyncGenerator[GraphStore]:
    """A store for `graph.compile(store=...)`, set up and open until the block ends.

    `settings` are ours, or a URL: `sqlite:////absolute/path.db`, `postgresql://...`, `memory://`.
    """
    url = settings.graph_store_url if isinstance(settings, Settings) else _url(settings)
    async with _shared(url, settings) as db:
        yield GraphStore(ItemRows(db), _histories(db, url), backend=url.kind, tenant=tenant, ttl=ttl)


@asynccontextmanager
async def create_checkpointer(
    settings: Settings | str, *, serde: SerializerProtocol | None = None
) -> AsyncGenerator[Checkpointer]:
    """A checkpointer for `graph.compile(checkpointer=...)`, set up and open until the block ends; the same URLs."""
    url = settings.database.url if isinstance(settings, Settings) else _url(settings)
    async with _shared(url, settings) as db:
        yield Checkpointer(CheckpointRows(db), serde=serde)


def _histories(db: Database, url: DatabaseUrl) -> Histories:
    if url.kind != "postgres":
        return HistoryRows(db)
    from clew.stores.postgres_histories import open_histories  # noqa: PLC0415 - needs the extra, which is here

    return open_histories(db)


def _url(text: str) -> DatabaseUrl:
    try:
        return read_database_url(text)
    except ConfigError as exc:
        raise UnknownBackend(str(exc)) from None


@dataclass(slots=True)
class _Open:
    """A database and how many use it."""

    users: int = 0
    db: Database | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)


_open: dict[tuple[asyncio.AbstractEventLoop, DatabaseUrl], _Open] = {}


@asynccontextmanager
async def _shared(url: DatabaseUrl, settings: Settings | str) -> AsyncGenerator[Database]:
    """One database for all who name it in this event loop: two writers on one file would wait for each other."""
    if url.kind == "memory":
        async with open_sqlite(None) as db:
            yield db
        return
    key = (asyncio.get_running_loop(), url)
    entry = _open.setdefault(key, _Open())
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
    if url.dsn is None:
        async with open_sqlite(url.path) as db:
            yield db
        return
    try:
        from clew.stores.postgres import open_postgres  # noqa: PLC0415 - an extra, not everybody has it
    except ModuleNotFoundError as exc:
        raise ConfigError("Postgres needs another package: pip install 'clew[postgres]'") from exc
    dsn = url.reveal()
    if _is_pooled(url, settings):
        dsn += f"{'&' if '?' in dsn else '?'}pgbouncer=true"
    if isinstance(settings, Settings):
        database = settings.database
        deadline = database.acquire_seconds + database.statement_seconds
        opening = open_postgres(
            dsn, pool_min=database.pool_min, pool_max=database.pool_max, deadline=deadline
        )
    else:
        opening = open_postgres(dsn)
    async with opening as server:
        yield server


def _is_pooled(url: DatabaseUrl, settings: Settings | str) -> bool:
    if isinstance(settings, Settings) and settings.database.transaction_pooler != "auto":
        return settings.database.transaction_pooler == "yes"
    return url.is_transaction_pooler
