"""What every store of tool calls must do: rows that follow the log, and the one mark beside it."""

import asyncio
from datetime import timedelta

import pytest

from clew.domain.errors import Conflict, LostLease, NotFound
from clew.domain.events import Body, Resolution, RoundFinished, ToolCall, ToolResult
from clew.domain.lifecycle import expire, next_round, resolve, stop
from clew.domain.thread import Executor, Status, SuspensionKind, Thread
from clew.domain.tool_calls import Call, CallStatus, fold_calls
from clew.ports.guards import Overdue
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from tests.samples import NOW, asks, opened, recorded, said, stamp, waits

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@pytest.fixture
async def thread(store: Store) -> Thread:
    change = opened()
    await store.commit(change)
    return change.thread


async def record(store: Store, thread: Thread, *bodies: Body) -> Thread:
    change = recorded(thread, *bodies)
    await store.commit(change)
    return change.thread


async def told_by_the_log(store: Store, thread_id: str = "t1") -> list[Call]:
    calls = fold_calls({}, await store.read(thread_id)).values()
    return sorted(calls, key=lambda call: (call.created_at, call.id))


@pytest.mark.accept("002-17")
async def test_a_row_says_who_carries_out_what_and_how_it_ended(
    store: Store, calls: Calls, thread: Thread
) -> None:
    asked = ToolCall(
        call_id="c1", name="pay", args={"euro": [1, None]}, executor=Executor.CLIENT, idempotent=False
    )
    thread = await record(store, thread, asked)
    assert await calls.get("t1", "c1") == Call(
        thread_id="t1",
        id="c1",
        round=1,
        executor=Executor.CLIENT,
        name="pay",
        args={"euro": [1, None]},
        idempotent=False,
        created_at=NOW,
    )
    thread = await record(store, thread, ToolResult(call_id="c1", ok=True, result={"paid": True}))
    call = await calls.get("t1", "c1")
    assert (call.status, call.result, call.resolved_at) == (CallStatus.RESOLVED, {"paid": True}, NOW)


@pytest.mark.accept("002-17")
async def test_providers_may_repeat_an_id_in_another_thread(store: Store, calls: Calls) -> None:
    for thread_id in ("a", "b"):
        change = opened(thread_id)
        await store.commit(change)
        await record(store, change.thread, asks("call_0"))
    a = await store.get("a")
    await record(store, a, ToolResult(call_id="call_0", ok=True))
    assert (await calls.get("a", "call_0")).status is CallStatus.RESOLVED
    assert (await calls.get("b", "call_0")).status is CallStatus.PENDING


async def test_an_id_used_again_in_a_later_round_is_a_new_call(
    store: Store, calls: Calls, thread: Thread
) -> None:
    thread = await record(
        store, thread, asks("call_0"), ToolResult(call_id="call_0", ok=True, result=1), _done()
    )
    again = next_round(thread, "again", stamp=stamp(9))
    await store.commit(again)
    await record(
        store, again.thread, ToolCall(call_id="call_0", name="other", args={"n": 2}, idempotent=False)
    )
    call = await calls.get("t1", "call_0")
    assert (call.name, call.args, call.round, call.idempotent) == ("other", {"n": 2}, 2, False)
    assert (call.status, call.result, call.resolved_at) == (CallStatus.PENDING, None, None)
    assert [call] == await told_by_the_log(store)


def _done() -> RoundFinished:
    return RoundFinished(status=Status.COMPLETED)


async def test_an_unknown_call_is_not_found(calls: Calls, thread: Thread) -> None:
    with pytest.raises(NotFound):
        await calls.get("t1", "c9")
    assert await calls.find("t1") == []


async def test_calls_are_found_by_status_oldest_first(store: Store, calls: Calls, thread: Thread) -> None:
    for n, call_id in enumerate(("z", "m", "a")):
        change = recorded(thread, asks(call_id), seconds=n)
        await store.commit(change)
        thread = change.thread
    await record(store, thread, ToolResult(call_id="m", ok=False, error="x"))
    assert [call.id for call in await calls.find("t1")] == ["z", "m", "a"]
    assert [call.id for call in await calls.find("t1", status={CallStatus.PENDING})] == ["z", "a"]
    both = {CallStatus.ERRORED, CallStatus.RESOLVED}
    assert [call.id for call in await calls.find("t1", status=both)] == ["m"]


