"""Deleting a thread is complete and final."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import psycopg
import pytest

from clew.domain.errors import ClewError, NotFound
from clew.domain.records import ContentItem, Document, Incoming, ModelCall, Summary
from clew.domain.runs import SOURCE
from clew.domain.thread import Owner
from clew.ports.checkpoints import TaskWrites
from clew.ports.files import Files
from clew.ports.guards import Admits, Fence, Once
from clew.ports.inbox import Inbox
from clew.ports.model_calls import ModelCalls, Summaries
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.purge import FORGET_BURIED
from clew.stores.sql.work import Database, Value
from tests.databases import SHARED, open_database, open_store, query
from tests.samples import NOW, asks, new_id, opened, recorded, said

pytestmark = pytest.mark.anyio

# Tombstones remember which threads must not come back; the audit trail remembers what was done with them.
KEPT = {"tombstones", "audit"}


async def tables_of_threads(db: Database) -> dict[str, list[tuple[str, str]]]:
    """Every table that has rows of a thread, with the columns that must be given, as the database itself tells it."""
    if isinstance(db, PostgresDatabase):
        found = await query(
            db,
            "SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c"
            " JOIN information_schema.tables t USING (table_schema, table_name)"
            " WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'"
            " AND c.is_identity = 'NO' AND (c.is_nullable = 'NO' OR c.column_name = 'thread_id')"
            " ORDER BY 1, c.ordinal_position",
        )
    else:
        found = await query(
            db,
            "SELECT s.name, c.name, c.type FROM sqlite_schema AS s JOIN pragma_table_info(s.name) AS c"
            " WHERE s.type = 'table' AND (c.\"notnull\" OR c.pk OR c.name = 'thread_id') ORDER BY 1, c.cid",
        )
    tables: dict[str, list[tuple[str, str]]] = {}
    for table, column, type_ in found:
        tables.setdefault(table, []).append((column, type_.lower()))
    return {
        table: columns
        for table, columns in tables.items()
        if table not in KEPT and "thread_id" in [column for column, _ in columns]
    }


def value_for(column: str, type_: str, thread_id: str, number: int) -> Value:
    if column == "thread_id":
        return thread_id
    if "int" in type_:
        return number
    if type_ in ("blob", "bytea"):
        return b"x"
    return 0.5 if type_ in ("real", "double precision") else f"{column}-{number}"


async def counts(db: Database, thread_id: str, tables: Sequence[str]) -> dict[str, int]:
    return {
        table: (await query(db, f"SELECT count(*) FROM {table} WHERE thread_id = $1", thread_id))[0][0]
        for table in tables
    }


@pytest.mark.accept("002-39")
async def test_a_purge_empties_every_table_that_knows_threads(store: Store, database: Database) -> None:
    tables = await tables_of_threads(database)
    assert {"events", "tool_calls", "summaries", "model_calls", "documents", "contents"} <= set(tables)
    for number, thread_id in enumerate(("gone", "kept"), 101):
        await store.commit(opened(thread_id))
        for table, columns in tables.items():
            names = ", ".join(column for column, _ in columns)
            marks = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
            values = [value_for(column, type_, thread_id, number) for column, type_ in columns]
            await query(database, f"INSERT INTO {table} ({names}) VALUES ({marks})", *values)
    before = await counts(database, "kept", list(tables))
    assert all(before.values())
    assert await counts(database, "gone", list(tables)) == before
    await store.tombstone("gone", now=NOW)
    while await store.purge(limit=1):
        pass
    assert await counts(database, "gone", list(tables)) == dict.fromkeys(tables, 0)
    assert await counts(database, "kept", list(tables)) == before


@pytest.mark.accept("002-39")
async def test_deleting_answers_once(store: Store) -> None:
    await store.commit(opened())
    await store.tombstone("t1", now=NOW)
    for _ in range(2):
        with pytest.raises(NotFound):
            await store.tombstone("t1", now=NOW)
        with pytest.raises(NotFound):
            await store.get("t1")
        assert await store.find() == []
        await store.purge()


async def test_two_deletions_at_once_one_of_them_was_first(store: Store) -> None:
    for n in range(10):
        await store.commit(opened(f"t{n}"))
        outcomes = await asyncio.gather(
            *(store.tombstone(f"t{n}", now=NOW) for _ in range(2)), return_exceptions=True
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "NotFound"]


@pytest.mark.parametrize("purged", [False, True])
async def test_nothing_comes_back_from_the_dead(
    store: Store,
    calls: Calls,
    summaries: Summaries,
    audit: ModelCalls,
    files: Files,
    inbox: Inbox,
    database: Database,
    purged: bool,
) -> None:
    change = recorded(opened().thread, asks())
    await store.commit(opened())
    await store.commit(change)
    (lease,) = await store.claim("r1", lease=NOW - NOW, limit=1)
    tables = await tables_of_threads(database)
    await store.tombstone("t1", now=NOW)
    if purged:
        assert await store.purge() == ["t1"]
    before = await counts(database, "t1", list(tables))
    late = [
        store.commit(opened(), Once(tenant="acme", key="k", fingerprint="f", response=None)),
        store.commit(opened(owner=Owner(tenant="other"))),
        store.commit(recorded(change.thread, said())),
        store.commit(recorded(change.thread, said()), Fence(lease.fence)),
        store.commit(
            recorded(change.thread, said()),
            Admits(Incoming(source="s", source_id="1", fingerprint="f", payload=None)),
        ),
        store.touch(["t1"], now=NOW, grain=timedelta()),
        store.release("r1", lease),
        calls.start("t1", "c1", fence=lease.fence, now=NOW),
        calls.pause("t1", "c1", fence=lease.fence),
        calls.reschedule("t1", "c1", NOW),
        summaries.add("t1", Summary(from_seq=1, to_seq=2, content="", version="v1", created_at=NOW)),
        audit.add(
            ModelCall(
                id=new_id(), thread_id="t1", turn_ref=1, model="m", rendered_context=None, created_at=NOW
            )
        ),
        files.add_document(
            Document(
                id=new_id(),
                thread_id="t1",
                file_id="f",
                name="",
                ext="",
                mime="",
                size=0,
                sha256="",
                created_at=NOW,
            ),
            [ContentItem(sequence_nr=1, name="", ext="", content_type="", data="")],
        ),
        inbox.admit(
            Incoming(source="s", source_id="2", fingerprint="f", payload=None, thread_id="t1"), now=NOW
        ),
    ]
    for write in late:
        with suppress(ClewError):
            await write
    assert await counts(database, "t1", list(tables)) == before
    assert await store.renew("r1", [lease], lease=NOW - NOW) == {"t1"}
    assert await store.claim("r2", lease=NOW - NOW, limit=9) == []
    with pytest.raises(NotFound):
        await store.get("t1")
    with pytest.raises(NotFound):
        await store.commit(opened())
    while await store.purge():
        pass
    assert await counts(database, "t1", list(tables)) == dict.fromkeys(tables, 0)


@pytest.mark.raw_sql
async def test_what_a_channel_delivered_is_remembered_and_a_run_is_not(
    store: Store, inbox: Inbox, database: Database
) -> None:
    """A channel may deliver it once more."""
    await store.commit(opened())
    for source in ("telegram:bot", SOURCE):
        for number in ("waits", "is done"):
            incoming = Incoming(
                source=source, source_id=number, fingerprint="f", payload="secret", thread_id="t1"
            )
            await inbox.admit(incoming, now=NOW)
            if number == "is done":
                await inbox.withdraw(incoming, now=NOW)
    await store.tombstone("t1", now=NOW)
    while await store.purge():
        pass
    left = await query(database, "SELECT source, thread_id, payload, status FROM inbox")
    assert [tuple(row) for row in left] == 2 * [("telegram:bot", None, "null", "done")]


async def test_purging_goes_in_bounded_steps_and_ends(store: Store) -> None:
    for n in range(5):
        await store.commit(opened(f"t{n}"))
        await store.tombstone(f"t{n}", now=NOW)
    purged = [await store.purge(limit=2) for _ in range(4)]
    assert [len(ids) for ids in purged] == [2, 2, 1, 0]
    assert sorted(thread_id for ids in purged for thread_id in ids) == [f"t{n}" for n in range(5)]


async def age(database: Database, thread_id: str, days: int) -> None:
    """As if it had been deleted, and purged if it is, so long ago."""
    await query(
        database,
        "UPDATE tombstones SET deleted_at = deleted_at - CAST($2 AS BIGINT), purged_at = purged_at - CAST($2 AS BIGINT)"
        " WHERE thread_id = $1",
        thread_id,
        days * 86_400_000_000,
    )


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_who_asks_for_one_thread_waits_for_whoever_is_purging_it(where: str, store: Store) -> None:
    """And a sweep does not: it takes what is free."""
    await store.commit(opened("t1"))
    await store.tombstone("t1", now=NOW)
    with psycopg.connect(where) as sweep:
        sweep.execute("SELECT 1 FROM tombstones WHERE thread_id = 't1' FOR UPDATE")
        assert await store.purge() == []
        asked = asyncio.create_task(store.purge(only="t1"))
        await _waits_for_a_lock(where)
        sweep.rollback()
    assert await asked == ["t1"]


async def test_what_was_deleted_long_ago_is_forgotten(store: Store, database: Database) -> None:
    for thread_id in ("old", "young", "unpurged"):
        await store.commit(opened(thread_id))
    for thread_id in ("old", "young"):
        await store.tombstone(thread_id, now=NOW)
        assert await store.purge() == [thread_id]
    await store.tombstone("unpurged", now=NOW)
    for thread_id, days in (("old", 91), ("young", 89), ("unpurged", 91)):
        await age(database, thread_id, days)
    older = timedelta(days=90)
    assert await store.forget_tombstones(older=older) == 1
    assert await store.forget_tombstones(older=older) == 0
    assert {row[0] for row in await query(database, "SELECT thread_id FROM tombstones")} == {
        "young",
        "unpurged",
    }
    assert await store.purge() == ["unpurged"], "what is not purged yet must be remembered"
    await store.commit(opened("old"))
    assert (await store.get("old")).last_seq == 2, "a new one of the same name"
    with pytest.raises(NotFound):
        await store.commit(opened("young"))


async def test_forgetting_goes_in_bounded_steps(store: Store, database: Database) -> None:
    for n in range(5):
        await store.commit(opened(f"t{n}"))
        await store.tombstone(f"t{n}", now=NOW)
        await age(database, f"t{n}", 91)
    await store.purge()
    forgotten = [await store.forget_tombstones(older=timedelta(0), limit=2) for _ in range(4)]
    assert forgotten == [2, 2, 1, 0]


async def test_a_run_is_refused_also_when_its_thread_is_forgotten(store: Store, database: Database) -> None:
    """What a lease allowed needs no tombstone: without the thread its fence fits nothing."""
    checkpoints = CheckpointRows(database)
    change = opened()
    await store.commit(change)
    (lease,) = await store.claim("r1", lease=timedelta(seconds=30), limit=1)
    await store.tombstone("t1", now=NOW)
    await store.purge()
    assert await store.forget_tombstones(older=timedelta(0)) == 1
    writes = TaskWrites(checkpoint_id="c1", task_id="task", writes=[])
    for late in (
        store.commit(recorded(change.thread, said())),
        store.commit(recorded(change.thread, said()), Fence(lease.fence)),
        checkpoints.put_writes("t1", "", writes, fence=lease.fence),
    ):
        with pytest.raises(NotFound):
            await late
    assert await store.renew("r1", [lease], lease=timedelta(seconds=30)) == {"t1"}
    tables = list(await tables_of_threads(database))
    assert await counts(database, "t1", tables) == dict.fromkeys(tables, 0)


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_forgetting_reads_no_more_than_it_forgets(where: str, database: Database) -> None:
    await query(
        database,
        "INSERT INTO tombstones (thread_id, tenant, deleted_at, purged_at)"
        " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " SELECT 't' || i, 'acme', 0, clew_now() - i FROM n",
    )
    await query(database, "ANALYZE tombstones")
    explain = "EXPLAIN" if isinstance(database, PostgresDatabase) else "EXPLAIN QUERY PLAN"
    day = 86_400_000_000
    plan = await query(database, f"{explain} {FORGET_BURIED}", 90 * day, 1000)
    told = "\n".join(str(tuple(row)) for row in plan)
    assert "tombstones_by_age" in told
    assert "Seq Scan" not in told
    assert "SCAN tombstones" not in told


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_a_deletion_in_the_midst_of_writers_is_final(where: str) -> None:
    async with open_database(where) as one, open_database(where) as two:
        tables = list(await tables_of_threads(one))
        for n in range(10):
            thread_id = f"t{n}"
            await open_store(one).commit(opened(thread_id))
            started = asyncio.Event()
            writers = [
                asyncio.create_task(_write_on(open_store(db), thread_id, started)) for db in (one, two, two)
            ]
            await started.wait()
            await open_store(one).tombstone(thread_id, now=NOW)
            await open_store(two).purge()
            await asyncio.gather(*writers)
            assert await counts(one, thread_id, tables) == dict.fromkeys(tables, 0)


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_opening_a_thread_anew_while_it_is_being_deleted(where: str, store: Store) -> None:
    """The insert waits for the deletion to commit, on a snapshot that does not show the tombstone."""
    await store.commit(opened())
    with psycopg.connect(where) as burial:
        burial.execute("DELETE FROM threads WHERE id = 't1'")
        again = asyncio.create_task(store.commit(opened()))
        await _waits_for_a_lock(where)
        burial.execute("INSERT INTO tombstones (thread_id, tenant, deleted_at) VALUES ('t1', 'acme', 0)")
        burial.commit()
    with pytest.raises(NotFound):
        await again
    with pytest.raises(NotFound):
        await store.get("t1")
    assert await store.purge() == ["t1"]
    assert await store.read("t1") == []


async def _waits_for_a_lock(where: str) -> None:
    async with asyncio.timeout(30):
        with psycopg.connect(where, autocommit=True) as watcher:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            while watcher.execute(waiting).fetchone() is None:
                await asyncio.sleep(0.01)


async def _write_on(store: Store, thread_id: str, started: asyncio.Event) -> None:
    """Append, and open anew, until told that the thread is gone."""
    while True:
        try:
            thread = await store.get(thread_id)
        except NotFound:
            with pytest.raises(NotFound):
                await store.commit(opened(thread_id))
            return
        with suppress(ClewError):
            await store.commit(recorded(thread, said(), asks()))
        with suppress(ClewError):
            await store.commit(opened(thread_id))
        started.set()
