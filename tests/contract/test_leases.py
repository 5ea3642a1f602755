"""Who may run a thread, and what becomes of a runner that lost it."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from clew.domain.errors import Conflict, LostLease, NotFound
from clew.domain.events import Body, StageChanged, StageCompleted
from clew.domain.lifecycle import Change, finish, next_round, resolve, stop
from clew.domain.records import FIRST_FENCE, Lease
from clew.domain.thread import Status, SuspensionKind, Thread
from clew.ports.guards import Claim, Fence, Guard
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.sql.work import Database
from tests.databases import SHARED, open_database, open_store, query
from tests.samples import NOW, asks, opened, recorded, said, stamp, suspend, waits

pytestmark = pytest.mark.anyio

LONG = timedelta(minutes=5)
OVER = timedelta(0)  # a lease that has run out the moment it is given


async def saved(store: Store, change: Change, *guards: Guard) -> Thread:
    await store.commit(change, *guards)
    return change.thread


async def claim(store: Store, runner: str = "r1", lease: timedelta = LONG) -> Lease:
    (claimed,) = await store.claim(runner, lease=lease, limit=10)
    return claimed


async def test_a_running_thread_is_claimed_once(store: Store) -> None:
    await saved(store, opened())
    lease = await claim(store)
    assert (lease.thread_id, lease.recoveries) == ("t1", 0)
    assert await store.claim("r2", lease=LONG, limit=10) == []
    assert await store.claim("r1", lease=LONG, limit=10) == []


async def test_there_is_work_exactly_while_something_could_be_claimed(store: Store) -> None:
    assert not await store.has_work()
    thread = await saved(store, opened())
    assert await store.has_work()
    lease = await claim(store)
    assert not await store.has_work()
    await store.release("r1", lease)
    assert await store.has_work()
    await claim(store, "r2", OVER)
    assert await store.has_work()
    await saved(store, finish(thread, Status.COMPLETED, stamp=stamp()))
    assert not await store.has_work()


async def test_threads_of_graphs_one_does_not_have_are_left_to_others(store: Store) -> None:
    for graph in ("chat", "new", "gone"):
        await saved(store, opened(graph, graph=graph))
    assert not await store.has_work(["other"])
    assert await store.claim("r1", lease=LONG, limit=10, graphs=["other"], alive=["chat"]) == []
    assert await store.has_work(["new", "chat"])
    claimed = await store.claim("r1", lease=LONG, limit=10, graphs=["chat", "new"], alive=["gone", "x", "y"])
    assert {lease.thread_id for lease in claimed} == {"chat", "new"}
    assert [lease.thread_id for lease in await store.claim("r2", lease=LONG, limit=10)] == ["gone"]


async def test_what_a_process_left_is_taken_up_before_what_is_new(store: Store) -> None:
    """Or a busy server would never come to it."""
    await saved(store, opened("left"))
    await claim(store, "r1", OVER)
    for n in range(10):
        await saved(store, opened(f"new{n}"))
    claimed = await store.claim("r2", lease=LONG, limit=1)
    assert [lease.thread_id for lease in claimed] == ["left"]
    assert len(await store.claim("r2", lease=LONG, limit=20)) == 10


async def test_threads_are_claimed_by_how_often_they_were_recovered(store: Store) -> None:
    await saved(store, opened("often"))
    for n in range(3):
        assert (await claim(store, f"r{n}", OVER)).recoveries == n
    await saved(store, opened("new"))

    async def claimed(least: int, most: int) -> list[tuple[str, int]]:
        leases = await store.claim("r9", lease=LONG, limit=10, recovered=(least, most))
        return [(lease.thread_id, lease.recoveries) for lease in leases]

    assert await claimed(1, 2) == []
    assert await claimed(0, 2) == [("new", 0)]
    assert await claimed(3, 2**31 - 1) == [("often", 3)]


async def test_one_thread_is_claimed_by_name(store: Store) -> None:
    await saved(store, opened("t1"))
    await saved(store, opened("t2"))
    rested = await saved(store, finish(await saved(store, opened("t3")), Status.COMPLETED, stamp=stamp()))

    async def one(runner: str, thread_id: str = "t1", lease: timedelta = LONG, most: int = 9) -> Lease | None:
        return await store.claim_one(runner, thread_id, lease=lease, recovered=(0, most))

    first = await one("r1")
    assert first is not None
    assert (first.thread_id, first.recoveries) == ("t1", 0)
    assert await one("r2") is None
    assert await one("r2", rested.id) is None
    assert await one("r2", "nothing") is None
    # The answer to the first claim was lost: it is made again, and no process has died.
    again = await one("r1", lease=OVER)
    assert again is not None
    assert (again.fence > first.fence, again.recoveries) == (True, 0)
    assert await one("r2", most=0) is None
    other = await one("r2")
    assert other is not None
    assert (other.fence > again.fence, other.recoveries) == (True, 1)
    assert [lease.thread_id for lease in await store.claim("r3", lease=LONG, limit=10)] == ["t2"]


async def test_only_running_threads_are_claimed(store: Store) -> None:
    await saved(store, opened("held", held=True))
    await saved(store, suspend(await saved(store, opened("blocked")), [waits()], stamp=stamp()))
    for status in (Status.COMPLETED, Status.FAILED, Status.STOPPED):
        await saved(store, finish(await saved(store, opened(str(status))), status, stamp=stamp()))
    assert await store.claim("r1", lease=LONG, limit=10) == []


async def test_no_more_are_claimed_than_asked_for(store: Store) -> None:
    for n in range(7):
        await saved(store, opened(f"t{n}"))
    taken = [len(await store.claim("r1", lease=LONG, limit=3)) for _ in range(4)]
    assert taken == [3, 3, 1, 0]


async def test_a_lease_that_ran_out_is_taken_over_and_counted(store: Store) -> None:
    await saved(store, opened())
    first = await claim(store, "r1", OVER)
    second = await claim(store, "r2", OVER)
    third = await claim(store, "r3")
    assert first.fence < second.fence < third.fence
    assert (first.recoveries, second.recoveries, third.recoveries) == (0, 1, 2)


@pytest.mark.parametrize(("body", "counted"), [(StageChanged(stage="a"), 2), (StageCompleted(stage="a"), 1)])
async def test_crashes_are_counted_from_the_last_stage_that_was_completed(
    store: Store, body: Body, counted: int
) -> None:
    thread = await saved(store, opened())
    await claim(store, "r1", OVER)
    second = await claim(store, "r2", OVER)
    await saved(store, recorded(thread, body), Fence(second.fence))
    assert (await claim(store, "r3")).recoveries == counted


async def test_a_zombie_with_an_old_fence_cannot_write(store: Store, calls: Calls) -> None:
    thread = await saved(store, recorded(await saved(store, opened()), asks()))
    zombie = await claim(store, "r1", OVER)
    heir = await claim(store, "r2")
    with pytest.raises(LostLease):
        await store.commit(recorded(thread, said("from the dead")), Fence(zombie.fence))
    with pytest.raises(LostLease):
        await store.commit(finish(thread, Status.FAILED, stamp=stamp()), Fence(zombie.fence))
    with pytest.raises(LostLease):
        await calls.start("t1", "c1", fence=zombie.fence, now=NOW)
    assert await store.get("t1") == thread
    thread = await saved(store, recorded(thread, said("alive")), Fence(heir.fence))
    with pytest.raises(LostLease):  # and not a mere Conflict, upon which it would read and try again
        await store.commit(recorded(thread, said("again")), Fence(zombie.fence))


async def test_a_lease_past_its_time_is_good_until_somebody_takes_it(store: Store) -> None:
    thread = await saved(store, opened())
    lease = await claim(store, "r1", OVER)
    thread = await saved(store, recorded(thread, said()), Fence(lease.fence))
    assert await store.renew("r1", [lease], lease=LONG) == set()
    assert await store.claim("r2", lease=LONG, limit=1) == []


async def test_what_is_alive_is_not_claimed_from_oneself(store: Store) -> None:
    for name in ("alive", "given up"):
        await saved(store, opened(name))

    async def claimed(runner: str, *alive: str) -> dict[str, Lease]:
        leases = await store.claim(runner, lease=OVER, limit=10, alive=alive)
        return {lease.thread_id: lease for lease in leases}

    assert set(await claimed("r1", "alive")) == {"alive", "given up"}  # nobody held it yet
    assert set(await claimed("r1", "alive", "unknown")) == {"given up"}
    assert set(await claimed("r2", "alive")) == {"alive", "given up"}  # alive here, but another one's
    held = await claimed("r2", "given up")
    assert set(held) == {"alive"}
    assert held["alive"].recoveries == 2
    await store.release("r2", held["alive"])
    assert set(await claimed("r2", "alive", "given up")) == {"alive"}


async def test_a_fenced_change_that_is_stale_is_a_conflict(store: Store) -> None:
    thread = await saved(store, opened())
    lease = await claim(store)
    await saved(store, recorded(thread, said()))
    with pytest.raises(Conflict) as refused:
        await store.commit(recorded(thread, said()), Fence(lease.fence))
    assert not isinstance(refused.value, LostLease)


async def test_renewing_prolongs_what_is_held_and_names_what_is_not(store: Store) -> None:
    for n in range(3):
        await saved(store, opened(f"t{n}"))
    leases = sorted(await store.claim("r1", lease=OVER, limit=10), key=lambda lease: lease.thread_id)
    assert await store.renew("r1", leases[:2], lease=LONG) == set()
    stolen = await claim(store, "r2")
    assert stolen.thread_id == "t2"
    await store.tombstone("t0", now=NOW)
    assert await store.renew("r1", leases, lease=LONG) == {"t0", "t2"}
    assert await store.renew("r3", [stolen], lease=LONG) == {"t2"}
    assert await store.renew("r1", [], lease=LONG) == set()


async def test_a_lease_given_back_is_free_at_once_and_is_no_recovery(store: Store) -> None:
    await saved(store, opened())
    await store.release("r1", await claim(store, "r1"))
    again = await claim(store, "r2")
    assert again.recoveries == 0


async def test_a_lost_lease_given_back_leaves_its_heir_alone(store: Store) -> None:
    await saved(store, opened())
    lost = await claim(store, "r1", OVER)
    heir = await claim(store, "r2")
    await store.release("r1", lost)
    await store.release("r1", heir)
    assert await store.renew("r2", [heir], lease=LONG) == set()
    assert await store.claim("r3", lease=LONG, limit=1) == []


@pytest.mark.parametrize("ending", ["suspend", "complete", "fail", "stop"])
async def test_the_commit_that_ends_the_run_ends_the_lease(
    store: Store, calls: Calls, database: Database, ending: str
) -> None:
    thread = await saved(store, opened())
    lease = await claim(store)
    change = {
        "suspend": suspend(thread, [waits(kind=SuspensionKind.ELICITATION)], stamp=stamp()),
        "complete": finish(thread, Status.COMPLETED, stamp=stamp()),
        "fail": finish(thread, Status.FAILED, stamp=stamp()),
        "stop": stop(thread, [], stamp=stamp()),
    }[ending]
    thread = await saved(store, change, Fence(lease.fence))
    row = await query(database, "SELECT lease_owner, lease_until, recoveries FROM threads WHERE id = 't1'")
    assert tuple(row[0]) == (None, None, 0)
    assert await store.renew("r1", [lease], lease=LONG) == {"t1"}
    # The fence moved on: what the ended run still has in its hands comes too late, whatever happens next.
    if thread.status is Status.BLOCKED:
        thread = await saved(store, resolve(thread, await calls.get("t1", "c1"), "yes", stamp=stamp()))
    else:
        thread = await saved(store, next_round(thread, "again", stamp=stamp()))
    with pytest.raises(LostLease):
        await store.commit(recorded(thread, said("late")), Fence(lease.fence))
    assert (await claim(store, "r2")).recoveries == 0


async def test_a_stop_from_outside_shuts_the_runner_out(store: Store, calls: Calls) -> None:
    thread = await saved(store, recorded(await saved(store, opened()), asks()))
    lease = await claim(store)
    await saved(store, stop(thread, await calls.find("t1"), stamp=stamp()))
    for late in (said("late"), waits()):
        with pytest.raises(LostLease):
            await store.commit(recorded(thread, late), Fence(lease.fence))
    with pytest.raises(LostLease):
        await calls.start("t1", "c1", fence=lease.fence, now=NOW)
    assert (await store.get("t1")).status is Status.STOPPED


async def test_a_command_from_outside_needs_no_fence_and_leaves_the_lease(store: Store) -> None:
    thread = await saved(store, opened())
    lease = await claim(store)
    thread = await saved(store, recorded(thread, said("from outside")))
    await saved(store, recorded(thread, said("from the runner")), Fence(lease.fence))
    assert await store.renew("r1", [lease], lease=LONG) == set()


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_two_runners_never_hold_the_same_thread(where: str) -> None:
    async with open_database(where) as one, open_database(where) as two:
        stores = [open_store(one), open_store(two)]
        for n in range(40):
            await stores[0].commit(opened(f"t{n:02}"))

        async def take(runner: int) -> list[str]:
            store = stores[runner % 2]
            taken: list[str] = []
            while leases := await store.claim(f"r{runner}", lease=LONG, limit=3):
                taken += [lease.thread_id for lease in leases]
            return taken

        taken = await asyncio.gather(*(take(runner) for runner in range(6)))
    # Skipping what another one is just locking may end a runner early; none may be taken twice.
    everything = [thread_id for one in taken for thread_id in one]
    assert sorted(everything) == [f"t{n:02}" for n in range(40)]


async def test_a_thread_may_be_claimed_with_the_commit_that_opens_it(store: Store) -> None:
    change = opened()
    await store.commit(change, Claim(runner="r1", lease=LONG))
    assert not await store.has_work()
    assert await store.claim("r2", lease=LONG, limit=10) == []
    first = Lease(thread_id="t1", fence=FIRST_FENCE, recoveries=0)
    assert await store.renew("r1", [first], lease=OVER) == set()
    assert await claim(store, "r2") == Lease(thread_id="t1", fence=FIRST_FENCE + 1, recoveries=1)
    with pytest.raises(LostLease):
        await saved(store, recorded(change.thread, said()), Fence(FIRST_FENCE))


async def test_a_thread_that_is_there_is_not_claimed_by_opening_it_again(store: Store) -> None:
    await saved(store, opened())
    with pytest.raises(Conflict):
        await store.commit(opened(), Claim(runner="r1", lease=LONG))
    assert (await claim(store, "r2")).fence == FIRST_FENCE


def next_one(thread: Thread) -> Change:
    return next_round(thread, "again", stamp=stamp())


async def idle(store: Store) -> Thread:
    """A thread whose first round is over."""
    thread = await saved(store, opened())
    await saved(store, finish(thread, Status.COMPLETED, stamp=stamp()))
    return await store.get("t1")


async def test_a_thread_may_be_claimed_with_the_commit_that_begins_its_next_round(store: Store) -> None:
    thread = await idle(store)
    change = next_one(thread)
    await store.commit(change, Claim(runner="r1", lease=LONG, fence=thread.fence + 1))
    assert not await store.has_work()
    assert await store.claim("r2", lease=LONG, limit=10) == []
    held = Lease(thread_id="t1", fence=thread.fence + 1, recoveries=0)
    assert await store.renew("r1", [held], lease=LONG) == set()
    await saved(store, recorded(change.thread, said()), Fence(held.fence))
    with pytest.raises(LostLease):
        await saved(store, recorded(change.thread, said()), Fence(thread.fence))


async def test_it_is_not_claimed_under_a_fence_that_another_runner_had(store: Store) -> None:
    thread = await idle(store)
    with pytest.raises(Conflict):
        await store.commit(next_one(thread), Claim(runner="r1", lease=LONG, fence=thread.fence))
    assert await store.get("t1") == thread


async def test_whoever_runs_a_thread_shuts_out_who_read_its_fence_before(store: Store) -> None:
    await store.commit(opened("t1"))
    before = await store.fence("t1")
    (lease,) = await store.claim("one", lease=LONG, limit=1)
    assert await store.fence("t1") == lease.fence > before
    with pytest.raises(NotFound):
        await store.fence("nobody")


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_a_thread_that_is_only_kept_from_being_deleted_can_be_claimed(where: str, store: Store) -> None:
    """What is written beside a thread, like its metadata, locks its row that way."""
    await saved(store, opened())
    async with await psycopg.AsyncConnection.connect(where) as other:
        await other.execute("SELECT 1 FROM threads WHERE id = 't1' FOR KEY SHARE")
        assert [lease.thread_id for lease in await store.claim("r1", lease=LONG, limit=10)] == ["t1"]


async def test_what_a_runner_does_not_know_of_is_given_back_and_the_rest_stays(store: Store) -> None:
    for name in ("t1", "t2", "t3"):
        await saved(store, opened(name))
    await store.claim("r1", lease=LONG, limit=2)
    (other,) = await store.claim("r2", lease=LONG, limit=1)
    known = next(name for name in ("t1", "t2", "t3") if name != other.thread_id)
    await store.release_all("r1", but=[known])
    (lease,) = await store.claim("r3", lease=LONG, limit=10)
    assert lease.thread_id not in (known, other.thread_id)
    assert lease.recoveries == 0


async def test_leases_of_a_dead_runner_run_out_at_once_and_count_as_recoveries(store: Store) -> None:
    for name in ("t1", "t2", "t3"):
        await saved(store, opened(name))
    dead = await store.claim("dead", lease=LONG, limit=2)
    await store.claim("other", lease=LONG, limit=1)
    assert set(await store.lease_owners()) == {"dead", "other"}
    assert await store.end_leases("dead") == 2
    assert await store.lease_owners() == ["other"]
    assert await store.end_leases("dead") == 0
    taken = await store.claim("r3", lease=LONG, limit=10)
    assert {lease.thread_id: lease.recoveries for lease in taken} == {lease.thread_id: 1 for lease in dead}
