"""Rows that cannot be read back: only their own thread suffers, and where only a cache is damaged, nobody."""

import asyncio
import random
import sqlite3
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from clew.domain.errors import ClewError, Corrupt, NotFound, StorageFull, Unavailable
from clew.domain.lifecycle import Change, finish
from clew.domain.thread import CANNOT_BE_READ, Owner, Status, Thread
from clew.ports.model_calls import Summaries
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.sql.tool_calls import CallRows
from clew.stores.sql.work import Database, Statement, Work
from clew.stores.sqlite import open_sqlite
from tests.databases import open_database, open_store, query
from tests.samples import NOW, asks, opened, recorded, said, stamp, waits

pytestmark = [pytest.mark.anyio, pytest.mark.raw_sql]


@pytest.fixture
async def threads(store: Store) -> dict[str, Thread]:
    """Three threads that wait for an answer; `bad` is the one to be damaged."""
    made: dict[str, Thread] = {}
    for n, thread_id in enumerate(("good", "bad", "fine")):
        first = opened(thread_id, ttl=timedelta(days=1), seconds=n)
        await store.commit(first)
        then = recorded(first.thread, asks(), said("x"), waits(deadline=NOW))
        await store.commit(then)
        made[thread_id] = then.thread
    return made


@pytest.mark.parametrize(
    "damage",
    [
        "content = ''",
        "content = '{'",
        "content = 'null'",
        'content = \'{"content": {"a": 7}}\'',
        'content = \'["__import__", "os"]\'',
        "type = 'unheard_of'",
        "version = 99",
        "version = 0",
        "at = 9223372036854775807",
        "seq = 77",
    ],
)
async def test_a_damaged_event_is_its_own_threads_trouble(
    store: Store,
    calls: Calls,
    summaries: Summaries,
    database: Database,
    threads: dict[str, Thread],
    damage: str,
) -> None:
    await query(database, f"UPDATE events SET {damage} WHERE thread_id = 'bad' AND seq = 4")
    with pytest.raises(Corrupt, match="bad"):
        await store.read("bad")
    with pytest.raises(Corrupt):
        await summaries.load_since("bad")
    assert len(await store.read("good")) == len(await store.read("fine")) == 5
    # Its row is fine, so it is listed, its log is read up to there, and it can be ended and deleted.
    assert await store.get("bad") == threads["bad"]
    assert len(await store.find()) == 3
    assert len(await store.read("bad", before=4)) == 3
    assert len(await calls.due(now=NOW, limit=9)) == 3
    assert len(await store.claim("r1", lease=timedelta(0), limit=9)) == 0
    await store.commit(finish(threads["bad"], Status.FAILED, stamp=stamp()))
    await store.tombstone("bad", now=NOW)
    assert await store.purge() == ["bad"]
    assert await store.read("bad") == []


@pytest.mark.accept("002-11")
@pytest.mark.parametrize(
    "damage",
    [
        "fsm_state = ''",
        "fsm_state = 'null'",
        "fsm_state = '{}'",
        "fsm_state = '{\"pending\": []}'",
        'fsm_state = \'{"state": "idle", "pending": {}, "last_seq": 5}\'',
        'fsm_state = \'{"state": "idle", "pending": {"c1": {}}, "last_seq": 5}\'',
        "fsm_state = replace(fsm_state, '5', '4')",
        "fsm_state = replace(fsm_state, 'human', 'nobody')",
        "status = 'running'",
        "status = 'dancing'",
        "stats = '[]'",
        "stats = '{\"wishes\": 3}'",
        "settings = '{'",
        "redacted = '7'",
        "round_started_at = -9223372036854775807",
        # False, and nothing in the row contradicts it.
        "fsm_state = replace(fsm_state, 'c1', 'c2')",
        "round = 7",
        "last_seq = 4, fsm_state = replace(fsm_state, '\"last_seq\":5', '\"last_seq\":4')",
        'status = \'completed\', fsm_state = \'{"state":"idle","pending":{},"last_seq":5}\'',
        "failure_reason = 'none'",
        "created_at = created_at - 1",
        "graph = 'another'",
        "seal = seal + 1",
    ],
)
async def test_where_the_row_is_damaged_the_log_tells_the_thread(
    store: Store, calls: Calls, database: Database, threads: dict[str, Thread], damage: str
) -> None:
    await query(database, f"UPDATE threads SET {damage} WHERE id = 'bad'")
    found = await store.get("bad")
    assert found == threads["bad"]
    assert found.fsm_state == threads["bad"].fsm_state
    assert found.expires_at is not None
    # And its row says so again, to whoever looks for threads in the database.
    assert {thread.id: thread for thread in await store.find(status={Status.BLOCKED})} == threads
    change = finish(found, Status.STOPPED, stamp=stamp())
    await store.commit(change)
    assert await store.get("bad") == change.thread
    assert {thread.id for thread in await store.find()} == set(threads)
    assert {call.thread_id for call in await calls.due(now=NOW, limit=9)} == {"good", "fine"}


