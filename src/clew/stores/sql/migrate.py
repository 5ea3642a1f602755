"""Brings a database to the newest version: each migration in one transaction with its version row."""

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
    """Apply what this database has not seen. Killed at any moment, the next call goes on where this one stood.

    Raises ConfigError when the database was written by a newer version of Clew, or when something else has tables in
    it that are called like ours; nothing is written then.
    """
    known = migrations(dialect)
    await _require_room(db, dialect, known)
    await db.write(lambda: version_table(dialect))
    applied = await db.read(versions)
    if newer := [version for version in applied if version > len(known)]:
        raise ConfigError(
            f"the database is at version {max(newer)}, this Clew knows versions up to {len(known)}: run a newer Clew"
        )
    for migration in known[len(applied) :]:
        await db.write(lambda migration=migration: apply(migration))  # type: ignore[misc]


async def is_current(db: Database, dialect: str) -> bool:
    """Whether every migration was applied, and none that this version of Clew does not know. Writes nothing."""
    if "migrations" not in await db.read(lambda: taken(dialect)):
        return False
    if VERSION_COLUMNS.difference(await db.read(lambda: version_columns(dialect))):
        return False
    return await db.read(versions) == [migration.version for migration in migrations(dialect)]


async def _require_room(db: Database, dialect: str, known: list[Migration]) -> None:
    # In this order: what another process makes in between is known to be ours by the versions, which are read later.
    names = await db.read(lambda: taken(dialect))
    applied: list[int] = []
    if "migrations" in names:
        if VERSION_COLUMNS.difference(await db.read(lambda: version_columns(dialect))):
            raise _foreign("migrations", dialect)
        applied = await db.read(versions)
    ours = set(_made(known[: len(applied)]))
    for name in _made(known[len(applied) :]):
        if name in names and name not in ours:
            raise _foreign(name, dialect)


def _made(known: list[Migration]) -> list[str]:
    """What these migrations make, in their order."""
    return [name for migration in known for name in _MADE.findall(migration.sql)]


def _foreign(name: str, dialect: str) -> ConfigError:
    another = "another database" if dialect == "postgres" else "another file"
    return ConfigError(f"the database holds tables of something else, such as {name!r}: choose {another}")


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
    if dialect == "postgres":  # two starts that both create the table at once would stumble over each other
        yield Statement(f"SELECT pg_advisory_xact_lock({LOCK})")
    yield Statement(
        "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT)"
    )


def versions() -> Work[list[int]]:
    rows = yield Statement("SELECT version FROM migrations ORDER BY version")
    return [version for (version,) in rows]


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
