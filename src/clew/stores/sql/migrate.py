"""Brings a database to the newest version: each migration in one transaction with its version row."""

from clew.domain.errors import ConfigError
from clew.failpoints import failpoint
from clew.stores.migrations import Migration, migrations
from clew.stores.sql.work import Database, Script, Statement, Work

# Any number, as long as every Clew knows the same one.
LOCK = 7310434


async def migrate(db: Database, dialect: str) -> None:
    """Apply what this database has not seen. Killed at any moment, the next call goes on where this one stood.

    Raises ConfigError when the database was written by a newer version of Clew.
    """
    known = migrations(dialect)
    await db.write(lambda: version_table(dialect))
    applied = await db.read(versions)
    if newer := [version for version in applied if version > len(known)]:
        raise ConfigError(
            f"the database is at version {max(newer)}, this Clew knows versions up to {len(known)}: run a newer Clew"
        )
    for migration in known[len(applied) :]:
        await db.write(lambda migration=migration: apply(migration))  # type: ignore[misc]


def version_table(dialect: str) -> Work[None]:
    if dialect == "postgres":  # two starts that both create the table at once would stumble over each other
        yield Statement(f"SELECT pg_advisory_xact_lock({LOCK})")
    yield Statement(
        "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT)"
    )


def versions() -> Work[list[int]]:
    rows = yield Statement("SELECT version FROM migrations ORDER BY version")
    return [version for (version,) in rows]


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
