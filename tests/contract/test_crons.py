"""What every keeper of crons must do."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from clew.domain.crons import SLACK, CronJob, CronSearch
from clew.domain.errors import InvalidState, LostLease, NotFound
from clew.domain.events import RunSpec
from clew.domain.thread import Owner
from clew.ports.crons import Crons
from clew.ports.threads import Store
from clew.stores.sql.crons import CronRows
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import ANN, NOW, opened

pytestmark = pytest.mark.anyio

BOB = Owner(tenant=ANN.tenant, user_id="bob")
ACME = Owner(tenant=ANN.tenant)
RIVAL = Owner(tenant="rival", user_id=ANN.user_id)
MINUTE = timedelta(minutes=1)
LATER = NOW + timedelta(hours=2)
LEASE = timedelta(seconds=30)
ALL = CronSearch()
SPEC = RunSpec(
    run_id="",
    assistant_id="a",
    graph="echo",
    metadata={"team": {"x": [1, None]}},
    config={"configurable": {"é": 1}},
    stops_before=("one", "two"),
    modes=("values",),
    webhook="https://example.com/",
)


@pytest.fixture
def crons(database: Database) -> Crons:
    return CronRows(database)


def job(given: str = "c", /, **changes: Any) -> CronJob:
    made = CronJob(
        id=given,
        owner=ANN,
        spec=SPEC,
        input={"words": ["é", None]},
        schedule="0 9 * * *",
        timezone="Europe/Berlin",
        keeps=True,
        end_at=LATER,
        created_at=NOW,
        updated_at=NOW,
        next_at=NOW + MINUTE,
        counted_at=NOW,
    )
    return replace(made, **changes)


async def claimed(crons: Crons, now: datetime = LATER, lease: timedelta = LEASE) -> list[str]:
    are_due = await crons.are_due(now=now)
    found = await crons.claim(now=now, lease=lease, limit=100)
    assert are_due == bool(found)
    return sorted(one.id for one in found)


async def test_what_was_added_is_found_as_it_was(crons: Crons) -> None:
    plain = job("d", timezone=None, end_at=None, next_at=None, keeps=False, is_enabled=False, input=None)
    for one in (job(), plain):
        await crons.add(one, most=10)
        assert await crons.get(one.id, ANN) == one
    assert sorted(await crons.find(ANN, ALL), key=lambda one: one.id) == [job(), plain]


async def test_another_owners_cron_does_not_exist(crons: Crons) -> None:
    await crons.add(job(), most=10)
    for other in (BOB, RIVAL, Owner(tenant="")):
        with pytest.raises(NotFound):
            await crons.get("c", other)
        with pytest.raises(NotFound):
            await crons.revise("c", other, lambda one: one)
        with pytest.raises(NotFound):
            await crons.delete("c", other)
        assert await crons.find(other, ALL) == []
    assert await crons.get("c", ACME) == job()
    assert await crons.find(ACME, ALL) == [job()]


async def test_an_owner_has_only_so_many(crons: Crons) -> None:
    await crons.add(job("c1"), most=2)
    await crons.add(job("c2"), most=2)
    with pytest.raises(InvalidState, match="more than 2 crons"):
        await crons.add(job("c3"), most=2)
    await crons.add(job("c3", owner=BOB), most=2)
    await crons.delete("c1", ANN)
    await crons.add(job("c4"), most=2)


async def test_of_changes_at_once_none_is_lost(crons: Crons) -> None:
    def with_key(one: CronJob, key: str) -> CronJob:
        return replace(one, spec=replace(one.spec, metadata={**one.spec.metadata, key: 1}))

    await crons.add(job(spec=replace(SPEC, metadata={})), most=10)
    await asyncio.gather(
        *(crons.revise("c", ANN, lambda one, n=n: with_key(one, f"k{n}")) for n in range(20))  # type: ignore[misc]
    )
    assert (await crons.get("c", ANN)).spec.metadata == {f"k{n}": 1 for n in range(20)}


async def test_a_change_that_fails_changes_nothing(crons: Crons) -> None:
    def fail(_: CronJob) -> CronJob:
        raise NotFound("no such thing")

    await crons.add(job(), most=10)
    with pytest.raises(NotFound, match="no such thing"):
        await crons.revise("c", ANN, fail)
    assert await crons.get("c", ANN) == job()


async def test_what_is_due_is_claimed_once(crons: Crons) -> None:
    for one in (
        job("due"),
        job("late", next_at=NOW - timedelta(days=30)),
        job("off", is_enabled=False),
        job("over", next_at=None),
        job("early", next_at=LATER + MINUTE),
    ):
        await crons.add(one, most=10)
    found = await asyncio.gather(*(crons.claim(now=LATER, lease=LEASE, limit=100) for _ in range(10)))
    assert sorted(one.id for some in found for one in some) == ["due", "late"]
    assert await claimed(crons) == []


async def test_a_lease_that_has_run_out_frees_it(crons: Crons) -> None:
    await crons.add(job(), most=10)
    assert await claimed(crons, lease=timedelta()) == ["c"]
    assert await claimed(crons) == ["c"]
    assert await claimed(crons) == []


async def test_a_claimed_cron_is_kept_and_snoozed_until_it_is_released(crons: Crons) -> None:
    await crons.add(job(), most=10)
    (held,) = await crons.claim(now=LATER, lease=timedelta(), limit=100)
    await crons.heartbeat(held, lease=LEASE)
    assert await claimed(crons) == []
    await crons.snooze(held, wait=timedelta())
    assert await claimed(crons) == ["c"]
    await crons.release(held, replace(held, next_at=LATER + MINUTE, counted_at=LATER))
    for lost in (crons.heartbeat(held, lease=LEASE), crons.snooze(held, wait=LEASE)):
        with pytest.raises(LostLease):
            await lost
    assert await claimed(crons, LATER + MINUTE) == ["c"]


async def test_a_released_cron_has_its_next_time(crons: Crons) -> None:
    await crons.add(job(), most=10)
    (held,) = await crons.claim(now=LATER, lease=LEASE, limit=100)
    after = replace(held, next_at=LATER + MINUTE, counted_at=LATER)
    assert await crons.release(held, after)
    assert not await crons.release(held, after)  # the second of two that took the same time
    assert await crons.get("c", ANN) == after
    assert await claimed(crons) == []
    assert await claimed(crons, LATER + MINUTE) == ["c"]


async def test_one_that_never_comes_again_is_over(crons: Crons) -> None:
    await crons.add(job(), most=10)
    (held,) = await crons.claim(now=LATER, lease=LEASE, limit=100)
    over = replace(held, next_at=None, counted_at=LATER)
    assert await crons.release(held, over)
    assert await crons.get("c", ANN) == over
    assert await claimed(crons, LATER + timedelta(days=999)) == []


async def test_a_change_meanwhile_counts_more_than_the_next_time(crons: Crons) -> None:
    await crons.add(job(), most=10)
    (held,) = await crons.claim(now=LATER, lease=LEASE, limit=100)
    changed = await crons.revise("c", ANN, lambda one: replace(one, next_at=LATER, counted_at=NOW + MINUTE))
    assert not await crons.release(held, replace(held, next_at=LATER + MINUTE, counted_at=LATER))
    assert await crons.get("c", ANN) == changed
    assert await claimed(crons) == ["c"]


async def test_what_a_clock_far_ahead_has_counted_is_looked_at_again(crons: Crons) -> None:
    year = timedelta(days=365)
    await crons.add(job("slack", counted_at=NOW + SLACK, next_at=NOW + SLACK + MINUTE), most=10)
    await crons.add(job("jumped", counted_at=NOW + year, next_at=NOW + year + MINUTE), most=10)
    await crons.add(job("over", counted_at=NOW + year, next_at=None), most=10)
    assert await claimed(crons, NOW) == ["jumped", "over"]


async def test_the_crons_of_a_thread_go_with_it(crons: Crons, store: Store, database: Database) -> None:
    change = opened()
    with pytest.raises(NotFound):
        await crons.add(job(thread_id="t1"), most=10)
    await store.commit(change)
    await crons.add(job(thread_id="t1"), most=10)
    await crons.add(job("other"), most=10)
    await store.tombstone("t1", now=NOW)
    with pytest.raises(NotFound):
        await crons.add(job("late", thread_id="t1"), most=10)
    while await store.purge():
        pass
    assert [tuple(row) for row in await query(database, "SELECT id FROM crons")] == [("other",)]
