"""Chats of channels: woken once a message, held by one, in order, and gone with their thread."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from clew.domain.errors import AlreadyDone, Duplicate, LostLease
from clew.domain.events import Body, Resolution, RoundFinished, RoundStarted
from clew.domain.records import Conversation, Incoming
from clew.domain.thread import Status
from clew.ports.channels import Conversations
from clew.ports.guards import Admits
from clew.ports.inbox import Inbox
from clew.ports.threads import Store
from clew.stores.postgres import PostgresDatabase, drive
from clew.stores.sql.conversations import DUE, MOVE_WAITING, ConversationRows
from clew.stores.sql.inbox import InboxRows
from clew.stores.sql.trash import TrashRows
from clew.stores.sql.work import Database, Texts
from tests.databases import SHARED, open_database, open_store, query
from tests.samples import NOW, opened, recorded, said, waits

pytestmark = pytest.mark.anyio

BOT = "telegram:bot"
LEASE = timedelta(minutes=1)


@pytest.fixture
def conversations(database: Database) -> Conversations:
    return ConversationRows(database)


def message(number: int, *, key: str = "telegram:42", thread_id: str | None = None) -> Incoming:
    return Incoming(
        source=BOT,
        source_id=f"update-{number}",
        fingerprint=f"f{number}",
        payload={"text": f"message {number}"},
        conversation=key,
        thread_id=thread_id or f"thread-{number}",
    )


async def claimed(conversations: Conversations, holder: str = "me") -> list[Conversation]:
    return list(await conversations.claim(holder, (BOT,), lease=LEASE, limit=10))


async def admitted(conversations: Conversations, held: Conversation) -> Admits:
    first = await conversations.first(held)
    assert first is not None
    return Admits(first)


async def test_a_conversation_stays_in_the_thread_it_began_with(
    inbox: Inbox, conversations: Conversations
) -> None:
    for number in (1, 2):
        assert await inbox.admit(message(number), now=NOW)
    assert await inbox.admit(message(3, key="telegram:43"), now=NOW)
    found = {one.key: one.thread_id for one in await claimed(conversations)}
    assert found == {"telegram:42": "thread-1", "telegram:43": "thread-3"}


async def test_a_duplicate_wakes_nobody(inbox: Inbox, conversations: Conversations) -> None:
    await inbox.admit(message(1), now=NOW)
    (held,) = await claimed(conversations)
    assert not await inbox.admit(message(1, thread_id="other"), now=NOW)
    with pytest.raises(Duplicate):
        await inbox.admit(replace(message(1), fingerprint="other"), now=NOW)
    await conversations.release(held, seen_seq=0, is_idle=True)
    assert not await conversations.are_due((BOT,))


async def test_messages_wait_in_the_order_they_came_in_whatever_the_clock_says(
    store: Store, inbox: Inbox, conversations: Conversations
) -> None:
    for number in (3, 1, 2):
        await inbox.admit(message(number), now=NOW - timedelta(hours=number))
    (held,) = await claimed(conversations)
    first = await conversations.first(held)
    assert first is not None
    assert (first.source_id, first.number, first.thread_id) == ("update-3", 1, "thread-3")
    after = await conversations.first(held, after=1)
    assert after is not None
    assert after.source_id == "update-1"
    await store.commit(opened("thread-3"), Admits(first))
    with pytest.raises(AlreadyDone):
        await store.commit(opened("thread-9"), Admits(first))
    await inbox.discard(after, now=NOW)
    last = await conversations.first(held)
    assert last is not None
    assert last.source_id == "update-2"


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_of_many_who_look_one_holds_a_conversation(where: str) -> None:
    async with open_database(where) as one, open_database(where) as two:
        inboxes = InboxRows(one), InboxRows(two)
        admitted = await asyncio.gather(
            *(inboxes[n % 2].admit(message(1, thread_id=f"t{n}"), now=NOW) for n in range(20))
        )
        assert sum(admitted) == 1
        rows = ConversationRows(one), ConversationRows(two)
        held = await asyncio.gather(*(claimed(rows[n % 2], f"holder-{n}") for n in range(10)))
        assert len([each for found in held for each in found]) == 1


async def test_a_lease_that_ran_out_is_anothers(
    inbox: Inbox, conversations: Conversations, database: Database
) -> None:
    await inbox.admit(message(1), now=NOW)
    (mine,) = await claimed(conversations)
    assert await claimed(conversations, "other") == []
    await conversations.save_cursor(mine, {"seq": 4}, lease=timedelta(microseconds=-1))
    (others,) = await claimed(conversations, "other")
    assert others.cursor == {"seq": 4}
    for call in (
        conversations.save_cursor(mine, {"seq": 5}, lease=LEASE),
        conversations.heartbeat(mine, lease=LEASE),
        conversations.release(mine, seen_seq=1, is_idle=True),
        conversations.snooze(mine, wait=LEASE),
        conversations.move(mine, "elsewhere"),
    ):
        with pytest.raises(LostLease):
            await call
    await conversations.save_cursor(others, {"seq": 6}, lease=LEASE)


async def test_what_is_seen_to_here_is_not_claimed_here_again_however_old_its_lease(
    inbox: Inbox, conversations: Conversations
) -> None:
    for number, key in enumerate(("telegram:42", "telegram:43"), 1):
        await inbox.admit(message(number, key=key), now=NOW)
    mine = await claimed(conversations)
    for held in mine:
        await conversations.save_cursor(held, None, lease=timedelta(microseconds=-1))
    (left,) = await conversations.claim("me again", (BOT,), lease=LEASE, limit=10, alive=mine[:1])
    assert left.key == mine[1].key
    await conversations.save_cursor(mine[0], {"seq": 1}, lease=timedelta(microseconds=-1))
    (others,) = await claimed(conversations, "other")
    assert (others.key, others.cursor) == (mine[0].key, {"seq": 1})


async def test_it_is_due_when_its_thread_has_come_to_rest(
    store: Store, inbox: Inbox, conversations: Conversations
) -> None:
    await inbox.admit(message(1), now=NOW)
    (held,) = await claimed(conversations)
    first = await admitted(conversations, held)
    change = opened("thread-1")
    await store.commit(change, first)
    await conversations.release(held, seen_seq=change.thread.last_seq, is_idle=False)
    assert not await conversations.are_due((BOT,))
    change = recorded(change.thread, said())
    await store.commit(change)
    assert not await conversations.are_due((BOT,))  # it runs on
    change = recorded(change.thread, RoundFinished(status=Status.COMPLETED))
    await store.commit(change)
    assert await conversations.are_due((BOT,))
    assert not await conversations.are_due(("telegram:other",))
    (held,) = await claimed(conversations)
    await conversations.release(held, seen_seq=change.thread.last_seq, is_idle=True)
    assert not await conversations.are_due((BOT,))


WAITING: dict[str, tuple[Body, Body]] = {
    "answered": (waits(), Resolution(call_id="c1", outcome="answered", answer="yes")),
    "expired": (waits(), Resolution(call_id="c1", outcome="expired", answer=None)),
    "stopped": (waits(), RoundFinished(status=Status.STOPPED)),
    "taken up": (RoundFinished(status=Status.FAILED), RoundStarted(round=1)),
}


@pytest.mark.parametrize("is_held", [False, True], ids=["at rest", "while it is let go of"])
@pytest.mark.parametrize("how", WAITING)
async def test_while_its_thread_waits_nobody_looks_at_it_and_it_is_woken_when_that_goes_on(
    store: Store, inbox: Inbox, conversations: Conversations, database: Database, how: str, is_held: bool
) -> None:
    """However many wait, a look costs the same; and none is left asleep, not even one that is just let go of."""
    stops, goes_on = WAITING[how]
    await inbox.admit(message(1), now=NOW)
    (held,) = await claimed(conversations)
    change = opened("thread-1")
    await store.commit(change, await admitted(conversations, held))
    change = recorded(change.thread, stops)
    await store.commit(change)
    await conversations.release(held, seen_seq=0, is_idle=False)
    (held,) = await claimed(conversations)
    seen_seq = change.thread.last_seq
    if not is_held:
        await conversations.release(held, seen_seq=seen_seq, is_idle=True)
        assert await query(database, "SELECT 1 FROM conversations WHERE is_active = 1") == []
    change = recorded(change.thread, goes_on)
    await store.commit(change)
    if is_held:
        await conversations.release(held, seen_seq=seen_seq, is_idle=True)
    if change.thread.status is Status.RUNNING:
        assert not await conversations.are_due((BOT,))
        await store.commit(recorded(change.thread, RoundFinished(status=Status.COMPLETED)))
    assert len(await claimed(conversations)) == 1


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_a_look_reads_the_active_ones_alone(where: str, database: Database) -> None:
    await query(
        database,
        "INSERT INTO conversations (source, key, thread_id, cursor, wakes, seen_wakes, seen_seq, is_active, attempts,"
        " due_at) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        f" SELECT '{BOT}', 'telegram:' || i, 't' || i, 'null', 1, 1, 1, 0, 0, i FROM n",
    )
    await query(database, "ANALYZE conversations")
    explain = "EXPLAIN" if isinstance(database, PostgresDatabase) else "EXPLAIN QUERY PLAN"
    plan = await query(database, f"{explain} SELECT 1 {DUE} LIMIT 1", Texts([BOT]))
    told = "\n".join(str(tuple(row)) for row in plan)
    assert "conversations_active" in told
    assert "conversations_pkey" not in told
    assert "SEARCH c USING PRIMARY KEY" not in told


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_to_move_what_waits_reads_no_more_than_that(where: str, database: Database) -> None:
    await query(
        database,
        "INSERT INTO inbox (source, source_id, fingerprint, payload, status, admitted_at, conversation, number)"
        " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        f" SELECT '{BOT}', CAST(i AS TEXT), 'f', 'null', 'queued', i, 'telegram:' || i, i FROM n",
    )
    explain = "EXPLAIN" if isinstance(database, PostgresDatabase) else "EXPLAIN QUERY PLAN"
    plan = await query(database, f"{explain} {MOVE_WAITING}", BOT, "telegram:7", "elsewhere")
    assert "inbox_by_conversation" in str([tuple(row) for row in plan])


async def test_who_was_seen_to_longest_ago_comes_first(inbox: Inbox, conversations: Conversations) -> None:
    """Or a few chats that are never silent would keep all others from being answered."""
    for number in range(3):
        await inbox.admit(message(number, key=f"telegram:{number}"), now=NOW)
    seen = []
    for number in range(3, 9):
        (held,) = await conversations.claim("me", (BOT,), lease=LEASE, limit=1)
        await inbox.admit(message(number, key=held.key), now=NOW)
        await conversations.release(held, seen_seq=0, is_idle=True)
        seen.append(held.key)
    assert sorted(seen[:3]) == [f"telegram:{number}" for number in range(3)]
    assert seen[3:] == seen[:3]


async def test_what_comes_while_it_is_held_is_not_slept_through(
    inbox: Inbox, conversations: Conversations
) -> None:
    await inbox.admit(message(1), now=NOW)
    (held,) = await claimed(conversations)
    await inbox.admit(message(2), now=NOW)
    assert await conversations.heartbeat(held, lease=LEASE) == 2
    await conversations.release(held, seen_seq=0, is_idle=True)
    (again,) = await claimed(conversations)
    assert again.wakes == 2


async def test_what_is_put_off_is_due_later_and_counts_its_attempts(
    inbox: Inbox, conversations: Conversations
) -> None:
    await inbox.admit(message(1), now=NOW)
    (held,) = await claimed(conversations)
    await conversations.snooze(held, wait=timedelta())
    (held,) = await claimed(conversations)
    assert held.attempts == 1
    await conversations.snooze(held, wait=timedelta(hours=1))
    await inbox.admit(message(2), now=NOW)
    assert not await conversations.are_due((BOT,))


@pytest.mark.raw_sql
async def test_with_its_thread_goes_the_conversation_and_what_waits_in_it(
    store: Store, inbox: Inbox, conversations: Conversations, database: Database
) -> None:
    for number in (1, 2):
        await inbox.admit(message(number), now=NOW)
    (held,) = await claimed(conversations)
    await store.commit(opened("thread-1"), await admitted(conversations, held))
    await store.tombstone("thread-1", now=NOW)
    while await store.purge():
        pass
    assert await query(database, "SELECT 1 FROM conversations") == []
    kept = await query(database, "SELECT source_id, payload, thread_id, conversation FROM inbox ORDER BY 1")
    assert [tuple(row) for row in kept] == [(f"update-{n}", "null", None, None) for n in (1, 2)]
    # What was deleted is not answered when it is delivered once more.
    assert not await inbox.admit(message(1), now=NOW)
    assert not await conversations.are_due((BOT,))


@pytest.mark.parametrize("softly", [False, True])
async def test_a_chat_whose_thread_was_deleted_goes_on_in_another(
    store: Store, inbox: Inbox, conversations: Conversations, database: Database, softly: bool
) -> None:
    await inbox.admit(message(1), now=NOW)
    (held,) = await claimed(conversations)
    await conversations.save_cursor(held, {"seq": 7}, lease=LEASE)
    await store.commit(opened("thread-1"), await admitted(conversations, held))
    if softly:
        await TrashRows(database).put("thread-1", now=NOW)
    else:
        await store.tombstone("thread-1", now=NOW)
    await inbox.admit(message(2), now=NOW)
    with pytest.raises(LostLease):
        await conversations.save_cursor(held, {"seq": 8}, lease=LEASE)
    await query(database, "UPDATE conversations SET lease_until = 0")
    (held,) = await claimed(conversations)
    assert (held.thread_id, held.cursor) == ("thread-2", None)
    while await store.purge():
        pass
    waiting = await conversations.first(held)
    assert waiting is not None
    assert waiting.source_id == "update-2"


async def test_moved_it_takes_along_what_waits(inbox: Inbox, conversations: Conversations) -> None:
    await inbox.admit(message(1), now=NOW)
    (held,) = await claimed(conversations)
    await conversations.move(held, "elsewhere")
    (held,) = await claimed(conversations)
    waiting = await conversations.first(held)
    assert waiting is not None
    assert (held.thread_id, waiting.thread_id) == ("elsewhere", "elsewhere")


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_what_is_being_admitted_while_its_thread_is_deleted_goes_with_it(where: str) -> None:
    """Left behind it would wait in a conversation that nobody wakes. SQLite has one writer, who does one or the other."""
    async with open_database(where) as db:
        store, inbox = open_store(db), InboxRows(db)
        await inbox.admit(message(1), now=NOW)
        await store.commit(opened("thread-1"), Admits(message(1)))

        async def delete() -> None:
            await store.tombstone("thread-1", now=NOW)
            while await store.purge():
                pass

        connection = await asyncpg.connect(where)
        async with connection.transaction():
            await drive(connection, InboxRows.admit.__wrapped__(inbox, message(2), now=NOW))  # type: ignore[attr-defined]
            deleting = asyncio.create_task(delete())
            async with asyncio.timeout(30):
                while not (deleting.done() or await _somebody_waits(db)):
                    await asyncio.sleep(0.01)
        await connection.close()
        await deleting
        assert await query(db, "SELECT 1 FROM conversations") == []
        assert await query(db, "SELECT 1 FROM inbox WHERE status = 'queued'") == []


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_a_message_that_comes_while_its_thread_is_purged_does_not_wait_for_what_waits_for_it(
    where: str,
) -> None:
    async with open_database(where) as db:
        store, inbox = open_store(db), InboxRows(db)
        await inbox.admit(message(1), now=NOW)
        await store.commit(opened("thread-1"))
        await store.tombstone("thread-1", now=NOW)
        connection = await asyncpg.connect(where)
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM conversations FOR UPDATE")
            purging = asyncio.create_task(store.purge())
            async with asyncio.timeout(30):
                while not await _somebody_waits(db):
                    await asyncio.sleep(0.01)
            await connection.execute("SET LOCAL lock_timeout = '100ms'")
            await drive(connection, InboxRows.admit.__wrapped__(inbox, message(2), now=NOW))  # type: ignore[attr-defined]
        await connection.close()
        await purging
        (held,) = await claimed(ConversationRows(db))
        assert held.thread_id == "thread-2"


async def _somebody_waits(db: Database) -> bool:
    return bool(await query(db, "SELECT 1 FROM pg_locks WHERE NOT granted"))


async def test_how_far_a_bot_was_polled_is_kept_and_is_no_chat(conversations: Conversations) -> None:
    assert await conversations.position("telegram:bot") is None
    for offset in (5, 9):
        await conversations.set_position("telegram:bot", {"offset": offset})
        assert await conversations.position("telegram:bot") == {"offset": offset}
    assert await conversations.position("telegram:other") is None
    assert await conversations.are_quiet(["telegram:bot"])
    assert not await conversations.are_due(["telegram:bot"])
