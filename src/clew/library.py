"""What people use who bring a graph of their own and do not run our server: a checkpointer and a store, opened by a URL."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import TTLConfig

from clew.config import DatabaseUrl, Settings, read_database_url
from clew.domain.errors import ConfigError
from clew.graph.checkpoints import Checkpointer
from clew.graph.store import GraphStore
from clew.opening import open_database, open_histories
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.work import Database


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
    async with open_database(url, settings) as db:
        yield graph_store_on(db, backend=url.kind, tenant=tenant, ttl=ttl)


def graph_store_on(
    db: Database, *, backend: str, tenant: str = "", ttl: TTLConfig | None = None
) -> GraphStore:
    return GraphStore(ItemRows(db), open_histories(db), backend=backend, tenant=tenant, ttl=ttl)


@asynccontextmanager
async def create_checkpointer(
    settings: Settings | str, *, serde: SerializerProtocol | None = None
) -> AsyncGenerator[Checkpointer]:
    """A checkpointer for `graph.compile(checkpointer=...)`, set up and open until the block ends; the same URLs."""
    url = settings.database.url if isinstance(settings, Settings) else _url(settings)
    async with (
        open_database(url, settings) as db,
        aclosing(Checkpointer(CheckpointRows(db), serde=serde)) as saver,
    ):
        yield saver


def _url(text: str) -> DatabaseUrl:
    try:
        return read_database_url(text)
    except ConfigError as exc:
        raise UnknownBackend(str(exc)) from None
