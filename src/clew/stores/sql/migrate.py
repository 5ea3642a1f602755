"""Migration of a database to the newest version: each file in one transaction with its version row."""

import re
from collections.abc import Collection
from datetime import datetime

from clew.domain.errors import ConfigError
from clew.failpoints import failpoint
from clew.stores.codec import moment
from clew.stores.migrations import Migration, migrations
from clew.stores.sql.work import Database, Script, Statement, Work

# Any number, as long as every Clew knows the same one.
LOCK = 7310434

VERSION_COLUMNS = frozenset({"version", "name", "applied_at"})
_MADE = re.compile(r"^CREATE (?:UNIQUE )?(?:TABLE|INDEX|VIEW) (\w+)", re.MULTILINE)


async def migrate(db: Database, dialect: str) -> None:
    """Apply the migrations this database has not seen. Killed at any moment, the next call continues where this one was.

    Raises ConfigError, before anything is written, for a database of a newer Clew, for one from before 0.1.0, and for
    one in which another program has tables or indexes with our names.
    """
    known = migrations(dialect)
    await _require_ours(db, dialect, known)
    await db.write(lambda: version_table(dialect))
    seen = len(await db.read(versions))
    for migration in known[seen:]:
        await db.write(lambda migration=migration: apply(migration))  # type: ignore[misc]


async def is_current(db: Database, dialect: str) -> bool:
    """Whether the database has seen every migration and no other. Writes nothing."""
    if "migrations" not in await db.read(lambda: taken(dialect)):
        return False
    if VERSION_COLUMNS.difference(await db.read(lambda: version_columns(dialect))):
        return False
    return await db.read(applied) == [(one.version, one.name) for one in migrations(dialect)]


async def _require_ours(db: Database, dialect: str, known: list[Migration]) -> None:
    # In this order: a table that another process creates in between is recognised by the versions, which are read later.
    names = await db.read(lambda: taken(dialect))
    seen: list[tuple[int, str]] = []
    if "migrations" in names:
        if VERSION_COLUMNS.difference(await db.read(lambda: version_columns(dialect))):
            raise _foreign("migrations", dialect)
        seen = await db.read(applied)
    require_upgradable(seen, known, dialect)
    ours = set(_made(known[: len(seen)]))
    for name in _made(known[len(seen) :]):
        if name in names and name not in ours:
            raise _foreign(name, dialect)


def require_upgradable(seen: list[tuple[int, str]], known: list[Migration], dialect: str) -> None:
    if not seen:
        return
    reached, _ = seen[-1]
    # The migrations from before 0.1.0 became one, which has another name than the first of them had.
    if seen[0] != (known[0].version, known[0].name):
        raise ConfigError(
            f"the database is at version {reached} of a Clew from before 0.1.0, which cannot be upgraded: "
            f"choose {_another(dialect)}, or keep using the Clew that wrote it"
        )
    if reached > len(known):
        raise ConfigError(
            f"the database is at version {reached}, this Clew knows versions up to {len(known)}: run a newer Clew"
        )


def _made(known: list[Migration]) -> list[str]:
    """The tables, indexes and views these migrations create, in their order."""
    return [name for migration in known for name in _MADE.findall(migration.sql)]


def _foreign(name: str, dialect: str) -> ConfigError:
    return ConfigError(
        f"the database holds tables of something else, such as {name!r}: choose {_another(dialect)}"
    )


def _another(dialect: str) -> str:
    return "another database" if dialect == "postgres" else "another file"


def taken(dialect: str) -> Work[Collection[str]]:
    """The names that a new table or index cannot have."""
    rows = yield Statement(
        "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema()"
        if dialect == "postgres"
        else "SELECT lower(name) FROM sqlite_schema"
    )
    return {name for (name,) in rows}


def version_columns(dialect: str) -> Work[list[str]]:
    rows = yield Statement(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND table_name = 'migrations'"
        if dialect == "postgres"
        else "SELECT name FROM pragma_table_info('migrations')"
    )
    return [name for (name,) in rows]


def version_table(dialect: str) -> Work[None]:
    if dialect == "postgres":  # two starts that both create the table at once would collide
        yield Statement(f"SELECT pg_advisory_xact_lock({LOCK})")
    yield Statement(
        "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT)"
    )


def versions() -> Work[list[int]]:
    return [version for version, _ in (yield from applied())]


def applied() -> Work[list[tuple[int, str]]]:
    """The version and name of each migration the database has seen, in their order."""
    rows = yield Statement("SELECT version, name FROM migrations ORDER BY version")
    return [(version, name) for version, name in rows]


def begun_at() -> Work[datetime]:
    """When the database was made."""
    ((first,),) = yield Statement("SELECT min(applied_at) FROM migrations")
    return moment(first)


def apply(migration: Migration) -> Work[None]:
    """One file and its version row. Claiming the row first makes a second process that starts now wait, then skip."""
    rows = yield Statement(
        "INSERT INTO migrations (version, name) VALUES ($1, $2) ON CONFLICT (version) DO NOTHING RETURNING version",
        (migration.version, migration.name),
    )
    if rows:
        yield Script(migration.sql)
        failpoint("migration_mid")
        yield Statement(
            "UPDATE migrations SET applied_at = clew_now() WHERE version = $1", (migration.version,)
        )
