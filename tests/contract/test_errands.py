"""What every keeper of errands must do."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clew.domain.labels import ThreadSearch
from clew.domain.records import Errand
from clew.domain.thread import Status
from clew.ports.run_hooks import Errands
from clew.ports.threads import Store
from clew.stores.sql.errands import ErrandRows
from clew.stores.sql.labels import LabelRows
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import ANN, NOW, opened

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=30)
AT_ONCE = timedelta()
LONG = timedelta(days=1)


@pytest.fixture
def errands(database: Database) -> Errands:
    return ErrandRows(database)


def errand(given: str = "r", /, **changes: Any) -> Errand:
    made = Errand(
        run_id=given, thread_id="t", webhook="https://example.com/é", is_temporary=True, begins_at=NOW
    )
    return replace(made, **changes)


async def claimed(errands: Errands, lease: timedelta = LEASE) -> list[Errand]:
    are_due = await errands.are_due()
    found = await errands.claim(lease=lease, limit=100)
    assert are_due == bool(found)
    return sorted(found, key=lambda one: one.run_id)


async def test_what_was_added_is_claimed_once(errands: Errands) -> None:
    plain = errand("r2", webhook="", is_temporary=False)
    for one in (errand(), plain):
        await errands.add(one, wait=AT_ONCE)
    await errands.add(errand("later"), wait=LONG)
    found = await asyncio.gather(*(errands.claim(lease=LEASE, limit=100) for _ in range(10)))
    assert sorted((one for some in found for one in some), key=lambda one: one.run_id) == [errand(), plain]
    assert await claimed(errands) == []


async def test_a_lease_that_has_run_out_frees_it(errands: Errands) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    assert await claimed(errands, lease=AT_ONCE) == [errand()]
    assert await claimed(errands) == [errand()]
    assert await claimed(errands) == []


async def test_one_that_is_put_off_comes_back_as_it_was_left(errands: Errands) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    (held,) = await claimed(errands)
    await errands.put_off(left := replace(held, webhook="", attempts=3), wait=AT_ONCE)
    assert await claimed(errands) == [left]
    await errands.put_off(left, wait=LONG)
    assert await claimed(errands) == []


async def test_one_that_is_done_is_gone(errands: Errands) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    await errands.done("r")
    await errands.done("r")
    await errands.put_off(errand(), wait=AT_ONCE)
    assert await claimed(errands) == []


async def test_one_that_is_there_already_stays_as_it_is(errands: Errands) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    await errands.add(errand(webhook="https://other.example/"), wait=LONG)
    assert await claimed(errands) == [errand()]


async def test_while_its_thread_runs_there_is_nothing_to_do(errands: Errands, store: Store) -> None:
    change = opened()
    assert change.thread.status is Status.RUNNING
    await store.commit(change)
    await errands.add(errand(thread_id=change.thread.id), wait=AT_ONCE)
    assert await claimed(errands) == []


async def test_errands_go_with_their_thread(errands: Errands, store: Store, database: Database) -> None:
    change = opened()
    await store.commit(change)
    await errands.add(errand(thread_id=change.thread.id), wait=AT_ONCE)
    await errands.add(errand("other"), wait=AT_ONCE)
    await store.bury(change.thread.id, now=NOW)
    while await store.purge():
        pass
    assert [tuple(row) for row in await query(database, "SELECT run_id FROM errands")] == [("other",)]


async def test_a_thread_that_goes_with_its_run_is_in_no_list(
    errands: Errands, store: Store, database: Database
) -> None:
    labels = LabelRows(database)
    change = opened()
    await store.commit(change)
    wanted = ThreadSearch(owner=ANN)
    await errands.add(errand(thread_id=change.thread.id, is_temporary=False), wait=AT_ONCE)
    assert (await labels.find(wanted), await labels.count(wanted)) == ([change.thread.id], 1)
    await errands.add(errand("r2", thread_id=change.thread.id), wait=AT_ONCE)
    assert (await labels.find(wanted), await labels.count(wanted)) == ([], 0)
