"""What every store of audited model calls must do."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.events import UserMessage
from clew.domain.lifecycle import finish, next_round, redact
from clew.domain.records import ModelCall
from clew.domain.thread import Status, Thread
from clew.ports.model_calls import ModelCalls
from clew.ports.threads import Store
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql.model_calls import EMPTY_SINCE
from clew.stores.sql.work import Database
from tests.databases import SHARED, query
from tests.samples import NOW, new_id, opened, stamp

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
async def _threads(store: Store) -> None:
    for thread_id in ("t1", "t2"):
        await store.commit(opened(thread_id))


def model_call(turn_ref: int, *, thread_id: str = "t1", age: timedelta = timedelta()) -> ModelCall:
    return ModelCall(
        id=new_id(),
        thread_id=thread_id,
        turn_ref=turn_ref,
        model="some-model",
        rendered_context=[{"role": "system", "content": "the time is \0 noon"}],
        created_at=NOW - age,
        usage={"in": 10, "out": 2},
        latency_ms=1234,
        summary_version="v1",
        evictions=[{"seq": 3}],
    )


async def test_a_model_call_comes_back_as_it_was(audit: ModelCalls) -> None:
    sent = model_call(1)
    failed = replace(
        model_call(2),
        status="failed",
        usage={},
        summary_version=None,
        evictions=[],
        error="429: \0 slow down",
    )
    await audit.add(sent)
    await audit.add(failed)
    assert await audit.find("t1") == [failed, sent]


async def test_the_newest_of_one_thread_come_first(audit: ModelCalls) -> None:
    for turn in (2, 1, 3):
        await audit.add(model_call(turn))
        await audit.add(model_call(turn * 10, thread_id="t2"))
    assert [call.turn_ref for call in await audit.find("t1")] == [3, 2, 1]
    assert [call.turn_ref for call in await audit.find("t2", limit=2)] == [30, 20]
    assert await audit.find("nobody") == []


@pytest.mark.accept("002-29")
async def test_without_a_bound_nothing_is_forgotten(audit: ModelCalls) -> None:
    for turn in range(5):
        await audit.add(model_call(turn, age=1000 * DAY))
    assert len(await audit.find("t1")) == 5


@pytest.mark.accept("002-29")
async def test_a_row_cap_is_a_threads_own(audit: ModelCalls) -> None:
    await audit.add(model_call(1, thread_id="t2"))
    for turn in range(1, 8):
        await audit.add(model_call(turn), keep=3)
        assert len(await audit.find("t1")) == min(turn, 3)
    assert [call.turn_ref for call in await audit.find("t1")] == [7, 6, 5]
    assert len(await audit.find("t2")) == 1


@pytest.mark.accept("002-29")
async def test_what_is_too_old_goes_and_what_is_younger_stays(audit: ModelCalls) -> None:
    for turn, days in ((1, 40), (2, 31), (3, 30), (4, 29)):
        await audit.add(model_call(turn, age=days * DAY))
    await audit.add(model_call(9, thread_id="t2", age=50 * DAY))
    assert await audit.trim(older_than=NOW - 30 * DAY) == 3
    assert [call.turn_ref for call in await audit.find("t1")] == [4, 3]
    assert await audit.find("t2") == []
    assert await audit.trim(older_than=NOW - 30 * DAY) == 0


async def test_forgetting_goes_in_bounded_steps_the_oldest_first(audit: ModelCalls) -> None:
    for turn in range(1, 6):
        await audit.add(model_call(turn, age=(10 - turn) * DAY))
    assert await audit.trim(older_than=NOW, limit=2) == 2
    assert [call.turn_ref for call in await audit.find("t1")] == [5, 4, 3]


async def conversation(store: Store, rounds: int) -> tuple[Thread, list[str], list[int]]:
    """A thread whose rounds have ended, the messages they began with, and where each ended."""
    change = opened("t3")
    messages, ends = [], []
    for number in range(1, rounds + 1):
        if number > 1:
            change = next_round(change.thread, f"message {number}", stamp=stamp())
        messages += [event.id for event in change.events if isinstance(event.body, UserMessage)]
        await store.commit(change)
        change = finish(change.thread, Status.COMPLETED, stamp=stamp())
        await store.commit(change)
        ends.append(change.thread.last_seq)
    return change.thread, messages, ends


async def sent_of(audit: ModelCalls, thread_id: str) -> list[bool]:
    """Of which calls it is still known what was sent, the oldest first."""
    found = await audit.find(thread_id)
    return [call.rendered_context is not None for call in reversed(found)]


@pytest.mark.parametrize("document_id", ["", "file_1"])
async def test_with_a_message_goes_what_models_were_told_since(
    store: Store, audit: ModelCalls, document_id: str
) -> None:
    thread, messages, ends = await conversation(store, 3)
    before = [replace(model_call(seq - 1, thread_id="t3"), latency_ms=seq) for seq in ends]
    for call in (*before, model_call(1000)):
        await audit.add(call)
    await store.commit(redact(thread, messages[1], document_id=document_id, stamp=stamp()))
    first, *others = before
    emptied = [replace(call, rendered_context=None) for call in others]
    assert await audit.find("t3") == [*reversed(emptied), first], "what it cost is still known"
    assert await sent_of(audit, "t1") == [True]


async def test_a_call_made_in_the_same_round_counts_whatever_its_place(
    store: Store, audit: ModelCalls
) -> None:
    thread, messages, ends = await conversation(store, 2)
    begun = ends[0] + 1
    for turn in (ends[0], begun):
        await audit.add(model_call(turn, thread_id="t3"))
    await store.commit(redact(thread, messages[1], stamp=stamp()))
    assert await sent_of(audit, "t3") == [True, False]


async def test_a_call_that_is_told_late_does_not_bring_back_what_was_taken_back(
    store: Store, audit: ModelCalls
) -> None:
    thread, messages, ends = await conversation(store, 1)
    change = redact(thread, messages[0], stamp=stamp())
    await store.commit(change)
    late = model_call(ends[0], thread_id="t3")
    await audit.add(late)
    await audit.add(model_call(change.thread.last_seq, thread_id="t3"))
    assert await sent_of(audit, "t3") == [False, True]
    assert replace(late, rendered_context=None) in await audit.find("t3")


async def test_calls_told_while_a_message_is_taken_back_keep_nothing_of_it(
    store: Store, audit: ModelCalls
) -> None:
    thread, messages, ends = await conversation(store, 1)
    taken_back = store.commit(redact(thread, messages[0], stamp=stamp()))
    told = [audit.add(model_call(ends[0], thread_id="t3")) for _ in range(20)]
    await asyncio.gather(*told[:10], taken_back, *told[10:])
    assert await sent_of(audit, "t3") == [False] * 20


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_a_message_that_is_taken_back_is_found_by_its_id(where: str, database: Database) -> None:
    explain = "EXPLAIN" if isinstance(database, PostgresDatabase) else "EXPLAIN QUERY PLAN"
    plan = await query(database, f"{explain} {EMPTY_SINCE}", "t1", "msg_1", "null")
    assert "events_by_id" in str([tuple(row) for row in plan])
