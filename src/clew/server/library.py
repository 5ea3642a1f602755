"""Library use without the server: a checkpointer and a store for a user's own graph, opened by a URL."""

from collections.abc import AsyncGenerator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from datetime import timedelta
from types import TracebackType

from anyio.from_thread import start_blocking_portal
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import IndexConfig, TTLConfig

from clew.checkpointer.saver import Checkpointer
from clew.config import DatabaseUrl, Settings, StoreTtl, read_database_url
from clew.domain.errors import ConfigError
from clew.domain.retention import Selection, owned_by
from clew.history.embedding import EmbeddedItems
from clew.history.graph_store import DEFAULT_TENANT, GraphStore
from clew.server.database import open_cleanup, open_database, open_graph_database, open_histories, stores_on
from clew.server.store_index import open_index, require_vectors
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.quotas import StoredBytes
from clew.stores.sql.work import Database

# A server resumes a killed cleanup after this long.
LEASE = timedelta(seconds=30)
# Not used for what is deleted by its owner.
TTL = timedelta(days=30)


class UnknownBackend(ConfigError, ValueError):
    """Clew has no database for such a URL."""


@asynccontextmanager
async def create_graph_store(
    settings: Settings | str,
    *,
    tenant: str = DEFAULT_TENANT,
    ttl: TTLConfig | None = None,
    index: IndexConfig | None = None,
) -> AsyncGenerator[GraphStore]:
    """A store for `graph.compile(store=...)`, set up and open until the block ends.

    `settings` are ours, or a URL: `sqlite:////absolute/path.db`, `postgresql://...`, `memory://`. The default tenant is
    the one of bots and servers that name none, so both see the same items and chat histories. `index` is LangGraph's
    configuration of a semantic index: `{"embed": ..., "dims": ..., "fields": [...]}`; without it, that of the settings.
    """
    url = settings.graph_store_url if isinstance(settings, Settings) else _url(settings)
    async with open_database(url, settings) as db:
        made = await open_index(settings, db) if isinstance(settings, Settings) and index is None else None
        if index is not None:
            made = EmbeddedItems.of(index)
            await require_vectors(db, url.kind)
        yield graph_store_on(db, backend=url.kind, tenant=tenant, ttl=ttl, index=made)


def graph_store_on(
    db: Database,
    *,
    backend: str,
    tenant: str = DEFAULT_TENANT,
    ttl: TTLConfig | None = None,
    index: EmbeddedItems | None = None,
    stored: StoredBytes | None = None,
) -> GraphStore:
    items, histories = ItemRows(db), open_histories(db)
    items.stored = histories.stored = stored
    return GraphStore(items, histories, backend=backend, tenant=tenant, ttl=ttl, index=index)


def ttl_config(ttl: StoreTtl) -> TTLConfig:
    """As LangGraph's stores are told."""
    config = TTLConfig(refresh_on_read=ttl.refreshes)
    if ttl.default is not None:
        config["default_ttl"] = ttl.default / timedelta(minutes=1)
    return config


class CheckpointerContext(AbstractAsyncContextManager[Checkpointer], AbstractContextManager[Checkpointer]):
    """A checkpointer for `async with`, or for `with` in a script: then an event loop runs in a thread of its own."""

    def __init__(self, opened: AbstractAsyncContextManager[Checkpointer]) -> None:
        self._opened = opened
        self._stack = ExitStack()

    async def __aenter__(self) -> Checkpointer:
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, exc, trace)

    def __enter__(self) -> Checkpointer:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            saver = stack.enter_context(portal.wrap_async_context_manager(self._opened))
            self._stack = stack.pop_all()
            return saver

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, exc, trace)


def create_checkpointer(
    settings: Settings | str, *, serde: SerializerProtocol | None = None
) -> CheckpointerContext:
    """A checkpointer for `graph.compile(checkpointer=...)`, set up and open until the block ends.

    `async with` in async code, `with` in a script that calls `graph.invoke`. `settings` are ours, or a URL:
    `sqlite:////absolute/path.db`, `postgresql://...`, `memory://`.
    """
    return CheckpointerContext(_open_checkpointer(settings, serde))


@asynccontextmanager
async def _open_checkpointer(
    settings: Settings | str, serde: SerializerProtocol | None
) -> AsyncGenerator[Checkpointer]:
    url = settings.database.url if isinstance(settings, Settings) else _url(settings)
    async with (
        open_database(url, settings) as db,
        aclosing(Checkpointer(CheckpointRows(db), serde=serde)) as saver,
    ):
        yield saver


async def delete_by_tenant(settings: Settings | str, tenant: str) -> int:
    """Delete all threads of a tenant with everything that belongs to them; returns how many. The same URLs.

    Raises Invalid for an empty name: nothing is deleted that belongs to no tenant in particular. Raises InvalidState
    while another cleanup is under way.
    """
    return await _delete(settings, owned_by(tenant))


async def delete_by_user(settings: Settings | str, user_id: str, *, tenant: str = "default") -> int:
    """The same for one user of a tenant. Threads without a user stay."""
    return await _delete(settings, owned_by(tenant, user_id))


async def _delete(settings: Settings | str, wanted: Selection) -> int:
    url = settings.database.url if isinstance(settings, Settings) else _url(settings)
    async with open_database(url, settings) as db, _memory(settings, db) as graph_db:
        cleanup = open_cleanup(stores_on(db), graph_db, url.path, lease=LEASE, ttl=TTL)
        job = (await cleanup.delete_all(wanted)).job
        await cleanup.give_back()
    return job.deleted if job else 0


def _memory(settings: Settings | str, db: Database) -> AbstractAsyncContextManager[Database]:
    """Where chat histories and store items are: a URL names one database for everything."""
    return open_graph_database(settings, db) if isinstance(settings, Settings) else nullcontext(db)


def _url(text: str) -> DatabaseUrl:
    try:
        return read_database_url(text)
    except ConfigError as exc:
        raise UnknownBackend(str(exc)) from None
