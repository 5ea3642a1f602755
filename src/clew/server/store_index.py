"""Semantic index of the graph store: its embedding as configured, on a database that compares vectors."""

import logging
from typing import TYPE_CHECKING, Any

from clew.config import Settings
from clew.config.store_index import StoreIndexSource
from clew.domain.errors import ConfigError
from clew.stores.sql.work import Database
from clew.stores.sqlite_vectors import LOADS_EXTENSION

if TYPE_CHECKING:
    from clew.history.embedding import EmbeddedItems

logger = logging.getLogger(__name__)


async def open_index(settings: Settings, db: Database) -> "EmbeddedItems | None":
    """The index of the settings, if there is one. Raises ConfigError."""
    index = load_index(settings)
    if index is not None:
        await require_vectors(db, settings.graph_store_url.kind)
    return index


def load_index(settings: Settings) -> "EmbeddedItems | None":
    """The index without the database that it needs. Raises ConfigError."""
    from clew.history.embedding import EmbeddedItems  # noqa: PLC0415 - LangGraph takes seconds

    source = settings.store_index
    if source is None:
        return None
    embed = source.written if source.path is None else _own_function(source, settings)
    try:
        return EmbeddedItems.of({"embed": embed, "dims": source.dims, "fields": list(source.fields)})
    except ConfigError as exc:
        raise ConfigError(f"{source.where}: {exc}") from exc


async def require_vectors(db: Database, backend: str) -> None:
    """Raises ConfigError for a Postgres server without pgvector; SQLite without sqlite-vec is slower."""
    if backend == "postgres":
        from clew.stores.postgres_vectors import require_pgvector  # noqa: PLC0415 - an extra

        await require_pgvector(db)
    elif not LOADS_EXTENSION:
        logger.warning(
            "sqlite-vec is not installed, or this Python cannot load it: vectors are compared in Python, which is"
            " slow beyond some thousand items"
        )


def _own_function(source: StoreIndexSource, settings: Settings) -> Any:
    from clew.graph.registry import find_object, import_from, reason  # noqa: PLC0415 - LangGraph takes seconds

    import_from(settings.import_paths)
    try:
        return find_object(source)
    except (Exception, SystemExit) as exc:
        raise ConfigError(f"{source.where}: {reason(source, exc)}") from exc
