"""One active thread in a worktree, and no more of them than may be: decided where the thread is written."""

import asyncio
from collections import Counter

import pytest

from clew.domain.errors import AlreadyReserved, AtCapacity, NotFound
from clew.domain.events import Opening
from clew.domain.lifecycle import (
    RESERVED,
    Change,
    begin,
    finish,
    next_round,
    open_thread,
    record,
    resolve,
    retry_round,
    stop,
)
from clew.domain.thread import Status, Thread
from clew.ports.guards import Reservation
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.sql.trash import TrashRows
from clew.stores.sql.work import Database
from tests.databases import SHARED, open_database, open_store, query
from tests.samples import ANN, NOW, said, stamp, suspend, waits

pytestmark = pytest.mark.anyio

PATH = "/code/shop"


def opened(thread_id: str, path: str = PATH, *, held: bool = False) -> Change:
    opening = Opening(owner=ANN, graph="coding", settings={RESERVED: {"worktree": path}})
    return open_thread(thread_id, opening, "go", stamp=stamp(), held=held)


async def commit(store: Store, change: Change, *, most: int | None = None) -> Thread:
    """As the commands do."""
    taken = [Reservation(kind=kind, key=key, limit=most) for kind, key in change.reserves.items()]
    await store.commit(change, *taken)
    return change.thread


async def test_a_worktree_is_one_thread_s_until_it_ends(store: Store) -> None:
    first = await commit(store, opened("a"))
    with pytest.raises(AlreadyReserved):
        await commit(store, opened("b"))
    with pytest.raises(NotFound):
        await store.get("b")  # nothing of it was written
    await commit(store, opened("c", "/code/other"))
    await commit(store, finish(first, Status.COMPLETED, stamp=stamp()))
    await commit(store, opened("b"))


@pytest.mark.parametrize("held", [True, False])
async def test_one_that_waits_has_it_too(store: Store, held: bool) -> None:
    thread = await commit(store, opened("a", held=held))
    if not held:
        await commit(store, suspend(thread, [waits()], stamp=stamp()))
    with pytest.raises(AlreadyReserved):
        await commit(store, opened("b"))


async def test_who_has_it_may_begin_and_go_on(store: Store, calls: Calls) -> None:
    thread = await commit(store, opened("a", held=True), most=1)
    thread = await commit(store, begin(thread, stamp=stamp()), most=1)
    thread = await commit(store, suspend(thread, [waits("c1")], stamp=stamp()))
    call = await calls.get("a", "c1")
    thread = await commit(store, resolve(thread, call, {"approved": True}, stamp=stamp()), most=1)
    thread = await commit(store, record(thread, [said()], stamp=stamp()))
    assert await store.get("a") == thread
    with pytest.raises(AlreadyReserved):
        await commit(store, opened("b"), most=1)


async def test_another_round_takes_it_again_or_is_refused(store: Store) -> None:
    first = await commit(store, opened("a"))
    failed = await commit(store, finish(first, Status.FAILED, stamp=stamp()))
    second = await commit(store, opened("b"))
    with pytest.raises(AlreadyReserved):
        await commit(store, next_round(failed, "again", stamp=stamp()))
    with pytest.raises(AlreadyReserved):
        await commit(store, retry_round(failed, stamp=stamp()))
    assert await store.get("a") == failed
    await commit(store, stop(second, (), stamp=stamp()))
    await commit(store, retry_round(failed, stamp=stamp()))
    with pytest.raises(AlreadyReserved):
        await commit(store, next_round((await store.get("b")), "again", stamp=stamp()))


async def test_a_deleted_thread_has_let_go(store: Store, database: Database) -> None:
    await commit(store, opened("a"))
    await store.tombstone("a", now=NOW)
    await commit(store, opened("b"))
    assert await store.purge() == ["a"]
    with pytest.raises(AlreadyReserved):
        await commit(store, opened("c"))
    await store.tombstone("b", now=NOW)
    await store.purge()
    assert await query(database, "SELECT key FROM reservations") == []


async def test_one_that_is_brought_back_takes_it_or_stays_away(store: Store, database: Database) -> None:
    trash = TrashRows(database)
    await commit(store, opened("a"))
    await trash.put("a", now=NOW)
    second = await commit(store, opened("b"))
    with pytest.raises(AlreadyReserved):
        await trash.restore("a", now=NOW)
    with pytest.raises(NotFound):
        await store.get("a")
    await commit(store, finish(second, Status.COMPLETED, stamp=stamp()))
    await trash.restore("a", now=NOW)
    with pytest.raises(AlreadyReserved):
        await commit(store, opened("c"))


async def test_no_more_are_active_than_may_be(store: Store) -> None:
    first = await commit(store, opened("a", "/1"), most=2)
    await commit(store, opened("b", "/2", held=True), most=2)
    with pytest.raises(AtCapacity):
        await commit(store, opened("c", "/3"), most=2)
    with pytest.raises(AlreadyReserved):  # waiting would not help here
        await commit(store, opened("c", "/2"), most=2)
    await commit(store, finish(first, Status.FAILED, stamp=stamp()))
    await commit(store, opened("c", "/3"), most=2)


@pytest.mark.accept("001-33")
@pytest.mark.parametrize("where", SHARED, indirect=True)
@pytest.mark.parametrize(("paths", "most", "winners"), [(1, None, 1), (24, 3, 3)])
async def test_of_many_at_once_as_many_win_as_may(
    where: str, paths: int, most: int | None, winners: int
) -> None:
    """Through two doors to one database, as two processes have them."""
    async with open_database(where) as one, open_database(where) as two:
        stores = (open_store(one), open_store(two))

        async def begin_one(number: int) -> str:
            try:
                await commit(stores[number % 2], opened(f"t{number}", f"/{number % paths}"), most=most)
            except (AlreadyReserved, AtCapacity) as exc:
                return exc.code
            return "won"

        outcomes = Counter(await asyncio.gather(*(begin_one(number) for number in range(24))))
        refusal = AlreadyReserved.code if paths == 1 else AtCapacity.code
        assert outcomes == {"won": winners, refusal: 24 - winners}
        assert len(await stores[0].find(status=(Status.RUNNING,), limit=100)) == winners
