"""What every keeper of errands must do."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clew.domain.records import RunHook
from clew.domain.thread import Status
from clew.domain.thread_metadata import ThreadSearch
from clew.ports.run_hooks import RunHookStore
from clew.ports.threads import Store
from clew.stores.sql.run_hooks import RunHookRows
from clew.stores.sql.thread_metadata import ThreadMetadataRows
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import ANN, NOW, opened

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=30)
AT_ONCE = timedelta()
LONG = timedelta(days=1)


@pytest.fixture
def errands(database: Database) -> RunHookStore:
    return RunHookRows(database)


def errand(given: str = "r", /, **changes: Any) -> RunHook:
    made = RunHook(
        run_id=given, thread_id="t", webhook="https://example.com/é", is_temporary=True, begins_at=NOW
    )
    return replace(made, **changes)


async def claimed(errands: RunHookStore, lease: timedelta = LEASE) -> list[RunHook]:
    are_due = await errands.are_due()
    found = await errands.claim(lease=lease, limit=100)
    assert are_due == bool(found)
    return sorted(found, key=lambda one: one.run_id)


async def test_what_was_added_is_claimed_once(errands: RunHookStore) -> None:
    plain = errand("r2", webhook="", is_temporary=False)
    for one in (errand(), plain):
        await errands.add(one, wait=AT_ONCE)
    await errands.add(errand("later"), wait=LONG)
    found = await asyncio.gather(*(errands.claim(lease=LEASE, limit=100) for _ in range(10)))
    assert sorted((one for some in found for one in some), key=lambda one: one.run_id) == [errand(), plain]
    assert await claimed(errands) == []


async def test_a_lease_that_has_run_out_frees_it(errands: RunHookStore) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    assert await claimed(errands, lease=AT_ONCE) == [errand()]
    assert await claimed(errands) == [errand()]
    assert await claimed(errands) == []


async def test_one_that_is_put_off_comes_back_as_it_was_left(errands: RunHookStore) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    (held,) = await claimed(errands)
    await errands.put_off(left := replace(held, webhook="", attempts=3), wait=AT_ONCE)
    assert await claimed(errands) == [left]
    await errands.put_off(left, wait=LONG)
    assert await claimed(errands) == []


async def test_one_that_is_done_is_gone(errands: RunHookStore) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    await errands.done("r")
    await errands.done("r")
    await errands.put_off(errand(), wait=AT_ONCE)
    assert await claimed(errands) == []


async def test_one_that_is_there_already_stays_as_it_is(errands: RunHookStore) -> None:
    await errands.add(errand(), wait=AT_ONCE)
    await errands.add(errand(webhook="https://other.example/"), wait=LONG)
    assert await claimed(errands) == [errand()]


async def test_while_its_thread_runs_there_is_nothing_to_do(errands: RunHookStore, store: Store) -> None:
    change = opened()
    assert change.thread.status is Status.RUNNING
    await store.commit(change)
    await errands.add(errand(thread_id=change.thread.id), wait=AT_ONCE)
    assert await claimed(errands) == []


async def test_errands_go_with_their_thread(errands: RunHookStore, store: Store, database: Database) -> None:
    change = opened()
    await store.commit(change)
    await errands.add(errand(thread_id=change.thread.id), wait=AT_ONCE)
    await errands.add(errand("other"), wait=AT_ONCE)
    await store.tombstone(change.thread.id, now=NOW)
    while await store.purge():
        pass
    assert [tuple(row) for row in await query(database, "SELECT run_id FROM errands")] == [("other",)]


async def test_a_thread_that_goes_with_its_run_is_in_no_list(
    errands: RunHookStore, store: Store, database: Database
) -> None:
    labels = ThreadMetadataRows(database)
    change = opened()
    await store.commit(change)
    wanted = ThreadSearch(owner=ANN)
    await errands.add(errand(thread_id=change.thread.id, is_temporary=False), wait=AT_ONCE)
    assert (await labels.find(wanted), await labels.count(wanted)) == ([change.thread.id], 1)
    await errands.add(errand("r2", thread_id=change.thread.id), wait=AT_ONCE)
    assert (await labels.find(wanted), await labels.count(wanted)) == ([], 0)
