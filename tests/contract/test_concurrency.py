"""Many callers and several processes at once."""

import asyncio
import json
import random
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.domain.errors import Conflict, Unavailable
from clew.domain.events import rebuild
from clew.ports.threads import Store
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql.work import Database, Statement, Work
from clew.stores.sqlite import SQLiteDatabase
from tests.contract import appender
from tests.databases import SHARED, open_database, open_store, query
from tests.samples import asks, opened, recorded, said

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def append_in_processes(processes: int, where: str, tasks: int, count: int, *threads: str) -> list[Any]:
    """What each of the processes reports; they begin together."""
    running = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.contract.appender", where, str(tasks), str(count), *threads),
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(processes)
    ]
    reports = await asyncio.gather(*(process.communicate() for process in running))
    for process, (_, errors) in zip(running, reports, strict=True):
        assert process.returncode == 0, errors.decode()
    return [json.loads(output) for output, _ in reports]


async def check_log(store: Store, acked: list[tuple[str, int, str]], thread_id: str) -> None:
    """Dense, nothing acknowledged missing or twice, and the row is what the log tells."""
    # The row first, and the log as far as it knows it: of those who went away something may still be written.
    thread = await store.get(thread_id)
    log = await store.read(thread_id, before=thread.last_seq + 1)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    stored = {(event.seq, event.id) for event in log}
    told = [(seq, event_id) for thread, seq, event_id in acked if thread == thread_id]
    assert len(told) == len(set(told))
    assert set(told) <= stored
    assert rebuild(log) == thread


@pytest.mark.fault("B4")
@pytest.mark.accept("002-5")
@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_16_tasks_in_each_of_2_processes_append_to_one_thread(where: str) -> None:
    async with open_database(where) as db:
        await open_store(db).commit(opened())
        reports = await append_in_processes(2, where, 16, 3, "t1")
        acked = [tuple(one) for report in reports for one in report]
        assert len(acked) == 2 * 16 * 3 * 2
        await check_log(open_store(db), acked, "t1")
        assert (await open_store(db).get("t1")).last_seq == 2 + len(acked)


@pytest.mark.accept("002-5")
async def test_16_tasks_append_to_one_thread(store: Store) -> None:
    await store.commit(opened())
    acked = await asyncio.gather(*(appender.append(store, "t1", 4) for _ in range(16)))
    await check_log(store, [one for task in acked for one in task], "t1")


@pytest.mark.fault("B4")
@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_4_processes_with_8_tasks_each_never_hear_that_the_database_is_locked(where: str) -> None:
    threads = [f"t{n}" for n in range(8)]
    async with open_database(where) as db:
        for thread_id in threads:
            await open_store(db).commit(opened(thread_id))
        reports = await append_in_processes(4, where, 8, 10, *threads)
        acked = [tuple(one) for report in reports for one in report]
        assert len(acked) == 4 * 8 * 10 * 2
        for thread_id in threads:
            await check_log(open_store(db), acked, thread_id)


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_processes_that_start_and_stop_disturb_nobody(where: str) -> None:
    """The last one to close a SQLite file removes its WAL while the next one opens it."""
    async with open_database(where) as db:
        await open_store(db).commit(opened())

    async def come_and_go(n: int) -> None:
        for _ in range(6):
            async with open_database(where) as db:
                thread = await open_store(db).get("t1")
                assert thread.last_seq >= 2
                await open_store(db).commit(opened(f"t{n}-{random.random()}"))

    await asyncio.gather(*(come_and_go(n) for n in range(4)))


