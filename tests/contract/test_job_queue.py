"""The job queue on Postgres: a thread that can be claimed is one job, from the commit on that made it so."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from clew.domain.errors import ConfigError, Conflict
from clew.domain.lifecycle import finish, next_round
from clew.domain.records import Lease
from clew.domain.thread import Owner, Status, Thread
from clew.ports.guards import Caps, Claim, Fence
from clew.runners.job_worker import TASK, queue_of
from clew.stores.postgres import PostgresDatabase, open_postgres
from clew.stores.postgres_job_schema import migrate_jobs
from clew.stores.postgres_threads import EnqueuingThreads
from clew.stores.sql.job_queue import JobQueueRows
from tests.databases import query
from tests.samples import opened, recorded, said, stamp, suspend, waits

pytestmark = pytest.mark.anyio

LONG = timedelta(minutes=5)
OVER = timedelta(0)
ANY = (0, 2**31 - 1)


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    async with open_postgres(postgres_url) as db:
        await migrate_jobs(db)
        yield db


@pytest.fixture
def store(db: PostgresDatabase) -> EnqueuingThreads:
    return EnqueuingThreads(db)


@pytest.fixture
def jobs(db: PostgresDatabase) -> JobQueueRows:
    return JobQueueRows(db)


async def waiting(db: PostgresDatabase) -> list[str]:
    """The threads of the jobs that wait."""
    rows = await query(
        db,
        "SELECT lock, queueing_lock, queue_name, task_name, args ->> 'thread_id' FROM procrastinate_jobs"
        " WHERE status = 'todo' ORDER BY lock",
    )
    for lock, queueing_lock, queue, task, thread_id in rows:
        assert (lock, lock, TASK) == (queueing_lock, thread_id, task)
        assert queue == queue_of("chat")
    return [row[0] for row in rows]


async def fetch(db: PostgresDatabase) -> list[tuple[int, str]]:
    """What a worker that asks now is handed out."""
    rows = await query(
        db,
        "SELECT id, lock FROM procrastinate_fetch_job_v2(NULL, (SELECT worker_id FROM procrastinate_register_worker_v1()))",
    )
    return [(row[0], row[1]) for row in rows if row[0] is not None]


async def begun(store: EnqueuingThreads, thread_id: str = "t1") -> Thread:
    change = opened(thread_id)
    await store.commit(change)
    return change.thread


async def claimed(
    store: EnqueuingThreads, thread_id: str = "t1", lease: timedelta = LONG, runner: str = "r1"
) -> Lease:
    claimed = await store.claim_one(runner, thread_id, lease=lease, recovered=ANY)
    assert claimed is not None
    return claimed


async def test_a_thread_that_begins_is_a_job_and_one_that_is_claimed_at_once_is_none(
    db: PostgresDatabase, store: EnqueuingThreads
) -> None:
    await begun(store, "t1")
    await store.commit(opened("t2"), Claim(runner="r1", lease=LONG))
    await store.commit(opened("t3", held=True))
    assert await waiting(db) == ["t1"]


async def test_a_commit_that_is_refused_enqueues_nothing(
    db: PostgresDatabase, store: EnqueuingThreads
) -> None:
    thread = await begun(store)
    await store.commit(suspend(thread, [waits()], stamp=stamp()))
    await query(db, "DELETE FROM procrastinate_jobs")
    with pytest.raises(Conflict):
        await store.commit(recorded(thread, said()))
    assert await waiting(db) == []


async def test_threads_that_run_on_or_anew_are_jobs(db: PostgresDatabase, store: EnqueuingThreads) -> None:
    """Many at once share a transaction."""
    threads = [await begun(store, f"t{n}") for n in range(20)]
    rested = []
    for thread in threads:
        change = finish(thread, Status.COMPLETED, stamp=stamp())
        await store.commit(change)
        rested.append(change.thread)
    await query(db, "DELETE FROM procrastinate_jobs")
    changes = [next_round(thread, "more", stamp=stamp()) for thread in rested]
    await asyncio.gather(*(store.commit(change) for change in changes))
    assert await waiting(db) == sorted(thread.id for thread in threads)


async def test_a_run_that_writes_under_its_lease_enqueues_nothing(
    db: PostgresDatabase, store: EnqueuingThreads
) -> None:
    thread = await begun(store)
    lease = await claimed(store)
    await query(db, "DELETE FROM procrastinate_jobs")
    change = recorded(thread, said())
    await store.commit(change, Fence(lease.fence))
    # A message to a thread that runs is no job either.
    await store.commit(recorded(change.thread, said()))
    assert await waiting(db) == []


async def test_a_thread_that_is_given_back_is_a_job(db: PostgresDatabase, store: EnqueuingThreads) -> None:
    for thread_id in ("t1", "t2"):
        await begun(store, thread_id)
    one = await claimed(store, "t1")
    await claimed(store, "t2")
    await query(db, "DELETE FROM procrastinate_jobs")
    await store.release("r2", one)  # not its own
    assert await waiting(db) == []
    await store.release("r1", one)
    assert await waiting(db) == ["t1"]
    await store.release_all("r1", but=["t1"])
    assert await waiting(db) == ["t1", "t2"]


async def test_the_jobs_of_a_dead_process_are_replaced(db: PostgresDatabase, store: EnqueuingThreads) -> None:
    await begun(store, "t1")
    ((number, _),) = await fetch(db)
    await claimed(store, "t1")
    assert await fetch(db) == []
    assert await store.end_leases("r1") == 1
    ((new, thread_id),) = await fetch(db)
    assert thread_id == "t1"
    assert new != number  # what the dead one still finishes is not this job


async def test_a_thread_is_one_job_however_often_it_is_enqueued(
    db: PostgresDatabase, store: EnqueuingThreads, jobs: JobQueueRows
) -> None:
    await begun(store)
    lease = await claimed(store)
    await asyncio.gather(
        *(store.release("r1", lease) for _ in range(10)), *(jobs.enqueue_lost() for _ in range(10))
    )
    assert await waiting(db) == ["t1"]


async def test_a_job_that_waits_is_kept_for_the_commit_that_relies_on_it(
    db: PostgresDatabase, store: EnqueuingThreads, postgres_url: str
) -> None:
    """A worker that took it before that commit would find nothing to do, and the thread would have no job."""
    thread = await begun(store)
    await store.commit(finish(thread, Status.STOPPED, stamp=stamp()))
    assert await waiting(db) == ["t1"]
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute("UPDATE threads SET status = 'running' WHERE id = 't1'")
        await other.execute("SELECT clew_enqueue('t1')")
        assert await fetch(db) == []
        await other.commit()
    assert [thread_id for _, thread_id in await fetch(db)] == ["t1"]


async def test_a_thread_without_a_job_is_enqueued(
    db: PostgresDatabase, store: EnqueuingThreads, jobs: JobQueueRows
) -> None:
    for thread_id in ("lost", "leased", "ran out"):
        await begun(store, thread_id)
    await claimed(store, "leased")
    await claimed(store, "ran out", OVER)
    await query(db, "DELETE FROM procrastinate_jobs")
    assert await jobs.enqueue_lost() == 2
    assert await waiting(db) == ["lost", "ran out"]
    assert await jobs.enqueue_lost() == 0


async def test_threads_that_caps_keep_from_running_get_no_job(
    db: PostgresDatabase, store: EnqueuingThreads
) -> None:
    """A worker would find nothing to claim, the job would be lost again, and so on without an end."""
    caps = Caps(tenant=3, user=2)
    jobs = JobQueueRows(db, caps)
    store.caps = caps
    users = ["ann", "ann", "ann", "bob", "bob", "bob"]
    for number, user in enumerate(users):
        await store.commit(opened(f"a{number}", owner=Owner(tenant="a", user_id=user)))
    await store.commit(opened("b0", owner=Owner(tenant="b", user_id="ann")))
    await query(db, "DELETE FROM procrastinate_jobs")
    assert await jobs.enqueue_lost() == 4
    # Two of ann, since a user has no more, and one of bob, since the tenant has no more.
    assert await waiting(db) == ["a0", "a1", "a3", "b0"]
    assert await jobs.enqueue_lost() == 0
    for _ in range(4):
        ((number, thread_id),) = await fetch(db)
        await claimed(store, thread_id)
        await query(db, "DELETE FROM procrastinate_jobs WHERE id = $1", number)
    assert await jobs.enqueue_lost() == 0
    await store.commit(finish(await store.get("a0"), Status.COMPLETED, stamp=stamp()))
    assert await jobs.enqueue_lost() == 1
    assert await waiting(db) == ["a2"]


async def test_a_job_whose_thread_nobody_holds_is_put_back(
    db: PostgresDatabase, store: EnqueuingThreads, jobs: JobQueueRows
) -> None:
    """Its worker died before it claimed the thread, or its end did not reach the database."""
    await begun(store, "t1")
    ended = await begun(store, "t2")
    await begun(store, "t3")
    taken = [number for _ in range(3) for number, _ in await fetch(db)]
    await claimed(store, "t3")
    await store.commit(finish(ended, Status.COMPLETED, stamp=stamp()))
    assert await jobs.unleased() == set(taken[:2])
    assert await jobs.put_back(taken) == 2
    assert await waiting(db) == ["t1"]
    assert await jobs.unleased() == set()
    rows = await query(db, "SELECT lock FROM procrastinate_jobs WHERE status = 'doing'")
    assert [row[0] for row in rows] == ["t3"]


async def test_a_graph_with_a_long_name_has_a_queue_of_its_own(
    db: PostgresDatabase, store: EnqueuingThreads
) -> None:
    name = "ä" * 60
    await store.commit(opened(graph=name))
    rows = await query(db, "SELECT queue_name FROM procrastinate_jobs")
    assert [row[0] for row in rows] == [queue_of(name)]


async def test_the_schema_is_brought_to_the_version_of_the_engine(
    db: PostgresDatabase, store: EnqueuingThreads
) -> None:
    await begun(store)
    last = "03.03.00_01_pre_priority_lock_fetch_job.sql"
    await query(db, "DROP FUNCTION procrastinate_fetch_job_v2")
    await query(db, "DELETE FROM job_queue_migrations WHERE name = $1", last)
    await asyncio.gather(*(migrate_jobs(db) for _ in range(3)))
    assert [thread_id for _, thread_id in await fetch(db)] == ["t1"]


async def test_a_newer_schema_and_one_of_another_program_are_refused(
    db: PostgresDatabase, empty_postgres_url: str
) -> None:
    await query(db, "INSERT INTO job_queue_migrations (name, applied_at) VALUES ('99.00.00_01_pre_x.sql', 0)")
    with pytest.raises(ConfigError, match="newer than Procrastinate"):
        await migrate_jobs(db)
    async with await psycopg.AsyncConnection.connect(empty_postgres_url) as other:
        await other.execute(SchemaManager.get_schema())
    async with open_postgres(empty_postgres_url) as theirs:
        with pytest.raises(ConfigError, match="another program"):
            await migrate_jobs(theirs)
