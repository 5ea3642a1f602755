"""The databases a contract is checked on: a file, memory, and a real Postgres."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clew.ports.cipher import PLAIN, Cipher
from clew.ports.threads import Store
from clew.stores.migrations import Migration, migrations
from clew.stores.postgres import PostgresDatabase, open_postgres
from clew.stores.postgres_threads import PostgresThreads
from clew.stores.sql.private import BINARY, MARK, PRIVATE
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Database, Rows, Statement, Value, Work
from clew.stores.sqlite import open_sqlite

DATABASES = ("memory", "sqlite", "postgres")
# For tests of the whole app, where memory differs from a file in little: it has its turn in `make faults`.
APP_DATABASES = (pytest.param("memory", marks=pytest.mark.long), "sqlite", "postgres")
SHARED = ("sqlite", "postgres")  # those that several processes can open at once


def locate(kind: str, request: pytest.FixtureRequest) -> str:
    """A fresh database of this kind: `memory`, the path of a file, or the URL of a server's.

    Called from a fixture that is not async: the first one to need Postgres starts it.
    """
    match kind:
        case "memory":
            return kind
        case "sqlite":
            path: Path = request.getfixturevalue("tmp_path")
            return str(path / "clew.sqlite")
        case _:
            url: str = request.getfixturevalue("postgres_url")
            return url


@asynccontextmanager
async def open_database(where: str, cipher: Cipher = PLAIN) -> AsyncGenerator[Database]:
    if where.startswith("postgres"):
        async with open_postgres(where, cipher=cipher) as server:
            yield server
    else:
        async with open_sqlite(None if where == "memory" else Path(where), cipher=cipher) as file:
            yield file


def open_store(db: Database) -> Store:
    """The Store port as the product puts it on this database."""
    return PostgresThreads(db) if isinstance(db, PostgresDatabase) else ThreadRows(db)


async def query(db: Database, sql: str, *args: Value) -> Rows:
    """One statement past every port, for a test that looks behind them or does damage there."""

    def work() -> Work[Rows]:
        return (yield Statement(sql, args))

    return await db.write(work)


async def plain_values(db: Database) -> list[str]:
    """Private columns, as `table.column`, with a value that is not encrypted. `null` is what Clew empties one with."""
    found = []
    for table, spec in PRIVATE.items():
        for column in spec.columns:
            is_empty = "1 = 0" if table in BINARY else f"{column} IN ('null', '')"
            mark = MARK.encode() if table in BINARY else MARK
            rows = await query(
                db,
                f"SELECT count(*) FROM {table} WHERE substr({column}, 1, {len(MARK)}) <> $1 AND NOT {is_empty}",
                mark,
            )
            found += [f"{table}.{column}"] if rows[0][0] else []
    return found


async def schema_of(db: Database) -> list[str]:
    """Everything a migration makes, in words that are equal where two databases are."""
    if isinstance(db, PostgresDatabase):
        rows = await query(
            db,
            "SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default)"
            " FROM information_schema.columns WHERE table_schema = 'public'"
            " UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'"
            " UNION ALL SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint"
            " WHERE connamespace = 'public'::regnamespace"
            " UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        )
    else:
        rows = await query(db, "SELECT coalesce(sql, name) FROM sqlite_schema")
    return sorted(text for (text,) in rows)


def later_migrations(dialect: str) -> list[Migration]:
    """Every migration of this Clew, and two such as a later version may bring: columns, rows, an index, a table."""
    known = migrations(dialect)
    number = len(known)
    colours = """\
-- A comment; with a semicolon.
ALTER TABLE threads ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';
UPDATE threads SET colour = 'green' WHERE tenant <> '';
CREATE INDEX threads_by_colour ON threads (colour);
"""
    shades = """\
CREATE TABLE shades (thread_id TEXT PRIMARY KEY, shade TEXT NOT NULL);
INSERT INTO shades (thread_id, shade) SELECT id, 'dark ' || colour FROM threads;
"""
    return [*known, Migration(number + 1, "colours", colours), Migration(number + 2, "shades", shades)]