async def no_open_transaction(db: Database, where: str) -> bool:
    if isinstance(db, PostgresDatabase):
        rows = await query(
            db,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%'",
        )
        return int(rows[0][0]) == 0
    if isinstance(db, SQLiteDatabase) and where != "memory":
        with closing(sqlite3.connect(where, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False  # the writer may still be at it: nobody waits for the work of those who went
            other.execute("ROLLBACK")
    return True


@pytest.mark.fault("B9")
@pytest.mark.parametrize("seed", [1, 2])
async def test_200_callers_that_go_away_leave_nothing_open(
    store: Store, database: Database, where: str, seed: int
) -> None:
    chance = random.Random(seed)
    ids = [f"t{n}" for n in range(40)]
    for thread_id in ids:
        await store.commit(opened(thread_id))
    for _ in range(5):
        threads = [await store.get(thread_id) for thread_id in ids]
        changes = [recorded(thread, said(), asks(f"c{thread.last_seq}")) for thread in threads]
        writers = [asyncio.create_task(store.commit(change)) for change in changes]
        readers = [asyncio.create_task(store.read(thread_id)) for thread_id in ids]
        going = chance.sample([*writers, *readers], 40)
        for caller in going:
            if chance.random() < 0.5:
                await asyncio.sleep(0)  # some have begun, some have not, some are done
            caller.cancel()
        await asyncio.gather(*writers, *readers, return_exceptions=True)
        async with asyncio.timeout(30):
            while not await no_open_transaction(database, where):
                await asyncio.sleep(0.01)
        for change, writer in zip(changes, writers, strict=True):
            stored = await store.get(change.thread.id)
            assert stored.last_seq in (change.read_at, change.thread.last_seq), "all of it or nothing"
            assert stored.last_seq == change.thread.last_seq or writer in going
            await check_log(store, [], change.thread.id)
    await store.commit(opened("the next one"))


async def test_closing_finishes_what_was_asked_for_and_leaves_nobody_waiting(where: str) -> None:
    async with open_database(where) as db:
        store = open_store(db)
        callers = [asyncio.create_task(store.commit(opened(f"t{n}"))) for n in range(50)]
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, Unavailable) for outcome in outcomes)
    with pytest.raises(Unavailable):
        await store.commit(opened("late"))
    with pytest.raises(Unavailable):
        await store.get("t1")
    with pytest.raises(Unavailable):
        await store.read("t1")
    if where != "memory":
        async with open_database(where) as db:
            stored = {thread.id for thread in await open_store(db).find(limit=99)}
        assert {f"t{n}" for n, outcome in enumerate(outcomes) if outcome is None} <= stored


async def test_a_failure_nobody_expected_reaches_its_caller_and_nobody_else(database: Database) -> None:
    """A bug in a unit of work must not take the writer down."""

    class Surprise(BaseException):
        pass

    def broken() -> Work[None]:
        yield Statement("SELECT 1")
        raise Surprise

    store = open_store(database)
    await store.commit(opened())
    with pytest.raises((Surprise, Conflict)):
        await database.write(broken)
    async with asyncio.timeout(30):
        await store.commit(recorded((await store.get("t1")), said()))


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_a_batch_that_ends_in_a_deadlock_is_saved_one_by_one(where: str, store: Store) -> None:
    changes = [opened(f"t{n}") for n in range(8)]
    for change in changes:
        await store.commit(change)
    locking = "SELECT 1 FROM threads WHERE id = %s FOR UPDATE"
    async with await psycopg.AsyncConnection.connect(where) as other, asyncio.timeout(30):
        # So that the batch is the one to notice, and to give way; unless we are so late that it has looked before.
        await other.execute("SET deadlock_timeout = '3s'")
        await other.execute(locking, ["t7"])
        saving = [asyncio.create_task(store.commit(recorded(change.thread, said()))) for change in changes]
        await _waits_for_a_lock(where)
        with suppress(psycopg.errors.DeadlockDetected):
            for n in range(7):
                await other.execute(locking, [f"t{n}"])
        await other.rollback()
        await asyncio.gather(*saving)
    assert [(await store.get(f"t{n}")).last_seq for n in range(8)] == [3] * 8


async def _waits_for_a_lock(where: str) -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with await psycopg.AsyncConnection.connect(where, autocommit=True) as watcher:
        while await (await watcher.execute(waiting)).fetchone() is None:
            await asyncio.sleep(0.01)
