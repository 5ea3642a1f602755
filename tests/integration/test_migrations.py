"""From any older version to the newest: the same database, whichever way it came there."""

import asyncio
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from clew.domain.errors import ClewError, ConfigError
from clew.stores.migrations import Migration, migrations
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql import migrate
from clew.stores.sql.work import Database
from tests.databases import later_migrations, open_database, open_store, query, schema_of
from tests.samples import opened

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
NEWEST = len(migrations("sqlite"))


@pytest.fixture(params=["sqlite", "postgres"])
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def new(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes as many empty databases as are asked for."""
    if dialect == "sqlite":
        numbers = count()
        return lambda: str(tmp_path / f"{next(numbers)}.sqlite")
    new_url: Callable[[str], str] = request.getfixturevalue("new_postgres_url")
    return lambda: new_url("template1")


def know(monkeypatch: pytest.MonkeyPatch, known: list[Migration]) -> None:
    """Run a Clew that knows these migrations and no others."""
    monkeypatch.setattr(migrate, "migrations", lambda dialect: known)


@pytest.mark.fault("U1")
async def test_a_fresh_database_equals_one_that_grew_step_by_step(
    new: Callable[[], str], dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = later_migrations(dialect)
    where = new()
    change = opened()
    for version in range(NEWEST, len(known) + 1):
        know(monkeypatch, known[:version])
        async with open_database(where) as db:
            if version == NEWEST:
                await open_store(db).commit(change)
            seen = await query(db, "SELECT version, name FROM migrations ORDER BY version")
            assert [tuple(row) for row in seen] == [(one.version, one.name) for one in known[:version]]
    async with open_database(where) as db, open_database(new()) as fresh:
        assert await schema_of(db) == await schema_of(fresh)
        assert await open_store(db).get("t1") == change.thread
        assert await open_store(db).read("t1") == list(change.events)
        assert [tuple(row) for row in await query(db, "SELECT * FROM shades")] == [("t1", "dark green")]


async def test_opening_again_changes_nothing(new: Callable[[], str]) -> None:
    where = new()
    seen = []
    for _ in range(2):
        async with open_database(where) as db:
            applied = await query(db, "SELECT version, name, applied_at FROM migrations ORDER BY version")
            seen.append((await schema_of(db), [tuple(row) for row in applied]))
    assert seen[0] == seen[1]
    assert all(applied_at for _, _, applied_at in seen[0][1])


@pytest.mark.fault("U1")
async def test_a_database_of_a_newer_clew_is_refused_and_left_alone(
    new: Callable[[], str], dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = new()
    know(monkeypatch, later_migrations(dialect)[: NEWEST + 1])
    async with open_database(where) as db:
        before = await schema_of(db)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=rf"version {NEWEST + 1}.*up to {NEWEST}.*newer Clew"):
        async with open_database(where):
            pytest.fail("it was opened")
    know(monkeypatch, later_migrations(dialect)[: NEWEST + 1])
    async with open_database(where) as db:
        assert await schema_of(db) == before


@pytest.mark.parametrize("version", [1, 17])
async def test_a_database_from_before_0_1_0_is_refused_and_left_alone(
    new: Callable[[], str], dialect: str, version: int
) -> None:
    where = new()
    async with bare(where) as run:
        await run("CREATE TABLE threads (id TEXT PRIMARY KEY)")
        await run(
            "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT)"
        )
        names = ["threads_and_events", *(f"step_{number}" for number in range(2, version + 1))]
        for number, name in enumerate(names, 1):
            await run(f"INSERT INTO migrations VALUES ({number}, '{name}', 1)")
    another = "another database" if dialect == "postgres" else "another file"
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=rf"at version {version} of a Clew from before 0\.1\.0.*: choose {another}, or"
        ):
            async with open_database(where):
                pytest.fail("it was opened")
    async with bare(where) as run:
        await run("DROP TABLE migrations")
        await run("DROP TABLE threads")
    async with open_database(where) as db:  # the refused attempts created nothing
        await open_store(db).commit(opened())


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("threads", "(subject TEXT)"),
        ("store_items", "(id TEXT)"),
        ("events_by_id", "(id TEXT)"),
        ("migrations", "(id INTEGER, migration TEXT, batch INTEGER)"),
    ],
)
async def test_a_database_of_something_else_is_refused_and_left_alone(
    new: Callable[[], str], dialect: str, table: str, columns: str
) -> None:
    where = new()
    async with bare(where) as run:
        await run(f"CREATE TABLE {table} {columns}")
    another = "another database" if dialect == "postgres" else "another file"
    with pytest.raises(ConfigError, match=f"something else, such as '{table}': choose {another}"):
        async with open_database(where):
            pytest.fail("it was opened")
    async with bare(where) as run:
        await run(f"DROP TABLE {table}")
    async with open_database(where) as db:  # nothing of ours was left behind that would be in our way
        await open_store(db).commit(opened())


async def test_tables_that_are_called_otherwise_are_in_nobodys_way(new: Callable[[], str]) -> None:
    where = new()
    async with bare(where) as run:
        await run("CREATE TABLE recipes (id TEXT)")
    async with open_database(where) as db:
        await open_store(db).commit(opened())
        assert (await open_store(db).get("t1")).id == "t1"
        assert await query(db, "SELECT * FROM recipes") == []


async def test_what_something_else_made_is_in_the_way_of_a_later_version(
    new: Callable[[], str], dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = new()
    async with open_database(where):
        pass
    async with bare(where) as run:
        await run("CREATE TABLE shades (id TEXT)")
    know(monkeypatch, later_migrations(dialect))
    with pytest.raises(ConfigError, match="something else, such as 'shades'"):
        async with open_database(where):
            pytest.fail("it was opened")


@asynccontextmanager
async def bare(where: str) -> AsyncIterator[Callable[[str], Awaitable[object]]]:
    """The database as another program opens it."""
    if where.startswith("postgres"):
        connection = await asyncpg.connect(where)
        try:
            yield connection.execute
        finally:
            await connection.close()
        return
    with closing(sqlite3.connect(where)) as file:

        async def run(sql: str) -> object:
            return file.execute(sql)

        yield run
        file.commit()


@pytest.mark.fault("U3")
async def test_a_migration_that_fails_leaves_the_version_before(
    new: Callable[[], str], dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = new()
    async with open_database(where) as db:
        before = await schema_of(db)
    broken = Migration(
        NEWEST + 1,
        "broken",
        "CREATE TABLE half_done (id TEXT);\nINSERT INTO half_done VALUES ('x');\nNONSENSE;\n",
    )
    know(monkeypatch, [*migrations(dialect), broken])
    for _ in range(2):
        with pytest.raises(Exception, match=r"NONSENSE|syntax"):
            async with open_database(where):
                pytest.fail("it was opened")
    monkeypatch.undo()
    async with open_database(where) as db:
        assert await schema_of(db) == before
        await open_store(db).commit(opened())


@pytest.mark.parametrize("older", [0, 1])
async def test_several_processes_that_start_at_once_migrate_once(
    new: Callable[[], str], dialect: str, older: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = new()
    if older:
        async with open_database(where):
            pass
    know(monkeypatch, later_migrations(dialect))
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(_opener(where)) for _ in range(3)]
        for process in processes:
            assert await process.stdout.readline() == b"ready\n"
        for process in processes:
            process.stdin.write(b"go\n")
        for process in processes:
            output, errors = await process.communicate()
            assert (process.returncode, output.decode()) == (0, f"{list(range(1, NEWEST + 3))}\n"), errors
    async with open_database(where) as db, open_database(new()) as fresh:
        assert await schema_of(db) == await schema_of(fresh)
        assert len(await open_store(db).find()) == 3


@asynccontextmanager
async def _opener(where: str) -> AsyncIterator[Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.opener", where),
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_both_databases_have_the_same_migrations() -> None:
    assert [(one.version, one.name) for one in migrations("sqlite")] == [
        (one.version, one.name) for one in migrations("postgres")
    ]


async def test_both_databases_have_the_same_columns(empty_postgres_url: str) -> None:
    async with open_database("memory") as sqlite, open_database(empty_postgres_url) as postgres:
        assert await _columns(sqlite) == await _columns(postgres)


async def _columns(db: Database) -> set[tuple[str, str]]:
    rows = await query(
        db,
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        if isinstance(db, PostgresDatabase)
        else "SELECT s.name, c.name FROM sqlite_schema AS s JOIN pragma_table_info(s.name) AS c"
        " WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite_%'",
    )
    # FTS5 keeps its index in tables of its own, by the number of a row; Postgres in an index.
    fts5 = {("message_words", "word_row")}
    return {(table, column) for table, column in rows if not table.startswith("message_index")} - fts5


def test_a_migration_holds_no_transaction_of_its_own() -> None:
    """Each runs inside ours, with its version row; a COMMIT in the file would cut it in two."""
    words = re.compile(r"^\s*(COMMIT|ROLLBACK|SAVEPOINT|PRAGMA|VACUUM)\b", re.IGNORECASE | re.MULTILINE)
    for dialect in ("sqlite", "postgres"):
        for migration in migrations(dialect):
            assert not words.search(migration.sql), (dialect, migration.name)


async def test_a_new_file_is_durable_and_can_shrink(tmp_path: Path) -> None:
    async with open_database(str(tmp_path / "clew.sqlite")) as db:
        for pragma, expected in (("journal_mode", "wal"), ("synchronous", 2), ("auto_vacuum", 2)):
            assert (await query(db, f"PRAGMA {pragma}"))[0][0] == expected


async def test_a_folder_that_cannot_be_made_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClewError, match="file"):
        async with open_database(str(tmp_path / "file" / "clew.sqlite")):
            pytest.fail("it was opened")
