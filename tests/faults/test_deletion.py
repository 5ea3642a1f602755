"""Deletion against everything that goes on meanwhile: runs that write, callers that look, kills, and a clock that jumps."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.errors import InvalidState, NotFound
from clew.domain.events import Opening, RoundFinished
from clew.domain.retention import selection
from clew.domain.thread import Owner, Status
from clew.engine.commands import Request
from clew.ports.threads import Store
from clew.stores.codec import micros
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql.purge import PURGED
from clew.stores.sql.work import Database
from tests.app import House, graphs_yaml, open_house
from tests.databases import DATABASES, SHARED, locate, open_database, open_store, query
from tests.faults.forkserver import ForkServer
from tests.faults.remains import until_gone
from tests.faults.report import Trials
from tests.processes import ROOT, serving
from tests.samples import opened, recorded

DAY = timedelta(days=1)
OTHERS = {
    *("migrations", "api_keys", "numbers", "duties", "cleanups", "used_signatures", "tombstones"),
    *("processes", "turns"),
}
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(params=DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    async with open_house(where, tmp_path) as house:
        yield house


async def rows_left(db: Database) -> dict[str, int]:
    """What is in every table there is, but for those that are about no thread, or about deleted ones."""
    if isinstance(db, PostgresDatabase):
        found = await query(
            db,
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = 'public' AND table_type = 'BASE TABLE'",
        )
    else:
        found = await query(db, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    # An empty index of FTS5 has rows about itself.
    tables = {name for (name,) in found if not name.startswith(("sqlite_", "message_index"))} - OTHERS
    assert set(PURGED) <= tables
    counts = {table: (await query(db, f"SELECT count(*) FROM {table}"))[0][0] for table in tables}
    return {table: count for table, count in counts.items() if count}


async def old_thread(store: Store, db: Database, thread_id: str) -> None:
    change = opened(thread_id, ttl=DAY, owner=Owner())
    await store.commit(change)
    await store.commit(recorded(change.thread, RoundFinished(status=Status.COMPLETED)))
    await query(
        db,
        "UPDATE threads SET last_accessed_at = $2, expires_at = $2 WHERE id = $1",
        thread_id,
        micros(LONG_AGO),
    )


@pytest.mark.fault("C4")
@pytest.mark.anyio
@pytest.mark.accept("003-9")
@pytest.mark.parametrize("threads", [60, pytest.param(200, marks=pytest.mark.long)])
async def test_what_is_deleted_while_it_runs_leaves_nothing_and_does_not_come_back(
    house: House, threads: int
) -> None:
    """C4: many threads deleted at a random moment of their run, all of them looked for at the end."""
    commands, db = house.app.execution.commands, house.app.stores.db
    rolls = random.Random(7)
    places = asyncio.Semaphore(10)

    async def one(number: int) -> None:
        async with places:
            opening = Opening(owner=Owner(), graph="writing" if number % 2 else "two_steps")
            thread = await commands.start(opening, Request(graph_input={"log": ["x" * 200]}))
            await asyncio.sleep(rolls.uniform(0, 0.05))
            await commands.delete(thread.id, Owner())
            with pytest.raises(NotFound):
                await house.app.stores.threads.get(thread.id)

    async with asyncio.timeout(100):
        await asyncio.gather(*(one(number) for number in range(threads)))
    assert await rows_left(db) == {}
    # Whatever was still under way has come to its end by then.
    async with asyncio.timeout(20):
        while await asyncio.sleep(0.5, await rows_left(db)) or any(
            task.get_name().startswith("run ") for task in asyncio.all_tasks()
        ):
            pass
    assert await rows_left(db) == {}


@pytest.mark.fault("C4")
@pytest.mark.accept("003-7", "003-9")
@pytest.mark.parametrize(("threads", "seconds"), [(60, 2), pytest.param(200, 10, marks=pytest.mark.long)])
@pytest.mark.parametrize("where", SHARED, indirect=True)
def test_what_is_deleted_by_http_while_it_runs_leaves_nothing_nor_does_it_come_back(
    where: str, tmp_path: Path, seed: int, trials: Trials, threads: int, seconds: int
) -> None:
    """C4, through a real server: one that runs for ever, one that writes twenty times, one that waits for somebody."""
    rolls = random.Random(seed)
    waits = [rolls.uniform(0, 0.05) for _ in trials.run(threads)]
    (tmp_path / "clew.yaml").write_text(graphs_yaml())
    url = where if where.startswith("postgres") else f"sqlite:///{where}"

    async def left() -> dict[str, int]:
        async with open_database(where) as db:
            return await rows_left(db)

    with (
        serving(tmp_path, CLEW_DATABASE_URL=url, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server,
        httpx.Client(base_url=server.address, timeout=30) as client,
    ):

        def one(number: int) -> str:
            graph = ("endless", "writing", "gated")[number % 3]
            started = client.post(
                "/api/workflows/start", json={"graph": graph, "input": {"log": ["x" * 200]}}
            )
            thread = f"/api/threads/{started.json()['id']}"
            time.sleep(waits[number])
            status = client.get(thread).json()["status"]
            assert client.delete(thread).status_code == 200
            assert client.get(thread).status_code == 404
            assert client.delete(thread).status_code == 404
            return str(status)

        with ThreadPoolExecutor(8) as pool:
            statuses = Counter(pool.map(one, range(len(waits))))
        assert statuses["running"] >= trials.made / 4 - 1, statuses
        until = time.monotonic() + seconds
        while True:
            assert asyncio.run(left()) == {}
            if time.monotonic() >= until:
                break
            time.sleep(1)


@pytest.mark.anyio
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_a_deletion_ends_the_run_in_whichever_process_it_is(
    where: str, tmp_path: Path, soft: bool
) -> None:
    """A node that would sleep for a minute, and writes nothing by which its process would notice."""
    lease = {"CLEW_RUNNER_LEASE_SECONDS": "0.5"}
    async with open_house(where, tmp_path, **lease) as here, open_house(where, tmp_path, **lease) as there:
        thread = await here.start("slow", log=[])
        runs = [task for task in asyncio.all_tasks() if task.get_name() == f"run {thread.id}"]
        commands = there.app.execution.commands
        await (commands.soft_delete if soft else commands.delete)(thread.id, Owner())
        async with asyncio.timeout(20):
            await asyncio.wait(runs)  # raises if there is none
        with pytest.raises(NotFound):
            await here.app.stores.threads.get(thread.id)
        if not soft:
            assert await rows_left(here.app.stores.db) == {}


@pytest.mark.fault("C6")
@pytest.mark.anyio
async def test_two_deletions_at_once_are_never_an_error(house: House) -> None:
    """C6."""
    commands, store, db = house.app.execution.commands, house.app.stores.threads, house.app.stores.db
    for number in range(50):
        await store.commit(opened(f"t{number}", owner=Owner(), held=True))
    outcomes = await asyncio.gather(
        *(commands.delete(f"t{number % 50}", Owner()) for number in range(100)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType"] * 50 + ["NotFound"] * 50
    assert await rows_left(db) == {}


@pytest.mark.fault("C5")
@pytest.mark.anyio
@pytest.mark.accept("003-19")
async def test_a_thread_somebody_looks_at_is_not_cleaned_up_from_under_them(house: House) -> None:
    """C5: whoever was told of an access finds the thread after the cleanup."""
    store, db = house.app.stores.threads, house.app.stores.db
    cleanup = house.app.execution.cleanup
    for _ in range(3):
        ids = [f"t{number:03}" for number in range(40)]
        for thread_id in ids:
            await old_thread(store, db, thread_id)
        looked: set[str] = set()

        async def look(thread_id: str, seen: set[str]) -> None:
            await asyncio.sleep(random.uniform(0, 0.02))
            await store.touch([thread_id], now=datetime.now(UTC), grain=timedelta())
            try:
                thread = await store.get(thread_id)
            except NotFound:
                return
            assert thread.last_accessed_at is not None
            if thread.last_accessed_at > LONG_AGO:
                seen.add(thread_id)

        cleaning = asyncio.create_task(cleanup.run(selection(now=datetime.now(UTC), days_old=1)))
        await asyncio.gather(*(look(one, looked) for one in ids))
        outcome = await cleaning
        left = {thread.id for thread in await store.find(limit=1000)}
        assert looked <= left
        assert left.isdisjoint(outcome.thread_ids)
        assert len(left) + len(outcome.thread_ids) == len(ids)
        await query(db, "DELETE FROM threads")
        for table in (*PURGED, "tombstones"):
            await query(db, f"DELETE FROM {table}")


@pytest.mark.fault("C10")
@pytest.mark.accept("003-27")
@pytest.mark.mainly_sqlite
@pytest.mark.parametrize("where", SHARED, indirect=True)
def test_a_cleanup_that_was_killed_is_finished_by_another(
    forks: ForkServer, where: str, tmp_path: Path
) -> None:
    async def prepare() -> None:
        async with open_database(where) as db:
            store = open_store(db)
            await query(db, "DELETE FROM cleanups")
            for number in range(8):
                await query(db, "DELETE FROM tombstones WHERE thread_id = $1", f"t{number}")
                await old_thread(store, db, f"t{number}")
            if "young" not in [thread.id for thread in await store.find()]:
                await store.commit(opened("young", owner=Owner(), held=True))

    job: dict[str, Any] = {"where": where, "folder": str(tmp_path)}
    # In the middle of a thread, and around its transaction.
    for place in ("cleanup_mid_thread:kill", "commit_written:kill", "commit_done:kill"):
        asyncio.run(prepare())
        ended = forks.run("tests.faults.deletions:clean_up", failpoint=place, **job)
        assert ended.was_killed, (place, ended.reports)
        until_gone(where)
        ended = forks.run("tests.faults.deletions:take_over", **job)
        assert ended.code == 0, (place, ended.reports)
        assert ended.reports[-1] == {"deleted": 8, "left": ["young"], "logs": ["young"]}, place


@pytest.mark.fault("D1")
@pytest.mark.parametrize("where", SHARED, indirect=True)
def test_restarts_with_a_wrong_clock_hide_no_turn_and_delete_nothing(
    forks: ForkServer, where: str, tmp_path: Path
) -> None:
    """D1: each life of the process has another clock; what is not used lives for a day by its own."""
    job: dict[str, Any] = {"where": where, "folder": str(tmp_path), "thread_id": None}
    hour, month = 3600, 30 * 86_400
    # An hour is no jump, and by then the one before it is waited out. On Postgres the database's clock counts, and is right.
    refused = 200 if where.startswith("postgres") else 409
    for number, (ahead, cleanup) in enumerate(((0, 200), (month, refused), (-hour, refused), (hour, 200)), 1):
        ended = forks.run("tests.faults.deletions:live_at", ahead=ahead, **job)
        assert ended.code == 0, (ahead, ended.reports)
        job["thread_id"] = ended.reports[-1].pop("id")
        assert ended.reports[-1] == {"steps": 2 * number, "cleanup": cleanup, "threads": 2}, ahead


@pytest.mark.fault("D1")
@pytest.mark.anyio
async def test_a_clock_a_month_ahead_deletes_nothing_unless_forced(where: str, tmp_path: Path) -> None:
    """D1, in one process: the clock is the engine's own."""
    async with open_house(where, tmp_path) as house:
        store, db = house.app.stores.threads, house.app.stores.db
        change = opened("t1", ttl=DAY, owner=Owner(), held=True)
        await store.commit(change)
        cleanup = house.app.execution.cleanup
        now = datetime.now(UTC)
        await cleanup.cluster_state.tick(now=now)
        for days in (30, -30):
            await query(
                db,
                "UPDATE duties SET last_at = $1, jumped_at = NULL WHERE name = 'clock'",
                micros(now - days * DAY),
            )
            with pytest.raises(InvalidState, match="clock"):
                await cleanup.run(selection(now=now, days_old=1))
            assert (await store.get("t1")).id == "t1"
        assert (await cleanup.run(selection(now=now, days_old=1), force=True)).thread_ids == ("t1",)