async def test_another_tenants_name_in_a_row_opens_it_to_nobody(
    store: Store, database: Database, threads: dict[str, Thread]
) -> None:
    await query(database, "UPDATE threads SET tenant = 'thieves' WHERE id = 'bad'")
    with pytest.raises(NotFound):
        await store.get("bad", Owner(tenant="thieves"))
    assert await store.get("bad", threads["bad"].owner) == threads["bad"]
    await query(database, "UPDATE threads SET tenant = 'thieves' WHERE id = 'bad'")
    assert await store.find(Owner(tenant="thieves")) == []


async def test_with_row_and_log_damaged_a_thread_is_corrupt_and_lists_go_on(
    store: Store, database: Database, threads: dict[str, Thread]
) -> None:
    await query(database, "UPDATE threads SET fsm_state = '' WHERE id = 'bad'")
    await query(database, "UPDATE events SET content = '' WHERE thread_id = 'bad' AND seq = 1")
    with pytest.raises(Corrupt):
        await store.get("bad")
    # A list says that it is there and cannot be read; of its status nothing is known.
    assert [thread.id for thread in await store.find()] == ["fine", "bad", "good"]
    shown = (await store.find())[1]
    assert shown == await store.get_listed("bad")
    assert (shown.status, shown.failure_reason) == (Status.FAILED, CANNOT_BE_READ)
    assert (shown.owner, shown.created_at) == (threads["bad"].owner, threads["bad"].created_at)
    assert [thread.id for thread in await store.find(status={Status.BLOCKED}, limit=3)] == ["fine", "good"]
    with pytest.raises(NotFound):
        await store.get_listed("bad", Owner(tenant="thieves"))
    await store.tombstone("bad", now=NOW)
    assert await store.purge() == ["bad"]


@pytest.mark.accept("002-11")
@pytest.mark.parametrize("damage", ["args = '{'", "executor = 'nobody'", "kind = 'x'", "created_at = 1e18"])
async def test_a_damaged_call_is_rebuilt_from_the_log(
    calls: Calls, database: Database, threads: dict[str, Thread], damage: str
) -> None:
    whole = await calls.find("bad")
    for look in (calls.get("bad", "c1"), calls.find("bad"), calls.due(now=NOW, limit=9)):
        await query(database, f"UPDATE tool_calls SET {damage} WHERE thread_id = 'bad'")
        await look
        assert await calls.find("bad") == whole
    assert {call.thread_id for call in await calls.due(now=NOW, limit=9)} == set(threads)


async def test_a_damaged_call_with_a_damaged_log_keeps_nobody_elses_deadline_waiting(
    calls: Calls, database: Database, threads: dict[str, Thread]
) -> None:
    await query(database, "UPDATE tool_calls SET args = '{' WHERE thread_id = 'bad'")
    await query(database, "UPDATE events SET content = '{' WHERE thread_id = 'bad' AND type = 'suspension'")
    for asked in (calls.get("bad", "c1"), calls.find("bad"), calls.rebuild("bad")):
        with pytest.raises(Corrupt):
            await asked
    assert {call.thread_id for call in await calls.due(now=NOW, limit=9)} == {"good", "fine"}
    assert (await calls.get("good", "c1")).thread_id == "good"


@pytest.mark.accept("002-11")
async def test_calls_that_were_lost_are_rebuilt_from_the_log(
    calls: Calls, database: Database, threads: dict[str, Thread]
) -> None:
    whole = await calls.find("bad")
    assert await calls.lost(limit=9) == []
    for look in (calls.get("bad", "c1"), calls.find("bad"), calls.rebuild("bad")):
        await query(database, "DELETE FROM tool_calls WHERE thread_id = 'bad'")
        assert await calls.lost(limit=9) == ["bad"]
        assert await calls.lost(after="bad", limit=9) == []
        await look
        assert await calls.find("bad") == whole
    with pytest.raises(NotFound):
        await calls.get("bad", "c2")


