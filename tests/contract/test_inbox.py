"""What happens once: deliveries of a channel, and requests that carry an idempotency key."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.errors import AlreadyDone, Conflict, Duplicate, NotFound
from clew.domain.records import Incoming
from clew.ports.guards import Admits, Once
from clew.ports.inbox import Inbox
from clew.ports.threads import Store
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql.inbox import FORGET
from clew.stores.sql.work import Database
from tests.databases import SHARED, open_database, open_store, query
from tests.samples import NOW, opened, recorded, said

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
DELIVERED = Incoming(
    source="telegram:bot", source_id="update-7", fingerprint="f1", payload={"text": "hi\0", "n": [1]}
)
REQUEST = Once(tenant="acme", key="k1", fingerprint="f1", response={"id": "t1", "status": "running"})


def delivered(number: int, *, thread_id: str | None = None) -> Incoming:
    return replace(DELIVERED, source_id=f"update-{number}", thread_id=thread_id)


@pytest.mark.accept("002-40")
async def test_a_delivery_is_admitted_once(inbox: Inbox) -> None:
    assert await inbox.admit(DELIVERED, now=NOW)
    assert not await inbox.admit(DELIVERED, now=NOW + DAY)
    assert await inbox.queued() == [DELIVERED]
    assert await inbox.admit(replace(DELIVERED, source="telegram:other"), now=NOW)


@pytest.mark.fault("C8")
async def test_of_many_deliveries_at_once_one_is_admitted(inbox: Inbox) -> None:
    admitted = await asyncio.gather(*(inbox.admit(DELIVERED, now=NOW) for _ in range(20)))
    assert sorted(admitted) == [False] * 19 + [True]


async def test_the_same_delivery_with_another_content_is_told_apart(inbox: Inbox) -> None:
    await inbox.admit(DELIVERED, now=NOW)
    with pytest.raises(Duplicate):
        await inbox.admit(replace(DELIVERED, fingerprint="f2"), now=NOW)
    assert await inbox.queued() == [DELIVERED]


async def test_what_waits_is_handed_out_oldest_first(inbox: Inbox) -> None:
    for number in (3, 1, 2):
        await inbox.admit(delivered(number, thread_id="t1"), now=NOW + timedelta(seconds=number))
    assert await inbox.queued() == [delivered(number, thread_id="t1") for number in (1, 2, 3)]
    assert await inbox.queued(limit=1) == [delivered(1, thread_id="t1")]


@pytest.mark.accept("002-40")
async def test_a_delivery_leaves_the_queue_with_the_change_it_led_to(store: Store, inbox: Inbox) -> None:
    await inbox.admit(DELIVERED, now=NOW)
    await store.commit(opened(), Admits(DELIVERED))
    assert await inbox.queued() == []
    assert not await inbox.admit(DELIVERED, now=NOW)
    with pytest.raises(AlreadyDone) as again:
        await store.commit(opened("t2"), Admits(DELIVERED))
    assert again.value.answer == {"thread_id": "t1"}
    with pytest.raises(NotFound):
        await store.get("t2")


async def test_a_delivery_that_never_queued_is_admitted_by_its_change(store: Store, inbox: Inbox) -> None:
    await store.commit(opened(), Admits(DELIVERED))
    assert await inbox.queued() == []
    assert not await inbox.admit(DELIVERED, now=NOW)
    with pytest.raises(Duplicate):
        await store.commit(opened("t2"), Admits(replace(DELIVERED, fingerprint="f2")))


async def test_a_change_that_is_refused_leaves_its_delivery_in_the_queue(store: Store, inbox: Inbox) -> None:
    await inbox.admit(DELIVERED, now=NOW)
    await store.commit(opened())
    with pytest.raises(Conflict):
        await store.commit(opened(), Admits(DELIVERED), REQUEST)
    assert await inbox.queued() == [DELIVERED]
    assert await inbox.answered("acme", "k1", "f1") is None


async def test_a_repeated_request_gets_the_answer_of_then(store: Store, inbox: Inbox) -> None:
    first = opened()
    await store.commit(first, REQUEST)
    with pytest.raises(AlreadyDone) as again:
        await store.commit(recorded(first.thread, said()), replace(REQUEST, response={"id": "other"}))
    assert again.value.answer == REQUEST.response
    assert (await store.get("t1")).last_seq == first.thread.last_seq
    assert await inbox.answered("acme", "k1", "f1") == REQUEST.response


async def test_a_key_used_for_something_else_is_refused(store: Store, inbox: Inbox) -> None:
    await store.commit(opened(), REQUEST)
    other = replace(REQUEST, fingerprint="f2")
    with pytest.raises(Duplicate):
        await store.commit(opened("t2"), other)
    with pytest.raises(Duplicate):
        await inbox.answered("acme", "k1", "f2")
    with pytest.raises(NotFound):
        await store.get("t2")


async def test_a_key_is_a_tenants_own(store: Store, inbox: Inbox) -> None:
    await store.commit(opened(), REQUEST)
    assert await inbox.answered("other", "k1", "f2") is None
    await store.commit(opened("t2"), replace(REQUEST, tenant="other", fingerprint="f2"))


async def test_a_key_is_taken_with_its_change_or_not_at_all(store: Store, inbox: Inbox) -> None:
    first = opened()
    await store.commit(first)
    stale = opened(message="late")
    with pytest.raises(Conflict):
        await store.commit(stale, REQUEST)
    assert await inbox.answered("acme", "k1", "f1") is None
    await store.commit(recorded(first.thread, said()), REQUEST)


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_of_many_equal_requests_at_once_one_happens(where: str) -> None:
    async with open_database(where) as one, open_database(where) as two:
        stores = [open_store(one), open_store(two)]
        outcomes = await asyncio.gather(
            *(stores[n % 2].commit(opened(f"t{n}"), REQUEST) for n in range(20)), return_exceptions=True
        )
        assert len(await stores[0].find()) == 1
    repeated = [outcome for outcome in outcomes if outcome is not None]
    assert len(repeated) == 19
    assert all(isinstance(one, AlreadyDone) and one.answer == REQUEST.response for one in repeated)


async def test_only_what_is_done_and_old_is_forgotten(store: Store, inbox: Inbox) -> None:
    await inbox.admit(delivered(1), now=NOW - 9 * DAY)
    await store.commit(opened("t1", seconds=-9 * 86400), Admits(delivered(2)), REQUEST)
    await store.commit(opened("t2"), Admits(delivered(3)), replace(REQUEST, key="k2"))
    assert await inbox.forget(older_than=NOW - 8 * DAY) == 2
    assert await inbox.forget(older_than=NOW - 8 * DAY) == 0
    assert await inbox.queued() == [delivered(1)]
    assert await inbox.answered("acme", "k1", "f1") is None
    assert await inbox.answered("acme", "k2", "f1") == REQUEST.response
    assert not await inbox.admit(delivered(3), now=NOW)


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_forgetting_reads_no_more_than_it_forgets(where: str, database: Database) -> None:
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    await query(
        database,
        "INSERT INTO inbox (source, source_id, fingerprint, payload, status, admitted_at, done_at)"
        f" {numbers} SELECT 'telegram:bot', CAST(i AS TEXT), 'f', 'null', 'done', i, i FROM n",
    )
    await query(
        database,
        "INSERT INTO idempotency (tenant, key, fingerprint, thread_id, response, created_at)"
        f" {numbers} SELECT 'acme', CAST(i AS TEXT), 'f', 't1', 'null', i FROM n",
    )
    for table in ("inbox", "idempotency"):
        await query(database, f"ANALYZE {table}")
    explain = "EXPLAIN" if isinstance(database, PostgresDatabase) else "EXPLAIN QUERY PLAN"
    plan = [tuple(row) for sql in FORGET for row in await query(database, f"{explain} {sql}", 10, 1000)]
    assert "idempotency_by_age" in str(plan)
    assert "inbox_by_age" in str(plan)


async def test_what_waits_for_a_thread_is_told_in_the_order_it_came(store: Store, inbox: Inbox) -> None:
    for thread_id in ("t1", "t2"):
        await store.commit(opened(thread_id))
    for number in (2, 1, 3):
        waits = replace(delivered(number, thread_id="t1"), conversation="t1")
        await inbox.admit(waits, now=NOW, is_opened=True)
    await inbox.admit(replace(delivered(4, thread_id="t2"), conversation="t2"), now=NOW, is_opened=True)
    waiting = await inbox.waiting(DELIVERED.source, "t1")
    assert [one.source_id for one in waiting] == ["update-2", "update-1", "update-3"]
    assert {(one.conversation, one.thread_id, one.withdrawn_at) for one in waiting} == {("t1", "t1", None)}
    assert waiting[0].payload == DELIVERED.payload
    assert await inbox.waiting("telegram:other", "t1") == []
    await store.commit(recorded(await store.get("t1"), said()), Admits(waiting[0]))
    assert [one.source_id for one in await inbox.waiting(DELIVERED.source, "t1")] == ["update-1", "update-3"]


async def test_what_is_withdrawn_does_not_come_to_its_turn_and_is_remembered(
    store: Store, inbox: Inbox
) -> None:
    await store.commit(opened("t1"))
    waits = replace(delivered(1, thread_id="t1"), conversation="t1")
    await inbox.admit(waits, now=NOW, is_opened=True)
    assert await inbox.withdraw(waits, now=NOW + DAY)
    assert not await inbox.withdraw(waits, now=NOW + DAY)
    (told,) = await inbox.waiting(DELIVERED.source, "t1")
    assert (told.payload, told.withdrawn_at) == (DELIVERED.payload, NOW + DAY)
    assert await inbox.queued() == []
    with pytest.raises(AlreadyDone):
        await store.commit(recorded(await store.get("t1"), said()), Admits(waits))
    assert not await inbox.admit(waits, now=NOW, is_opened=True)
    await inbox.forget(older_than=NOW + 2 * DAY)
    assert await inbox.waiting(DELIVERED.source, "t1") == []


async def test_what_was_begun_cannot_be_withdrawn(store: Store, inbox: Inbox) -> None:
    await store.commit(opened("t1"))
    waits = replace(delivered(1, thread_id="t1"), conversation="t1")
    await inbox.admit(waits, now=NOW, is_opened=True)
    await store.commit(recorded(await store.get("t1"), said()), Admits(waits))
    assert not await inbox.withdraw(waits, now=NOW)
    assert await inbox.waiting(DELIVERED.source, "t1") == []


async def test_what_is_settled_is_told_of_no_more(store: Store, inbox: Inbox) -> None:
    await store.commit(opened("t1"))
    for number in (1, 2):
        waits = replace(delivered(number, thread_id="t1"), conversation="t1")
        await inbox.admit(waits, now=NOW, is_opened=True)
        if number == 2:
            await inbox.withdraw(waits, now=NOW)
        await inbox.discard(waits, now=NOW)
    assert await inbox.waiting(DELIVERED.source, "t1") == []
    assert await inbox.queued() == []


async def test_what_is_for_a_thread_that_is_there_is_refused_for_another(store: Store, inbox: Inbox) -> None:
    await store.commit(opened("t1"))
    await store.tombstone("t1", None, now=NOW)
    for gone in ("t1", "never"):
        waits = replace(delivered(1, thread_id=gone), conversation=gone)
        with pytest.raises(NotFound):
            await inbox.admit(waits, now=NOW, is_opened=True)
    assert await inbox.queued() == []
