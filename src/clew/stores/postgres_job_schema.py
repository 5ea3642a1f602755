"""Schema of the job queue: Procrastinate's tables and functions beside ours, with the migrations of the installed version."""

from importlib.metadata import version
from importlib.resources import files

from procrastinate.schema import SchemaManager

from clew.domain.errors import ConfigError
from clew.stores.migrations import migrations
from clew.stores.sql.migrate import LOCK, taken
from clew.stores.sql.work import Database, Script, Statement, Work


async def migrate_jobs(db: Database) -> None:
    """Create the engine's schema beside ours, or bring it to the version of the installed engine. Raises ConfigError."""
    await db.write(_migrate)


def _migrate() -> Work[None]:
    yield Statement(f"SELECT pg_advisory_xact_lock({LOCK})")
    names = yield from taken("postgres")
    if "job_queue_migrations" not in names:
        if "procrastinate_jobs" in names:
            raise ConfigError(
                "the database has tables of Procrastinate that another program made: choose another database or schema"
            )
        yield Script("CREATE TABLE job_queue_migrations (name TEXT PRIMARY KEY, applied_at BIGINT NOT NULL)")
        yield Script(SchemaManager.get_schema())
        for name, _ in _engine_migrations():
            yield from _note(name)
    rows = yield Statement("SELECT name FROM job_queue_migrations")
    applied = {name for (name,) in rows}
    known = [*_engine_migrations(), *_own_migrations()]
    if newer := applied.difference(name for name, _ in known):
        raise ConfigError(
            f"the job queue in the database is newer than Procrastinate {version('procrastinate')}, which lacks"
            f" {min(newer)}: install the newer one"
        )
    for name, sql in known:
        if name not in applied:
            yield Script(sql)
            yield from _note(name)


def _note(name: str) -> Work[None]:
    yield Statement(
        "INSERT INTO job_queue_migrations (name, applied_at) VALUES ($1, clew_now())",
        (name,),
    )


def _engine_migrations() -> list[tuple[str, str]]:
    folder = files("procrastinate.sql") / "migrations"
    found = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    return [(file.name, file.read_text("utf-8")) for file in found]


def _own_migrations() -> list[tuple[str, str]]:
    return [(f"clew_{one.version:04}_{one.name}", one.sql) for one in migrations("job_queue")]