@pytest.mark.fault("B7")
@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
@pytest.mark.parametrize("seed", range(4))
async def test_bytes_flipped_at_random_harm_one_thread_at_most(where: str, seed: int) -> None:
    """What no driver would write: rows that are not even text."""
    chance = random.Random(seed)
    async with open_database(where) as db:
        store, calls = open_store(db), CallRows(db)
        for thread_id in ("good", "bad"):
            first = opened(thread_id)
            await store.commit(first)
            await store.commit(recorded(first.thread, asks(), waits(deadline=NOW)))
        good = (await store.get("good"), await store.read("good"), await calls.find("good"))
        for _ in range(40):
            table, key = chance.choice(
                [("events", "thread_id"), ("threads", "id"), ("tool_calls", "thread_id")]
            )
            columns = [row[1] for row in await query(db, f"PRAGMA table_info({table})")]
            column = chance.choice(
                [name for name in columns if name not in ("id", "thread_id", "tool_call_id")]
            )
            junk = chance.choice(["x'ff'", "CAST(x'fffe00' AS TEXT)", "-1", "1e300", "''", "'{'"])
            with suppress(ClewError):
                await query(db, f"UPDATE {table} SET {column} = {junk} WHERE {key} = 'bad'")
            for look in (store.get("bad"), store.read("bad"), calls.find("bad"), calls.get("bad", "c1")):
                with suppress(Corrupt, NotFound):
                    await look
            assert (await store.get("good"), await store.read("good"), await calls.find("good")) == good
            assert "good" in {thread.id for thread in await store.find()}
            assert "good" in {call.thread_id for call in await calls.due(now=NOW, limit=9)}
        await store.tombstone("bad", now=NOW)
        assert await store.purge() == ["bad"]


@pytest.mark.fault("B5")
@pytest.mark.parametrize("where", ["memory", "sqlite"], indirect=True)
async def test_a_full_disk_refuses_whole_changes_and_heals(store: Store, database: Database) -> None:
    change = opened()
    await store.commit(change)
    for _ in range(20):
        (pages,) = (await query(database, "PRAGMA page_count"))[0]
        await query(database, f"PRAGMA max_page_count = {pages + 4}")
        change = await _grow_until_full(store, change)
        assert await store.get("t1") == change.thread, "reads still work"
        log = await store.read("t1")
        assert [event.seq for event in log] == list(range(1, change.thread.last_seq + 1))
        await query(database, "PRAGMA max_page_count = 1073741823")
        change = await _grow(store, change)
    assert [tuple(row) for row in await query(database, "PRAGMA integrity_check")] == [("ok",)]


async def _grow(store: Store, change: Change) -> Change:
    grown = recorded(change.thread, said("x" * 3000), asks(f"c{change.thread.last_seq}"))
    await store.commit(grown)
    return grown


async def _grow_until_full(store: Store, change: Change) -> Change:
    """The last change that was acknowledged."""
    with suppress(StorageFull):
        for _ in range(1000):
            change = await _grow(store, change)
        pytest.fail("the disk never got full")
    return change


@pytest.mark.fault("B5")
@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
async def test_on_a_full_disk_everybody_who_waits_is_told(where: str) -> None:
    async with open_database(where) as db:
        store = open_store(db)
        threads = [opened(f"t{n}") for n in range(40)]
        for change in threads:
            await store.commit(change)
        (pages,) = (await query(db, "PRAGMA page_count"))[0]
        await query(db, f"PRAGMA max_page_count = {pages + 20}")
        changes = [recorded(change.thread, said("x" * 3000)) for change in threads]
        outcomes = await asyncio.gather(*(store.commit(change) for change in changes), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {StorageFull, type(None)}
        assert StorageFull in {type(outcome) for outcome in outcomes}
        for change, outcome in zip(changes, outcomes, strict=True):
            expected = change.thread.last_seq - (outcome is not None)
            assert (await store.get(change.thread.id)).last_seq == expected


@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
def test_a_file_that_is_no_database_is_told_in_our_words(where: str) -> None:
    Path(where).write_bytes(b"this is not a database, " * 100)

    async def use() -> None:
        async with open_database(where):
            pytest.fail("it was opened")

    with pytest.raises(ClewError, match="database"):
        asyncio.run(use())


@pytest.mark.fault("B7")
@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
def test_a_damaged_page_is_told_in_our_words(where: str) -> None:
    async def write() -> None:
        async with open_database(where) as db:
            await open_store(db).commit(opened())

    async def read() -> None:
        async with open_database(where) as db:
            with pytest.raises(Corrupt):
                await open_store(db).read("t1")
            assert (await open_store(db).get("t1")).id == "t1"

    asyncio.run(write())
    with closing(sqlite3.connect(where)) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'").fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    with Path(where).open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xde\xad" * 50)
    asyncio.run(read())


@pytest.mark.fault("B6")
@pytest.mark.parametrize("look", ["read", "glance", "write"])
async def test_in_the_place_of_a_file_that_was_removed_no_other_is_made(tmp_path: Path, look: str) -> None:
    """Also by one who looks for the first time, and opens it for that."""
    path = tmp_path / "clew.db"
    async with open_sqlite(path) as db:
        for file in _files(tmp_path):
            file.unlink()
        with pytest.raises(Unavailable, match="removed or replaced"):
            await getattr(db, look)(_one)
        assert _files(tmp_path) == []


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def _one() -> Work[int]:
    rows = yield Statement("SELECT 1")
    return int(rows[0][0])
