"""Vectors in Postgres: the extension pgvector."""

import asyncpg

from clew.domain.errors import ClewError, ConfigError
from clew.stores.sql.work import Database, Statement, Work


async def require_pgvector(db: Database) -> None:
    """Create the extension in this database if it is not there. Raises ConfigError."""
    if await db.read(_is_there):
        return
    try:
        await db.write(_create)
    except (ClewError, asyncpg.PostgresError) as exc:
        raise ConfigError(
            "store.index needs the Postgres extension `vector` (pgvector) in this database: install it on the database"
            " server, let an administrator run CREATE EXTENSION vector, or remove store.index"
        ) from exc


def _is_there() -> Work[bool]:
    rows = yield Statement("SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'vector'")
    return bool(rows)


def _create() -> Work[None]:
    yield Statement("CREATE EXTENSION IF NOT EXISTS vector")