@pytest.mark.accept("002-18")
@pytest.mark.parametrize("late", ["answer", "expiry", "stop"])
async def test_of_two_answers_at_once_the_first_stays(
    store: Store, calls: Calls, thread: Thread, late: str
) -> None:
    thread = await record(store, thread, asks(), waits(deadline=NOW))
    call = await calls.get("t1", "c1")
    first = resolve(thread, call, "first", stamp=stamp())
    second = {
        "answer": resolve(thread, call, "second", stamp=stamp()),
        "expiry": expire(thread, call, stamp=stamp()),
        "stop": stop(thread, [call], stamp=stamp()),
    }[late]
    await store.commit(first)
    with pytest.raises(Conflict):
        await store.commit(second)
    call = await calls.get("t1", "c1")
    assert (call.status, call.result) == (CallStatus.RESOLVED, "first")
    assert await store.get("t1") == first.thread


@pytest.mark.accept("002-18")
async def test_of_many_answers_at_the_same_instant_exactly_one_wins(
    store: Store, calls: Calls, thread: Thread
) -> None:
    thread = await record(store, thread, waits())
    call = await calls.get("t1", "c1")
    changes = [resolve(thread, call, n, stamp=stamp()) for n in range(20)]
    outcomes = await asyncio.gather(*(store.commit(change) for change in changes), return_exceptions=True)
    (winner,) = [n for n, outcome in enumerate(outcomes) if outcome is None]
    assert all(isinstance(outcome, Conflict) for n, outcome in enumerate(outcomes) if n != winner)
    assert (await calls.get("t1", "c1")).result == winner
    assert len(await store.read("t1", types={"resolution"})) == 1


async def test_only_one_may_begin_a_call(store: Store, calls: Calls, thread: Thread) -> None:
    await record(store, thread, asks())
    (lease,) = await store.claim("r1", lease=HOUR, limit=1)
    begun = await asyncio.gather(
        *(calls.start("t1", "c1", fence=lease.fence, now=NOW + HOUR) for _ in range(8))
    )
    assert sorted(begun) == [False] * 7 + [True]
    call = await calls.get("t1", "c1")
    assert (call.status, call.started_at) == (CallStatus.STARTED, NOW + HOUR)
    assert not await calls.start("t1", "unknown", fence=lease.fence, now=NOW)
    with pytest.raises(LostLease):
        await calls.start("t1", "c1", fence=lease.fence + 1, now=NOW)
    with pytest.raises(LostLease):
        await calls.start("nobody", "c1", fence=lease.fence, now=NOW)


async def test_whether_an_effect_may_happen_twice_is_known_when_it_begins(
    store: Store, calls: Calls, thread: Thread
) -> None:
    """What a model asked for is logged before anybody knows the tool."""
    await record(store, thread, asks())
    assert (await calls.get("t1", "c1")).idempotent
    (lease,) = await store.claim("r1", lease=HOUR, limit=1)
    assert await calls.start("t1", "c1", idempotent=False, fence=lease.fence, now=NOW)
    assert not (await calls.get("t1", "c1")).idempotent


async def test_a_call_that_has_its_result_is_not_begun(store: Store, calls: Calls, thread: Thread) -> None:
    await record(store, thread, asks(), ToolResult(call_id="c1", ok=True))
    (lease,) = await store.claim("r1", lease=HOUR, limit=1)
    assert not await calls.start("t1", "c1", fence=lease.fence, now=NOW)
    assert (await calls.get("t1", "c1")).status is CallStatus.RESOLVED


async def test_a_tool_that_stops_to_ask_is_begun_again(store: Store, calls: Calls, thread: Thread) -> None:
    await record(store, thread, asks())
    (lease,) = await store.claim("r1", lease=HOUR, limit=1)
    assert await calls.start("t1", "c1", fence=lease.fence, now=NOW)
    await calls.pause("t1", "c1", fence=lease.fence + 1)
    assert (await calls.get("t1", "c1")).status is CallStatus.STARTED, "a lost lease takes nothing back"
    await calls.pause("t1", "c1", fence=lease.fence)
    call = await calls.get("t1", "c1")
    assert (call.status, call.started_at) == (CallStatus.PENDING, None)
    assert await calls.start("t1", "c1", fence=lease.fence, now=NOW)


async def test_the_result_of_a_begun_call_keeps_when_it_began(
    store: Store, calls: Calls, thread: Thread
) -> None:
    thread = await record(store, thread, asks())
    (lease,) = await store.claim("r1", lease=HOUR, limit=1)
    await calls.start("t1", "c1", fence=lease.fence, now=NOW + HOUR)
    await record(store, thread, ToolResult(call_id="c1", ok=True))
    call = await calls.get("t1", "c1")
    assert (call.status, call.started_at) == (CallStatus.RESOLVED, NOW + HOUR)


