"""Threads deleted in bulk: the rule in SQL is the domain's, and is asked in the transaction that deletes."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from clew.domain.crons import CronJob
from clew.domain.errors import LostLease, NotFound
from clew.domain.events import RoundFinished, RunSpec
from clew.domain.records import Incoming
from clew.domain.retention import Candidate, CleanupJob, Reason, Selection, is_due, selection, trash
from clew.domain.runs import SOURCE
from clew.domain.thread import Owner, Status
from clew.ports.guards import Fence
from clew.ports.threads import Store
from clew.stores.codec import micros
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql.cleanup import CleanupRows, condition
from clew.stores.sql.cluster_state import ClusterStateRows
from clew.stores.sql.crons import CronRows
from clew.stores.sql.inbox import InboxRows
from clew.stores.sql.purge import AT_ONCE, PURGED
from clew.stores.sql.thread_metadata import ThreadMetadataRows
from clew.stores.sql.trash import TrashRows
from clew.stores.sql.work import Database
from tests.databases import SHARED, query
from tests.samples import ANN, NOW, new_id, opened, recorded, said, stamp, waits

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
LEASE = timedelta(seconds=30)
WEEK = selection(now=NOW, days_old=7)
BOB = Owner(tenant="acme", user_id="bob")


@pytest.fixture
def rows(database: Database) -> CleanupRows:
    return CleanupRows(database)


@pytest.fixture
def cluster_state(database: Database) -> ClusterStateRows:
    return ClusterStateRows(database)


@pytest.fixture
def trash_can(database: Database) -> TrashRows:
    return TrashRows(database)


async def age(database: Database, thread_id: str, days: float) -> None:
    seen = micros(NOW - days * DAY)
    await query(
        database,
        "UPDATE threads SET last_accessed_at = $2, expires_at = CAST($2 AS BIGINT) + ttl WHERE id = $1",
        thread_id,
        seen,
    )


async def old(
    store: Store, database: Database, thread_id: str, days: float = 10, ttl: timedelta | None = 5 * DAY
) -> None:
    """A thread that has ended and was last looked at so long ago."""
    change = opened(thread_id, ttl=ttl)
    await store.commit(change)
    await store.commit(recorded(change.thread, RoundFinished(status=Status.COMPLETED)))
    await age(database, thread_id, days)


async def begun(rows: CleanupRows, wanted: Selection = WEEK, runner: str = "r1") -> CleanupJob:
    job = CleanupJob(id=new_id(), selection=wanted, started_at=NOW)
    assert await rows.begin(job, runner=runner, lease=LEASE)
    return job


async def delete(
    rows: CleanupRows, job: CleanupJob, some: Sequence[Candidate], runner: str = "r1", now: datetime = NOW
) -> list[str]:
    gone = await rows.delete(job, some, runner=runner, lease=LEASE, now=now)
    return [one.thread_id for one in gone]


async def due(rows: CleanupRows, wanted: Selection = WEEK) -> list[Candidate]:
    return list(await rows.due(wanted, after=None, limit=1000))


def cron(thread_id: str, *, next_at: datetime | None = NOW + 90 * DAY, is_enabled: bool = True) -> CronJob:
    return CronJob(
        id=new_id(),
        owner=ANN,
        spec=RunSpec(run_id="", assistant_id="a", graph="chat"),
        schedule="0 0 1 * *",
        thread_id=thread_id,
        is_enabled=is_enabled,
        created_at=NOW,
        updated_at=NOW,
        next_at=next_at,
        counted_at=NOW,
    )


def run_for_later(thread_id: str) -> Incoming:
    run_id = new_id()
    return Incoming(
        source=SOURCE,
        source_id=run_id,
        fingerprint=run_id,
        payload={},
        thread_id=thread_id,
        conversation=f"{thread_id}/{run_id}",
    )


async def test_sql_and_domain_agree_on_what_is_due(
    store: Store, database: Database, rows: CleanupRows
) -> None:
    ids = (f"t{n:03}" for n in itertools.count())
    crons, inbox = CronRows(database), InboxRows(database)
    prunes = itertools.cycle((None, DAY / 2, 5 * DAY, 50 * DAY))
    ordered = set()
    for owner, ttl, days in itertools.product((ANN, BOB), (None, 5 * DAY, 90 * DAY), (1, 10, 100)):
        made = [opened(next(ids), owner=owner, ttl=ttl, prune_after=ttl and next(prunes)) for _ in range(9)]
        for change in made:
            await store.commit(change)
        done, blocked, with_deadline, held, _, failed, with_cron, with_run, was_ordered = (
            change.thread for change in made
        )
        for one in (with_cron, with_run, was_ordered):
            await store.commit(recorded(one, RoundFinished(status=Status.COMPLETED)))
        await crons.add(cron(with_cron.id), most=1000)
        await inbox.admit(run_for_later(with_run.id), now=NOW)
        ordered |= {with_cron.id, with_run.id}
        await crons.add(cron(was_ordered.id, is_enabled=False), most=1000)
        await crons.add(cron(was_ordered.id, next_at=None), most=1000)
        over = run_for_later(was_ordered.id)
        await inbox.admit(over, now=NOW)
        await inbox.withdraw(over, now=NOW)
        await store.commit(recorded(done, RoundFinished(status=Status.COMPLETED)))
        await store.commit(recorded(failed, RoundFinished(status=Status.FAILED, reason="no")))
        await store.commit(recorded(blocked, waits()))
        await store.commit(recorded(with_deadline, waits(deadline=NOW + DAY)))
        await query(database, "UPDATE threads SET status = 'pending' WHERE id = $1", held.id)
        for change in made:
            await age(database, change.thread.id, days)
    waiting = {row[0] for row in await query(database, "SELECT thread_id FROM tool_calls WHERE deadline > 0")}
    assert len(waiting) == 18
    everything = await store.find(limit=1000)
    owners: tuple[Owner | None, ...] = (None, ANN, Owner(tenant="acme"), Owner(tenant="rival"))
    ages = (
        selection(now=NOW, days_old=None),
        selection(now=NOW, days_old=7),
        Selection(reason=Reason.STALE, before=NOW),
        Selection(reason=Reason.IDLE, before=NOW - 7 * DAY),
    )
    for whose, age_of in itertools.product(owners, ages):
        wanted = replace(age_of, owner=whose)
        expected = {
            one.id
            for one in everything
            if is_due(one, wanted, has_deadline=one.id in waiting, has_future_runs=one.id in ordered)
        }
        found = await due(rows, wanted)
        assert {one.id for one in found} == expected
        assert [one.age for one in found] == sorted(one.age for one in found)
        mine = [one for one in everything if whose is None or one.owner.tenant == whose.tenant]
        mine = [one for one in mine if whose is None or whose.user_id in ("", one.owner.user_id)]
        assert await rows.count(wanted) == (len(expected), len(mine) - len(expected))


@pytest.mark.accept("003-19")
async def test_a_thread_touched_after_it_was_found_stays(
    store: Store, database: Database, rows: CleanupRows
) -> None:
    for thread_id in ("touched", "ran", "due", "ordered", "queued"):
        await old(store, database, thread_id)
    found = await due(rows)
    await store.touch(["touched"], now=NOW, grain=timedelta())
    await CronRows(database).add(cron("ordered"), most=1000)
    await InboxRows(database).admit(run_for_later("queued"), now=NOW)
    thread = await store.get("ran")
    await query(database, "UPDATE threads SET status = 'running' WHERE id = 'ran'")
    job = await begun(rows)
    assert await delete(rows, job, found) == ["due"]
    assert (await store.get("touched")).last_accessed_at == NOW
    assert len(await store.read("ran")) == thread.last_seq


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_what_is_ordered_is_asked_by_thread(where: str, database: Database) -> None:
    await query(
        database,
        "INSERT INTO inbox (source, source_id, fingerprint, thread_id, payload, status, admitted_at)"
        " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        f" SELECT '{SOURCE}', CAST(i AS TEXT), 'f', 't' || i, 'null', 'queued', i FROM n",
    )
    await query(
        database,
        "INSERT INTO crons (id, tenant, user_id, thread_id, created_at, schedule, is_enabled, keeps, spec, input,"
        " updated_at, next_at, counted_at)"
        " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " SELECT CAST(i AS TEXT), 'acme', 'ann', 't' || i, 0, '0 0 1 * *', 1, 0, '{}', 'null', 0, i, 0 FROM n",
    )
    for table in ("inbox", "crons"):
        await query(database, f"ANALYZE {table}")
    explain = "EXPLAIN" if isinstance(database, PostgresDatabase) else "EXPLAIN QUERY PLAN"
    where_due, args = condition(WEEK, 1)
    plan = await query(
        database,
        f"{explain} SELECT id FROM threads WHERE {where_due} ORDER BY last_accessed_at LIMIT 500",
        *args,
    )
    told = str([tuple(row) for row in plan])
    assert "crons_by_thread" in told
    assert "inbox_by_thread" in told


async def test_a_deleted_thread_is_gone_from_every_table_and_for_good(
    store: Store, database: Database, rows: CleanupRows
) -> None:
    await old(store, database, "t1")
    await old(store, database, "t2", days=1)
    assert await delete(rows, await begun(rows), await due(rows)) == ["t1"]
    for table in PURGED:
        left = await query(database, f"SELECT count(*) FROM {table} WHERE thread_id = 't1'")
        assert left[0][0] == 0, table
    with pytest.raises(NotFound):
        await store.commit(opened("t1"))
    assert await store.purge() == [], "nothing is left to do"
    assert (await store.get("t2")).id == "t2"


@pytest.mark.raw_sql
async def test_a_long_log_is_purged_in_slices(store: Store, database: Database, rows: CleanupRows) -> None:
    await old(store, database, "t1")
    await query(
        database,
        "INSERT INTO events (thread_id, seq, id, round, type, version, content, at)"
        " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
        " SELECT 't1', 100 + i, 'x', 1, 'stage_changed', 1, '{}', 0 FROM n",
        2 * AT_ONCE,
    )
    await query(database, "UPDATE threads SET last_seq = $1 WHERE id = 't1'", 2 * AT_ONCE)
    (found,) = await due(rows)
    assert found.rows == 2 * AT_ONCE
    assert await delete(rows, await begun(rows), [found]) == ["t1"]
    left = [2 * AT_ONCE]
    while await store.purge(only="t1"):
        left.append((await query(database, "SELECT count(*) FROM events WHERE thread_id = 't1'"))[0][0])
    assert left[-1] == 0
    assert max(a - b for a, b in itertools.pairwise(left)) <= AT_ONCE + 3
    assert len(left) >= 3


@pytest.mark.accept("003-27")
async def test_one_at_a_time_and_the_rest_is_taken_up(
    store: Store, database: Database, rows: CleanupRows
) -> None:
    for n in range(4):
        await old(store, database, f"t{n}", days=20 - n)
    job = await begun(rows)
    another = CleanupJob(id=new_id(), selection=WEEK, started_at=NOW)
    assert not await rows.begin(another, runner="r2", lease=LEASE)
    assert await rows.claim(runner="r2", lease=LEASE) is None
    found = await due(rows)
    assert await delete(rows, job, found[:1]) == ["t0"]
    await rows.skip(job, found[1], runner="r1", lease=LEASE)
    # As after a kill: its lease runs out.
    await query(database, "UPDATE duties SET lease_until = 0")
    assert await rows.are_due()
    taken = await rows.claim(runner="r2", lease=LEASE)
    assert taken == replace(job, deleted=1, failed=1, after=(found[1].age, "t1"))
    with pytest.raises(LostLease):
        await delete(rows, job, found[2:])
    rest = await rows.due(WEEK, after=taken.after, limit=10)
    assert await delete(rows, taken, rest, runner="r2") == ["t2", "t3"]
    ended = await rows.release(taken, runner="r2", finished_at=NOW)
    assert (ended.deleted, ended.failed, ended.finished_at) == (3, 1, NOW)
    assert not await rows.are_due()
    assert await rows.last() == ended
    assert await rows.begin(another, runner="r2", lease=LEASE)


async def test_two_at_once_never_count_the_same_thread(
    store: Store, database: Database, rows: CleanupRows
) -> None:
    for n in range(40):
        await old(store, database, f"t{n:02}")
    found = await due(rows)
    job = await begun(rows)
    counted = await asyncio.gather(*(delete(rows, job, found[n : n + 30]) for n in (0, 5, 10)))
    assert sorted(itertools.chain.from_iterable(counted)) == [one.id for one in found]


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_nobody_waits_for_one_that_somebody_holds(
    store: Store, database: Database, rows: CleanupRows, where: str
) -> None:
    for n in range(4):
        await old(store, database, f"t{n}", days=20 - n)
    job = await begun(rows)
    holder = await asyncpg.connect(where)
    try:
        async with holder.transaction():
            await holder.fetch("SELECT 1 FROM threads WHERE id = 't1' FOR KEY SHARE")
            assert await delete(rows, job, (await due(rows))[:3]) == ["t0", "t2"]
            soft = replace(job, selection=replace(WEEK, soft=True))
            assert await delete(rows, soft, await due(rows)) == ["t3"]
    finally:
        await holder.close()
    assert await delete(rows, job, await due(rows)) == ["t1"], "another cleanup finds it"


@pytest.mark.accept("003-32")
@pytest.mark.raw_sql
async def test_checkpoints_without_a_thread_are_found_and_deleted(
    store: Store, database: Database, rows: CleanupRows
) -> None:
    await store.commit(opened("known"))
    for n, thread_id in enumerate(("a", "known", "b", "b", "c"), 1):
        await query(
            database,
            "INSERT INTO checkpoints (thread_id, ns, id, body, metadata, apart)"
            f" VALUES ($1, '', 'id{n}', 'body{n}', '{{}}', '{{}}')",
            thread_id,
        )
    found, more = await rows.orphans(after="")
    assert more is None
    assert sorted((one.thread_id, one.body) for one in found) == [
        ("a", "body1"),
        ("b", "body4"),
        ("c", "body5"),
    ]
    await query(
        database,
        "INSERT INTO checkpoints (thread_id, ns, id, body, metadata, apart) VALUES ('c', '', 'new', '', '{}', '{}')",
    )
    job = await begun(rows)
    gone = await rows.delete_orphans(job, found, runner="r1", lease=LEASE)
    assert sorted(one.thread_id for one in gone) == ["a", "b"], "somebody wrote to c"
    left = await query(database, "SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")
    assert [row[0] for row in left] == ["c", "known"]


@pytest.mark.parametrize("where", ["memory", "sqlite"], indirect=True)
@pytest.mark.raw_sql
async def test_one_that_cannot_be_read_does_not_hide_the_others(
    where: str, database: Database, rows: CleanupRows
) -> None:
    """Postgres takes no such text."""
    for thread_id in ("a", "b", "c"):
        body = "CAST(X'7b22fffe' AS TEXT)" if thread_id == "b" else f"'body of {thread_id}'"
        await query(
            database,
            "INSERT INTO checkpoints (thread_id, ns, id, body, metadata, apart)"
            f" VALUES ($1, '', 'id', {body}, '{{}}', '{{}}')",
            thread_id,
        )
    found, _ = await rows.orphans(after="")
    assert [(one.thread_id, one.body) for one in found] == [
        ("a", "body of a"),
        ("b", ""),
        ("c", "body of c"),
    ]
    gone = await rows.delete_orphans(await begun(rows), found, runner="r1", lease=LEASE)
    assert sorted(one.thread_id for one in gone) == ["a", "b", "c"]


class TestTrash:
    async def test_what_is_in_it_is_not_there_and_can_be_brought_back(
        self, store: Store, database: Database, rows: CleanupRows, trash_can: TrashRows
    ) -> None:
        change = opened("t1", ttl=5 * DAY)
        await store.commit(change)
        lease = (await store.claim("r", lease=LEASE, limit=1))[0]
        await trash_can.put("t1", ANN, now=NOW)
        for refused in (
            store.get("t1"),
            store.commit(recorded(change.thread, said())),
            store.commit(recorded(change.thread, said()), Fence(lease.fence)),
            trash_can.put("t1", now=NOW),
            store.commit(opened("t1")),
        ):
            with pytest.raises(NotFound):
                await refused
        assert await store.find() == []
        assert await store.claim("r", lease=LEASE, limit=1) == []
        (binned,) = await trash_can.find(ANN)
        assert (binned.id, binned.deleted_at, binned.gone_at) == ("t1", NOW, NOW + 7 * DAY)
        assert await trash_can.find(BOB) == []
        for owner, now in ((BOB, NOW), (ANN, NOW + 7 * DAY)):
            with pytest.raises(NotFound):
                await trash_can.restore("t1", owner, now=now)

        await trash_can.restore("t1", ANN, now=NOW + DAY)
        thread = await store.get("t1")
        assert thread == change.thread
        assert (thread.last_accessed_at, thread.expires_at) == (NOW + DAY, NOW + 6 * DAY)
        assert [one.thread_id for one in await store.claim("r", lease=LEASE, limit=1)] == ["t1"], "it runs on"
        with pytest.raises(NotFound):
            await trash_can.restore("t1", now=NOW)

    async def test_it_is_emptied_after_a_week(
        self, store: Store, database: Database, rows: CleanupRows, trash_can: TrashRows
    ) -> None:
        for n, days in enumerate((8, 6)):
            await store.commit(opened(f"t{n}"))
            await trash_can.put(f"t{n}", now=NOW - days * DAY)
        wanted = trash(now=NOW)
        assert wanted.reason is Reason.DELETED
        assert await delete(rows, await begun(rows, wanted), await due(rows, wanted)) == ["t0"]
        assert [one.id for one in await trash_can.find()] == ["t1"]

    async def test_a_soft_cleanup_puts_there_what_is_due(
        self, store: Store, database: Database, rows: CleanupRows, trash_can: TrashRows
    ) -> None:
        await old(store, database, "t1")
        wanted = replace(WEEK, soft=True)
        assert await delete(rows, await begun(rows, wanted), await due(rows, wanted)) == ["t1"]
        assert await due(rows, wanted) == []
        await trash_can.restore("t1", now=NOW)
        assert len(await store.read("t1")) == 3


@pytest.mark.accept("003-31", "003-36")
async def test_thread_metadata_has_the_columns_and_words_of_its_readers(
    store: Store, database: Database, trash_can: TrashRows
) -> None:
    now = stamp().now
    for thread_id in ("t1", "t2", "t3"):
        await store.commit(opened(thread_id, ttl=36500 * DAY))
    thread = await store.get("t2")
    await store.commit(recorded(thread, RoundFinished(status=Status.COMPLETED)))
    await trash_can.put("t3", now=now)
    found = await query(
        database,
        "SELECT thread_id, created_at, last_accessed_at, expires_at, user_id, status, workflow_step, metadata"
        " FROM thread_metadata ORDER BY thread_id",
    )
    assert [(row[0], row[4], row[5], row[6]) for row in found] == [
        ("t1", "ann", "active", "initializing"),
        ("t2", "ann", "completed", "initializing"),
        ("t3", "ann", "expired", "initializing"),
    ]
    created = found[0][1] if isinstance(found[0][1], datetime) else datetime.fromisoformat(found[0][1])
    assert abs(created - now) < timedelta(milliseconds=1)
    await query(database, "UPDATE threads SET expires_at = 1 WHERE id IN ('t1', 't2')")
    await query(database, "UPDATE threads SET status = 'failed' WHERE id = 't1'")
    await query(database, "UPDATE threads SET status = 'running' WHERE id = 't2'")
    found = await query(
        database, "SELECT status FROM thread_metadata WHERE thread_id < 't3' ORDER BY thread_id"
    )
    assert [row[0] for row in found] == ["expired", "active"]


@pytest.mark.accept("003-31")
@pytest.mark.raw_sql
async def test_thread_metadata_is_what_clients_set_and_read_by_its_keys_though_a_value_is_damaged(
    store: Store, database: Database, where: str
) -> None:
    labels = ThreadMetadataRows(database)
    whole: dict[str, Any] = {
        "x": "7",
        "y": [1],
        "n": None,
        "deep": {"er": {"0": True}, "none": {}},
        "a.b": 1.5,
        "\u00fc": "",
    }
    sent: list[dict[str, Any]] = [{}, {"x": "1"}, whole]
    for n, one in enumerate(sent):
        await store.commit(opened(f"t{n}"))
        await labels.put(f"t{n}", one)
    for damage in ("'{', '1'", "'[\"k\"]', '{'", "'7', '1'", "'[]', '1'"):
        await query(database, f"INSERT INTO labels (thread_id, path, value) VALUES ('t2', {damage})")
    await query(database, "UPDATE threads SET settings = '{' WHERE id = 't2'")
    found = await query(database, "SELECT metadata, metadata ->> 'x' FROM thread_metadata ORDER BY thread_id")
    assert [row[1] for row in found] == [None, "1", "7"]
    assert [json.loads(row[0]) for row in found] == sent
    if not where.startswith("postgres"):
        return
    types = await query(
        database,
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'thread_metadata'"
        " ORDER BY ordinal_position",
    )
    time, text = "timestamp with time zone", "text"
    assert [tuple(row) for row in types] == [
        ("thread_id", text),
        ("created_at", time),
        ("last_accessed_at", time),
        ("expires_at", time),
        ("user_id", text),
        ("status", text),
        ("workflow_step", text),
        ("metadata", "jsonb"),
    ]
    found = await query(
        database, "SELECT thread_id FROM thread_metadata WHERE metadata @> '{\"y\": [1]}'::jsonb"
    )
    assert [tuple(row) for row in found] == [("t2",)]


class TestTurns:
    HOUR = timedelta(hours=1)

    async def take(self, rows: CleanupRows, now: datetime, callers: int = 5) -> int:
        """How many of these callers begin the cleanup of every hour; it ends at once."""

        async def one() -> bool:
            job = CleanupJob(id=new_id(), selection=WEEK, started_at=now)
            runner = new_id()
            if not await rows.begin_turn(job, self.is_due(now), runner=runner, lease=LEASE):
                return False
            await rows.release(job, runner=runner, finished_at=now)
            return True

        return sum(await asyncio.gather(*(one() for _ in range(callers))))

    def is_due(self, now: datetime) -> Callable[[datetime], bool]:
        return lambda last: last + self.HOUR <= now

    @pytest.mark.fault("C10")
    async def test_of_many_who_ask_for_a_turn_one_gets_it(self, rows: CleanupRows) -> None:
        assert await self.take(rows, NOW) == 0, "counting begins"
        assert await self.take(rows, NOW + self.HOUR / 2) == 0
        assert await self.take(rows, NOW + self.HOUR) == 1
        assert await self.take(rows, NOW + self.HOUR * 1.5) == 0
        assert await self.take(rows, NOW + self.HOUR * 5) == 1, "what was missed is made up for once"

    async def test_a_turn_in_the_future_does_not_stop_all_others(self, rows: CleanupRows) -> None:
        await self.take(rows, NOW + 30 * DAY)
        assert await self.take(rows, NOW) == 0
        assert await self.take(rows, NOW + DAY) == 1

    @pytest.mark.accept("003-27")
    async def test_a_turn_that_meets_another_cleanup_is_made_up_for_after_it(self, rows: CleanupRows) -> None:
        await self.take(rows, NOW)
        other = await begun(rows)
        for minutes in (60, 61, 62):
            assert await self.take(rows, NOW + timedelta(minutes=minutes)) == 0
        await rows.release(other, runner="r1", finished_at=NOW)
        assert await self.take(rows, NOW + timedelta(minutes=63)) == 1
        assert await self.take(rows, NOW + timedelta(minutes=64)) == 0

    @pytest.mark.fault("C10")
    async def test_a_turn_is_not_lost_with_whoever_took_it(
        self, rows: CleanupRows, database: Database
    ) -> None:
        await self.take(rows, NOW)
        now = NOW + self.HOUR
        job = CleanupJob(id=new_id(), selection=WEEK, started_at=now)
        assert await rows.begin_turn(job, self.is_due(now), runner="killed", lease=LEASE)
        await query(database, "UPDATE duties SET lease_until = 0 WHERE owner = 'killed'")
        assert await rows.claim(runner="r2", lease=LEASE) == job


class TestDuties:
    async def test_a_signature_is_used_once(self, cluster_state: ClusterStateRows) -> None:
        believed = timedelta(minutes=10)
        used = await asyncio.gather(
            *(cluster_state.use_up("s", now=NOW, believed=believed) for _ in range(5))
        )
        assert sorted(used) == [False] * 4 + [True]
        assert await cluster_state.use_up("other", now=NOW, believed=believed)
        assert not await cluster_state.use_up("s", now=NOW + believed, believed=believed)
        assert await cluster_state.use_up("s", now=NOW + 3 * believed, believed=believed), (
            "and then forgotten"
        )

    async def test_a_jump_is_remembered(self, cluster_state: ClusterStateRows) -> None:
        await cluster_state.tick(now=NOW)
        await cluster_state.tick(now=NOW + DAY)
        jumped = NOW + 31 * DAY
        assert (await cluster_state.tick(now=jumped)).jumped_at == jumped
        ticks = await cluster_state.tick(now=jumped + timedelta(minutes=2))
        assert (ticks.last_at, ticks.jumped_at) == (jumped + timedelta(minutes=2), jumped)
