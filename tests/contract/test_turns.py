"""The order in which waiting threads are claimed: by priority, and within one fairly between tenants."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from clew.domain.events import Opening, rebuild
from clew.domain.lifecycle import finish, next_round, open_thread, resolve
from clew.domain.thread import Owner, Status, Thread
from clew.ports.guards import Claim
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.sql.queue import QueueRows
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Database
from tests.samples import asks, opened, recorded, said, stamp, waits

pytestmark = pytest.mark.anyio

LONG = timedelta(minutes=5)


async def queue(store: Store, thread_id: str, tenant: str = "a", priority: int | None = None) -> Thread:
    change = open_thread(
        thread_id, Opening(owner=Owner(tenant=tenant), graph="chat"), "hi", stamp=stamp(), priority=priority
    )
    await store.commit(change)
    return change.thread


async def claimed(store: Store, limit: int) -> list[str]:
    return [lease.thread_id for lease in await store.claim("r1", lease=LONG, limit=limit)]


async def claimed_one_by_one(store: Store) -> list[str]:
    order: list[str] = []
    while taken := await claimed(store, 1):
        order += taken
    return order


async def test_the_lowest_priority_is_claimed_first(store: Store) -> None:
    for number, priority in enumerate((0, 5, None, -5, 1, -1)):
        await queue(store, f"t{number}", priority=priority)
    assert await claimed_one_by_one(store) == ["t3", "t5", "t0", "t2", "t4", "t1"]


async def test_threads_of_one_tenant_are_claimed_in_the_order_they_came(store: Store) -> None:
    names = [f"t{number}" for number in range(9)]
    for name in names:
        await queue(store, name)
    assert await claimed_one_by_one(store) == names


async def test_a_new_tenant_comes_before_everything_that_waits_of_another(store: Store) -> None:
    for number in range(50):
        await queue(store, f"a{number}")
    assert await claimed(store, 4) == ["a0", "a1", "a2", "a3"]
    await queue(store, "b0", "b")
    await queue(store, "c0", "c")
    await queue(store, "b1", "b")
    assert set(await claimed(store, 2)) == {"b0", "c0"}
    assert set(await claimed(store, 2)) == {"b1", "a4"}
    assert await claimed(store, 1) == ["a5"]


async def test_a_tenant_that_runs_already_comes_after_one_that_does_not(store: Store) -> None:
    running = opened("a0", owner=Owner(tenant="a"))
    await store.commit(running, Claim(runner="r1", lease=LONG))
    await queue(store, "a1", "a")
    await queue(store, "b0", "b")
    assert await claimed_one_by_one(store) == ["b0", "a1"]


async def test_tenants_that_start_a_run_whenever_one_ends_do_not_starve_one_that_queues(store: Store) -> None:
    for number in range(20):
        await queue(store, f"a{number}")
    await claimed(store, 1)
    served: Counter[str] = Counter()
    for tenant in ("b", "c"):
        await queue(store, f"{tenant}0", tenant)
    for number in range(1, 31):
        (name,) = await claimed(store, 1)
        served[name[0]] += 1
        if name[0] != "a":
            await queue(store, f"{name[0]}{number}", name[0])
    assert set(served.values()) == {10}


async def test_a_tenant_of_weight_three_gets_three_turns_of_four(store: Store) -> None:
    assert isinstance(store, ThreadRows)
    store.weights = {"a": 3}
    for number in range(40):
        await queue(store, f"a{number}", "a")
        await queue(store, f"b{number}", "b")
    served: Counter[str] = Counter()
    for _ in range(20):
        served.update(name[0] for name in await claimed(store, 1))
    assert 14 <= served["a"] <= 16


async def test_a_thread_that_waits_again_takes_a_new_turn_and_keeps_its_priority(
    store: Store, calls: Calls
) -> None:
    urgent = await queue(store, "urgent", priority=-2)
    blocked = recorded(urgent, asks("c1"), waits("c1"))
    await store.commit(blocked)
    await queue(store, "other")
    call = await calls.get("urgent", "c1")
    answered = resolve(blocked.thread, call, {"approved": True}, stamp=stamp())
    assert answered.thread.priority == -2
    await store.commit(answered)
    assert await claimed_one_by_one(store) == ["urgent", "other"]
    ended = finish(answered.thread, Status.COMPLETED, stamp=stamp())
    await store.commit(ended)
    later = next_round(ended.thread, "more", stamp=stamp(), priority=3)
    await store.commit(later)
    assert (await store.get("urgent")).priority == 3
    await queue(store, "usual")
    assert await claimed_one_by_one(store) == ["usual", "urgent"]


async def test_a_run_that_goes_on_keeps_its_place_and_one_given_back_is_first(store: Store) -> None:
    first = await queue(store, "a0")
    await queue(store, "a1")
    (lease,) = await store.claim("r1", lease=LONG, limit=1)
    going = recorded(first, said("on and on"))
    await store.commit(going)
    await store.release("r1", lease)
    assert await claimed_one_by_one(store) == ["a0", "a1"]


async def test_what_a_dead_process_left_is_claimed_before_all_priorities(store: Store) -> None:
    await queue(store, "left", priority=5)
    await store.claim("r1", lease=timedelta(0), limit=1)
    await queue(store, "urgent", priority=-5)
    assert await claimed_one_by_one(store) == ["left", "urgent"]


async def test_turns_are_forgotten_when_no_thread_waits(store: Store, database: Database) -> None:
    queue_state = QueueRows(database)
    for number in range(5):
        await queue(store, f"a{number}")
    await claimed(store, 4)
    await queue_state.forget_turns()  # one waits still
    await queue(store, "b0", "b")
    assert await claimed_one_by_one(store) == ["b0", "a4"]
    await queue_state.forget_turns()
    await queue(store, "b1", "b")
    await queue(store, "a5")
    await queue(store, "c0", "c")
    assert (await claimed_one_by_one(store))[0] == "c0"


async def test_threads_opened_at_once_take_turns_too(store: Store) -> None:
    await asyncio.gather(*(queue(store, f"a{number}") for number in range(64)))
    await claimed(store, 4)
    await queue(store, "b0", "b")
    assert await claimed(store, 1) == ["b0"]


async def test_a_priority_is_in_the_log_and_in_the_row(store: Store) -> None:
    thread = await queue(store, "t1", priority=-3)
    assert (await store.get("t1")).priority == thread.priority == -3
    assert rebuild(await store.read("t1")).priority == -3
