"""Caps on threads that run at once, enforced by claims, and on runs that wait, enforced by what queues them."""

import asyncio
from datetime import timedelta

import pytest

from clew.domain.errors import AtCapacity, NotFound
from clew.domain.events import Opening
from clew.domain.lifecycle import finish, open_thread
from clew.domain.records import Incoming
from clew.domain.runs import SOURCE
from clew.domain.thread import Owner, Status, Thread
from clew.ports.guards import Caps, Claim, QueueRoom
from clew.ports.inbox import Inbox
from clew.ports.threads import Store
from clew.stores.sql.threads import ThreadRows
from tests.samples import NOW, stamp

pytestmark = pytest.mark.anyio

LONG = timedelta(minutes=5)


async def queue(
    store: Store,
    thread_id: str,
    tenant: str = "a",
    user: str = "",
    graph: str = "chat",
    room: QueueRoom | None = None,
) -> Thread:
    opening = Opening(owner=Owner(tenant=tenant, user_id=user), graph=graph)
    change = open_thread(thread_id, opening, "hi", stamp=stamp())
    await store.commit(change, *([room] if room else ()))
    return change.thread


async def claimed(store: Store, runner: str = "r1", limit: int = 10) -> list[str]:
    return [lease.thread_id for lease in await store.claim(runner, lease=LONG, limit=limit)]


def capped(store: Store, caps: Caps) -> None:
    assert isinstance(store, ThreadRows)
    store.caps = caps


@pytest.mark.parametrize("what", ["tenant", "user", "graph"])
async def test_no_more_than_the_cap_run_at_once(store: Store, what: str) -> None:
    capped(store, Caps(**{what: 2}))
    threads = [await queue(store, f"x{number}", "a", "ann", "chat") for number in range(4)]
    other = {"tenant": ("b", "ann", "chat"), "user": ("a", "bob", "chat"), "graph": ("a", "ann", "other")}
    await queue(store, "y0", *other[what])
    assert set(await claimed(store)) == {"x0", "x1", "y0"}
    assert await claimed(store) == []
    await store.commit(finish(threads[0], Status.COMPLETED, stamp=stamp()))
    assert await claimed(store, "r2") == ["x2"]


async def test_a_user_of_another_tenant_and_no_user_are_not_counted_together(store: Store) -> None:
    capped(store, Caps(user=1))
    for number, (tenant, user) in enumerate([("a", "ann"), ("b", "ann"), ("a", ""), ("a", "")]):
        await queue(store, f"t{number}", tenant, user)
    assert len(await claimed(store)) == 4


async def test_what_a_dead_process_left_counts_when_it_is_claimed_again(store: Store) -> None:
    capped(store, Caps(tenant=1))
    await queue(store, "left")
    await store.claim("r1", lease=timedelta(0), limit=1)
    await queue(store, "later")
    assert await claimed(store) == ["left"]
    assert await claimed(store) == []


async def test_claims_at_once_keep_the_cap(store: Store) -> None:
    capped(store, Caps(tenant=3))
    for number in range(12):
        await queue(store, f"t{number}")
    taken = await asyncio.gather(*(claimed(store, f"r{number}", 2) for number in range(6)))
    assert sum(map(len, taken)) == 3


@pytest.mark.parametrize("what", ["tenant", "user", "graph"])
async def test_no_more_than_the_cap_wait(store: Store, what: str) -> None:
    room = QueueRoom(Caps(**{what: 2}))
    for number in range(2):
        await queue(store, f"x{number}", "a", "ann", "chat", room)
    with pytest.raises(AtCapacity, match=r"2 runs of .* wait already"):
        await queue(store, "x2", "a", "ann", "chat", room)
    with pytest.raises(NotFound):
        await store.get("x2")
    other = {"tenant": ("b", "ann", "chat"), "user": ("a", "bob", "chat"), "graph": ("a", "ann", "other")}
    await queue(store, "y0", *other[what], room)
    assert len(await claimed(store, limit=1)) == 1
    await queue(store, "x2", "a", "ann", "chat", room)


async def test_one_that_is_claimed_as_it_is_opened_waits_for_nothing(store: Store) -> None:
    room = QueueRoom(Caps(tenant=1))
    await queue(store, "t1", room=room)
    opening = Opening(owner=Owner(tenant="a"), graph="chat")
    await store.commit(open_thread("t2", opening, "hi", stamp=stamp()), room, Claim(runner="r1", lease=LONG))


async def test_threads_queued_at_once_keep_the_cap(store: Store) -> None:
    room = QueueRoom(Caps(tenant=5))
    outcomes = await asyncio.gather(
        *(queue(store, f"t{number}", room=room) for number in range(24)), return_exceptions=True
    )
    assert sum(isinstance(one, AtCapacity) for one in outcomes) == 19


async def test_runs_queued_behind_one_of_their_thread_wait_too(store: Store, inbox: Inbox) -> None:
    room = QueueRoom(Caps(tenant=2))
    await queue(store, "t1", room=room)

    def run(number: int) -> Incoming:
        return Incoming(
            source=SOURCE,
            source_id=f"run{number}",
            fingerprint=f"run{number}",
            payload={},
            conversation="t1",
            thread_id="t1",
        )

    await inbox.admit(run(1), now=NOW, is_opened=True, room=room)
    with pytest.raises(AtCapacity):
        await inbox.admit(run(2), now=NOW, is_opened=True, room=room)
    assert [one.source_id for one in await inbox.waiting(SOURCE, "t1")] == ["run1"]
    with pytest.raises(AtCapacity):
        await queue(store, "t2", room=room)