async def test_calls_past_their_deadline_the_longest_overdue_first(
    store: Store, calls: Calls, thread: Thread
) -> None:
    await record(
        store,
        thread,
        waits("late", deadline=NOW - HOUR),
        waits("latest", deadline=NOW - 2 * HOUR),
        waits("now", deadline=NOW),
        waits("early", deadline=NOW + HOUR),
        waits("never"),
        waits("doubt", kind=SuspensionKind.IN_DOUBT, deadline=NOW - HOUR),
    )
    assert [call.id for call in await calls.due(now=NOW, limit=10)] == ["latest", "late", "now"]
    assert [call.id for call in await calls.due(now=NOW, limit=1)] == ["latest"]
    thread = await store.get("t1")
    await store.commit(expire(thread, await calls.get("t1", "latest"), stamp=stamp()))
    assert [call.id for call in await calls.due(now=NOW, limit=10)] == ["late", "now"]
    assert (await calls.get("t1", "latest")).status is CallStatus.EXPIRED


async def test_a_deadline_is_moved_or_lifted_while_the_call_waits(
    store: Store, calls: Calls, thread: Thread
) -> None:
    thread = await record(store, thread, waits(deadline=NOW))
    assert await calls.reschedule("t1", "c1", NOW + HOUR)
    assert await calls.due(now=NOW, limit=1) == []
    assert (await calls.due(now=NOW + HOUR, limit=1))[0].deadline == NOW + HOUR
    assert await calls.reschedule("t1", "c1", None)
    assert await calls.due(now=NOW + 1000 * HOUR, limit=1) == []
    call = await calls.get("t1", "c1")
    await store.commit(resolve(thread, call, "done", stamp=stamp()))
    assert not await calls.reschedule("t1", "c1", NOW)
    assert not await calls.reschedule("t1", "unknown", NOW)


@pytest.mark.parametrize("more", [HOUR, None])
async def test_a_call_that_was_given_more_time_meanwhile_does_not_expire(
    store: Store, calls: Calls, thread: Thread, more: timedelta | None
) -> None:
    thread = await record(store, thread, asks(), waits(deadline=NOW))
    change = expire(thread, await calls.get("t1", "c1"), stamp=stamp())
    assert await calls.reschedule("t1", "c1", None if more is None else NOW + more)
    with pytest.raises(Conflict):
        await store.commit(change, Overdue("c1"))
    assert await store.get("t1") == thread
    assert (await calls.get("t1", "c1")).status is CallStatus.PENDING
    assert await calls.reschedule("t1", "c1", NOW)
    await store.commit(change, Overdue("c1"))
    assert (await calls.get("t1", "c1")).status is CallStatus.EXPIRED


async def test_of_an_expiry_and_more_time_at_the_same_instant_one_counts(
    store: Store, calls: Calls, thread: Thread
) -> None:
    for n in range(20):
        opening = opened(f"race{n}")
        await store.commit(opening)
        one = await record(store, opening.thread, asks(), waits(deadline=NOW))
        change = expire(one, await calls.get(one.id, "c1"), stamp=stamp())
        outcome, moved = await asyncio.gather(
            store.commit(change, Overdue("c1")),
            calls.reschedule(one.id, "c1", NOW + HOUR),
            return_exceptions=True,
        )
        assert isinstance(outcome, Conflict) is (moved is True), (outcome, moved)
        is_expired = (await calls.get(one.id, "c1")).status is CallStatus.EXPIRED
        assert is_expired is not moved


async def test_rows_and_log_agree_even_where_a_batch_says_odd_things(
    store: Store, calls: Calls, thread: Thread
) -> None:
    thread = await record(store, thread, asks("old"), ToolResult(call_id="old", ok=True, result=1))
    thread = await record(
        store,
        thread,
        ToolResult(call_id="stray", ok=True),
        asks("old"),
        asks("new"),
        waits("asked"),
        Resolution(call_id="asked", outcome="cancelled"),
        said(),
        ToolResult(call_id="old", ok=False, error="late"),
        RoundFinished(status=Status.FAILED),
    )
    assert await calls.find("t1") == await told_by_the_log(store)
    assert (await calls.get("t1", "old")).result == 1


async def test_asking_again_under_a_settled_id_in_the_last_batch(
    store: Store, calls: Calls, thread: Thread
) -> None:
    """A settled call that the batch names must be known when the batch also ends the round."""
    thread = await record(store, thread, asks("c1"), ToolResult(call_id="c1", ok=True, result=1))
    await record(store, thread, waits("c1"), RoundFinished(status=Status.FAILED))
    assert await calls.find("t1") == await told_by_the_log(store)


async def test_many_calls_in_one_commit(store: Store, calls: Calls, thread: Thread) -> None:
    thread = await record(store, thread, *(asks(f"c{n}") for n in range(300)))
    await record(store, thread, *(ToolResult(call_id=f"c{n}", ok=True, result=n) for n in range(300)))
    assert await calls.find("t1") == await told_by_the_log(store)
