"""What every store of threads and events must do."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import asyncpg
import pytest

from clew.domain.errors import Conflict, Invalid, LostLease, NotFound
from clew.domain.events import AssistantMessage, Event, Log, RoundFinished, StageChanged, UserMessage
from clew.domain.lifecycle import Change, begin, finish, next_round, redact, stop
from clew.domain.thread import Owner, Status
from clew.ports.guards import Unseen
from clew.ports.model_calls import Summaries
from clew.ports.threads import Store
from clew.stores.sql.work import Database
from tests.databases import open_database, open_store, query
from tests.samples import ANN, EVERY_BODY, NOW, asks, opened, recorded, said, stamp, suspend, waits

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


async def saved(store: Store, change: Change) -> Change:
    await store.commit(change)
    return change


async def lines(store: Store, count: int, thread_id: str = "t1") -> list[Event]:
    """A thread with `count` events."""
    first = await saved(store, opened(thread_id, None))
    if count == 1:
        return list(first.events)
    rest = await saved(store, recorded(first.thread, *(said(str(n)) for n in range(2, count + 1))))
    return [*first.events, *rest.events]


def seqs(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events]


@pytest.mark.accept("002-1", "002-32")
async def test_events_are_numbered_in_each_thread_by_itself_and_come_back_as_they_were(store: Store) -> None:
    a = await saved(store, opened("a"))
    b = await saved(store, opened("b"))
    a2 = await saved(store, recorded(a.thread, UserMessage(content=[{"type": "text", "text": "é\u2028"}])))
    b2 = await saved(store, recorded(b.thread, asks(), Log(message="x", progress=0)))
    a3 = await saved(store, finish(a2.thread, Status.COMPLETED, stamp=stamp(1)))
    assert await store.read("a") == [*a.events, *a2.events, *a3.events]
    assert await store.read("b") == [*b.events, *b2.events]
    assert seqs(await store.read("a")) == [1, 2, 3, 4]
    assert seqs(await store.read("b")) == [1, 2, 3, 4]


@pytest.mark.accept("002-2")
async def test_every_event_type_is_kept(store: Store) -> None:
    thread = (await saved(store, opened("t1", held=True))).thread
    thread = (await saved(store, begin(thread, stamp=stamp()))).thread
    for number, body in enumerate(EVERY_BODY[2:]):
        change = recorded(replace(thread, status=Status.RUNNING, pending={}), body)
        if isinstance(body, RoundFinished | StageChanged):
            continue  # kept by other tests; here they would end the round
        try:
            await store.commit(change)
        except Conflict:
            pytest.fail(f"{body} was refused")
        thread = change.thread
        assert (await store.read("t1", limit=1))[0].body == change.events[-1].body, number
    found = {event.type for event in await store.read("t1")}
    assert found | {"round_finished", "stage_changed"} == {body.type for body in EVERY_BODY}


async def test_the_thread_row_is_what_was_committed(store: Store) -> None:
    change = await saved(store, opened(ttl=timedelta(days=1)))
    assert await store.get("t1") == change.thread
    change = await saved(store, recorded(change.thread, asks(), waits(), StageChanged(stage="s"), seconds=1))
    assert await store.get("t1") == change.thread
    assert (await store.get("t1")).fsm_state == change.thread.fsm_state


@pytest.mark.accept("002-10")
@pytest.mark.raw_sql
async def test_the_state_that_is_kept_is_idle_or_awaiting_and_what_for(
    store: Store, database: Database
) -> None:
    async def kept() -> object:
        return json.loads((await query(database, "SELECT fsm_state FROM threads"))[0][0])

    change = await saved(store, opened())
    assert await kept() == {"state": "idle", "pending": {}, "last_seq": 2}
    change = await saved(store, recorded(change.thread, asks("running now")))
    assert await kept() == {"state": "idle", "pending": {}, "last_seq": 3}
    change = await saved(store, suspend(change.thread, [waits("c1")], stamp=stamp()))
    assert await kept() == {
        "state": "awaiting_input",
        "pending": {"c1": {"executor": "human", "kind": "approval", "prompt": {"text": "may I?"}}},
        "last_seq": 4,
    }
    await saved(store, stop(change.thread, [], stamp=stamp()))
    assert await kept() == {"state": "idle", "pending": {}, "last_seq": 5}


async def test_an_unknown_thread_is_not_found_and_its_log_is_empty(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.get("nobody")
    assert await store.read("nobody") == []
    with pytest.raises(NotFound):
        await store.commit(recorded(opened("nobody").thread, said()))


@pytest.mark.accept("002-5")
async def test_a_stale_change_is_refused_whole(store: Store) -> None:
    first = await saved(store, opened())
    winner = await saved(store, recorded(first.thread, said("winner")))
    with pytest.raises(Conflict) as refused:
        await store.commit(recorded(first.thread, said("loser"), asks("loser")))
    assert not isinstance(refused.value, LostLease)
    assert await store.get("t1") == winner.thread
    assert await store.read("t1") == [*first.events, *winner.events]


async def test_a_thread_is_opened_once(store: Store) -> None:
    first = await saved(store, opened(message="first"))
    with pytest.raises(Conflict):
        await store.commit(opened(message="second"))
    assert await store.get("t1") == first.thread
    assert await store.read("t1") == list(first.events)


async def test_a_thread_of_the_same_id_elsewhere_is_never_overwritten(store: Store) -> None:
    first = await saved(store, opened())
    other = opened(owner=Owner(tenant="evil", user_id="eve"))
    with pytest.raises(Conflict):
        await store.commit(recorded(other.thread, said("mine now")))
    assert await store.get("t1") == first.thread


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_batch_that_fails_half_way_leaves_nothing(store: Store, place: int) -> None:
    """Record ids are unique beyond their thread, so one taken before makes the insert of that event fail."""
    taken = (await saved(store, opened("other"))).events[1].id
    first = await saved(store, opened())
    change = recorded(first.thread, said("a"), said("b"), said("c"))
    events = list(change.events)
    events[place] = replace(events[place], id=taken)
    with pytest.raises(Conflict):
        await store.commit(Change(change.thread, tuple(events)))
    assert await store.get("t1") == first.thread
    assert await store.read("t1") == list(first.events)
    await store.commit(change)


async def test_a_first_commit_that_fails_half_way_leaves_no_thread(store: Store) -> None:
    taken = (await saved(store, opened("other"))).events[1].id
    change = opened("t1")
    with pytest.raises(Conflict):
        await store.commit(Change(change.thread, (change.events[0], replace(change.events[1], id=taken))))
    with pytest.raises(NotFound):
        await store.get("t1")
    assert await store.read("t1") == []
    await store.commit(change)


async def test_one_callers_failure_in_a_shared_transaction_stays_its_own(store: Store) -> None:
    threads = [(await saved(store, opened(f"t{n}"))).thread for n in range(24)]
    taken = (await store.read("t0"))[1].id
    changes = [recorded(thread, said("one"), asks(), said("two")) for thread in threads]
    for n in range(1, 24, 3):  # fails after its first rows were written
        events = changes[n].events
        changes[n] = Change(changes[n].thread, (*events[:2], replace(events[2], id=taken)))
    for n in range(2, 24, 3):  # stale: fails before it wrote anything
        await store.commit(recorded(threads[n], said("sooner")))
    outcomes = await asyncio.gather(*(store.commit(change) for change in changes), return_exceptions=True)
    failed = {n for n, outcome in enumerate(outcomes) if outcome is not None}
    assert failed == {n for n in range(24) if n % 3}
    assert all(isinstance(outcome, Conflict) for outcome in outcomes if outcome is not None)
    for n, change in enumerate(changes):
        expected = change.thread if n % 3 == 0 else None
        thread = await store.get(f"t{n}")
        log = await store.read(f"t{n}")
        assert seqs(log) == list(range(1, thread.last_seq + 1))
        assert thread == expected or n % 3
        assert thread.last_seq == {0: 5, 1: 2, 2: 3}[n % 3]


async def test_what_a_caller_cannot_store_is_refused_and_spoils_nobody_elses_commit(store: Store) -> None:
    threads = [(await saved(store, opened(f"t{n}"))).thread for n in range(8)]
    changes = [recorded(thread, said("fine" if n % 2 else "\ud800")) for n, thread in enumerate(threads)]
    outcomes = await asyncio.gather(*(store.commit(change) for change in changes), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Invalid, type(None)] * 4
    assert [(await store.get(f"t{n}")).last_seq for n in range(8)] == [2, 3] * 4


@pytest.mark.accept("002-4")
async def test_reading_after_before_and_the_newest(store: Store) -> None:
    log = await lines(store, 10)
    assert await store.read("t1") == log

    async def read(**options: int | bool | None) -> list[int]:
        return seqs(await store.read("t1", **options))  # type: ignore[arg-type]

    assert await read(after=7) == [8, 9, 10]
    assert await read(before=4) == [1, 2, 3]
    assert await read(after=3, before=6) == [4, 5]
    assert await read(after=10) == []
    assert await read(before=1) == []
    assert await read(after=5, before=6) == []
    assert await read(limit=3) == [8, 9, 10]
    assert await read(before=9, limit=3) == [6, 7, 8]
    assert await read(after=0, limit=3) == [1, 2, 3]
    assert await read(after=2, limit=3) == [3, 4, 5]
    assert await read(after=2, before=9, limit=2) == [3, 4]
    assert await read(after=2, before=9, limit=2, newest=True) == [7, 8]
    assert await read(limit=0) == []
    assert await read(limit=99) == list(range(1, 11))
    assert await read(newest=True) == list(range(1, 11))


@pytest.mark.accept("002-4")
async def test_paging_backwards_meets_every_event_once(store: Store) -> None:
    await lines(store, 11)
    pages: list[list[int]] = []
    before: int | None = None
    while page := seqs(await store.read("t1", before=before, limit=4)):
        pages.append(page)
        before = page[0]
    assert pages == [[8, 9, 10, 11], [4, 5, 6, 7], [1, 2, 3]]


async def test_reading_only_some_types(store: Store) -> None:
    first = await saved(store, opened())
    await saved(
        store, recorded(first.thread, asks(), AssistantMessage(content="a"), Log(message="l"), said())
    )
    messages = {"user_msg", "assistant_msg"}
    assert seqs(await store.read("t1", types=messages)) == [2, 4, 6]
    assert seqs(await store.read("t1", types=messages, after=2, limit=1)) == [4]
    assert seqs(await store.read("t1", types=messages, limit=1)) == [6]
    assert seqs(await store.read("t1", types=messages, after=0, limit=1)) == [2]
    assert await store.read("t1", types={"redacted"}) == []


@pytest.mark.accept("002-3")
async def test_no_later_command_changes_an_event_by_a_byte(
    store: Store, summaries: Summaries, database: Database
) -> None:
    first = await saved(store, opened())
    before = await query(database, "SELECT * FROM events WHERE thread_id = $1 ORDER BY seq", "t1")
    ended = await saved(store, finish(first.thread, Status.COMPLETED, stamp=stamp()))
    hidden = await saved(store, redact(ended.thread, first.events[1].id, stamp=stamp()))
    await saved(store, next_round(hidden.thread, "again", stamp=stamp()))
    await summaries.drop("t1")
    after = await query(database, "SELECT * FROM events WHERE thread_id = $1 AND seq <= 2 ORDER BY seq", "t1")
    assert [tuple(row) for row in after] == [tuple(row) for row in before]


async def test_a_record_is_found_by_its_id_in_its_own_thread_only(store: Store) -> None:
    first = await saved(store, opened("a"))
    line = await saved(store, recorded(first.thread, asks(), Log(message="x")))
    await saved(store, opened("b"))
    assert await store.seq_of("a", first.events[1].id) == 2
    assert await store.seq_of("a", line.events[1].id) == 4
    for thread_id, record_id in (("b", first.events[1].id), ("a", "msg_none"), ("a", line.events[0].id)):
        with pytest.raises(NotFound):
            await store.seq_of(thread_id, record_id)


async def test_another_owners_thread_does_not_exist(store: Store) -> None:
    await saved(store, opened("t1", owner=ANN))
    assert (await store.get("t1", ANN)).id == "t1"
    assert (await store.get("t1", Owner(tenant="acme"))).id == "t1"
    for owner in (
        Owner(tenant="acme", user_id="bob"),
        Owner(tenant="evil", user_id="ann"),
        Owner(tenant="evil"),
        Owner(tenant="acm%"),
    ):
        with pytest.raises(NotFound):
            await store.get("t1", owner)
        with pytest.raises(NotFound):
            await store.tombstone("t1", owner, now=NOW)
        assert await store.find(owner) == []
    assert (await store.get("t1")).id == "t1"


async def test_threads_are_listed_newest_first_page_by_page(store: Store) -> None:
    for n in range(7):  # every second two share a moment, so that the id has to decide
        await saved(
            store, opened(f"t{n}", seconds=n // 2, owner=replace(ANN, user_id=["even", "odd"][n % 2]))
        )
    found = [thread.id for thread in await store.find()]
    assert found == ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]
    paged: list[str] = []
    before = None
    while page := await store.find(before=before, limit=2):
        paged += [thread.id for thread in page]
        before = (page[-1].created_at, page[-1].id)
    assert paged == found
    odd = await store.find(Owner(tenant="acme", user_id="odd"), limit=2)
    assert [thread.id for thread in odd] == ["t5", "t3"]


async def test_threads_are_found_by_status_and_graph(store: Store) -> None:
    await saved(store, opened("running"))
    await saved(store, opened("other", graph="coding"))
    await saved(store, suspend((await saved(store, opened("blocked"))).thread, [waits()], stamp=stamp()))
    assert [thread.id for thread in await store.find(status={Status.BLOCKED})] == ["blocked"]
    assert {thread.id for thread in await store.find(status=[Status.BLOCKED, Status.RUNNING])} == {
        "running",
        "other",
        "blocked",
    }
    assert [thread.id for thread in await store.find(graph="coding", status={Status.RUNNING})] == ["other"]
    assert await store.find(status={Status.FAILED}) == []


async def test_looking_at_a_thread_lets_it_expire_later(store: Store) -> None:
    await saved(store, opened(ttl=timedelta(days=1)))
    thread = await store.get("t1")
    assert (thread.last_accessed_at, thread.expires_at) == (NOW, NOW + timedelta(days=1))

    async def look(now: datetime) -> set[str]:
        return {*await store.touch(["t1", "t2", "nobody"], now=now, grain=SECOND)}

    await saved(store, opened("t2", ttl=timedelta(days=1), seconds=100))
    assert await look(NOW + timedelta(seconds=0.9)) == set()
    assert (await store.get("t1")).last_accessed_at == NOW, "written at most once a second"
    assert await look(NOW + timedelta(seconds=1)) == {"t1"}
    assert (await store.get("t1")).last_accessed_at == NOW + timedelta(seconds=1)
    assert await look(NOW + 2 * MINUTE) == {"t1", "t2"}
    for thread_id in ("t1", "t2"):
        thread = await store.get(thread_id)
        assert (thread.last_accessed_at, thread.expires_at) == (
            NOW + 2 * MINUTE,
            NOW + 2 * MINUTE + timedelta(days=1),
        )
    assert await look(NOW) == set()
    assert (await store.get("t1")).last_accessed_at == NOW + 2 * MINUTE, "time is not taken back"


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_a_look_at_a_thread_that_is_held_keeps_no_other_waiting(store: Store, where: str) -> None:
    for thread_id in ("t1", "t2"):
        await saved(store, opened(thread_id))
    holder = await asyncpg.connect(where)
    try:
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM threads WHERE id = 't1' FOR UPDATE")
            assert await store.touch(["t1", "t2"], now=NOW + MINUTE, grain=SECOND) == ["t2"]
        assert await store.touch(["t1", "t2"], now=NOW + MINUTE, grain=SECOND) == ["t1"]
    finally:
        await holder.close()


@pytest.mark.parametrize("reread", [True, False])
async def test_working_on_a_thread_lets_it_expire_later_too(store: Store, reread: bool) -> None:
    change = await saved(store, opened(ttl=timedelta(hours=1)))
    for seconds, seen in ((30, 0), (59, 0), (61, 61), (100, 61), (200, 200)):
        thread = await store.get("t1") if reread else change.thread
        change = await saved(store, recorded(thread, said(), seconds=seconds))
        thread = await store.get("t1")
        assert thread.last_accessed_at == NOW + timedelta(seconds=seen)
        assert thread.expires_at == NOW + timedelta(seconds=seen, hours=1)


async def test_a_thread_without_a_time_to_live_stays(store: Store) -> None:
    await saved(store, opened())
    await store.touch(["t1"], now=NOW + timedelta(days=400), grain=SECOND)
    assert (await store.get("t1")).expires_at is None


@pytest.mark.accept("002-31")
async def test_what_was_committed_outlives_whoever_wrote_it(where: str) -> None:
    async with open_database(where) as db:
        change = opened()
        await open_store(db).commit(change)
    async with open_database(where) as db:
        if where == "memory":  # and says so in its name
            with pytest.raises(NotFound):
                await open_store(db).get("t1")
        else:
            assert await open_store(db).get("t1") == change.thread
            assert await open_store(db).read("t1") == list(change.events)


TEXTS = [
    "",
    "\0",
    "a\0b",
    "\U0001f3e0",
    "'; DROP TABLE events; --",
    "$1 ?1 %s",
    "/*+ x */",
    "e\u0301",
    "\ufffe\uffff",
    "\r\n\t",
]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
async def test_any_text_in_a_message_comes_back_as_it_was(store: Store, text: str) -> None:
    change = await saved(store, opened(message=text))
    assert await store.read("t1") == list(change.events)
    asked = await saved(store, recorded(change.thread, waits()))
    failed = await saved(store, finish(asked.thread, Status.FAILED, stamp=stamp(), reason="x"))
    assert await store.get("t1") == failed.thread


@pytest.mark.parametrize("text", [*TEXTS, "\ud800", "x\udfff"], ids=ascii)
async def test_any_text_in_a_name_comes_back_or_is_refused(store: Store, text: str) -> None:
    """Names have columns of their own, where the databases differ: none may mangle one, or answer in its own words."""
    first = await saved(store, opened("t1"))
    change = recorded(
        first.thread, StageChanged(stage=text), RoundFinished(status=Status.FAILED, reason=text)
    )
    try:
        await store.commit(change)
    except Invalid:
        assert "\0" in text or not text.isprintable(), "there is nothing to refuse"
        assert await store.get("t1") == first.thread
        await saved(store, stop(first.thread, [], stamp=stamp()))
    else:
        thread = await store.get("t1")
        assert (thread.stage, thread.failure_reason) == (text, text)


async def test_threads_are_found_by_what_was_written_to_them(store: Store) -> None:
    old, new = opened("old"), opened("new", seconds=5)
    await store.commit(old)
    await store.commit(new)
    assert [thread.id for thread in await store.find(active_since=new.thread.last_active_at)] == ["new"]
    await store.commit(recorded(old.thread, said(), seconds=10))
    found = await store.find(ANN, active_since=new.thread.last_active_at)
    assert [thread.id for thread in found] == ["new", "old"]
    assert await store.find(Owner(tenant="other"), active_since=NOW) == []
    until = NOW + timedelta(seconds=10)
    assert [thread.id for thread in await store.find(ANN, active_until=until)] == ["new"]
    assert [thread.id for thread in await store.find(ANN, by_activity=True)] == ["old", "new"]
    first = (await store.find(ANN, by_activity=True, limit=1))[0]
    rest = await store.find(ANN, by_activity=True, before=(first.last_active_at, first.id))
    assert [thread.id for thread in rest] == ["new"]


@pytest.mark.accept("003-20")
async def test_a_change_to_what_was_looked_at_meanwhile_is_refused_and_no_other_renews(store: Store) -> None:
    first = await saved(store, opened(ttl=timedelta(days=1)))
    blocked = await saved(store, recorded(first.thread, asks(), waits()))
    seen = (await store.get("t1")).last_accessed_at
    assert seen is not None
    change = finish(blocked.thread, Status.FAILED, stamp=stamp(3600))
    with pytest.raises(Conflict, match="looked at"):
        await store.commit(change, Unseen(seen - timedelta(seconds=1)))
    assert (await store.get("t1")).status is Status.BLOCKED
    await store.commit(change, Unseen(seen))
    thread = await store.get("t1")
    assert (thread.status, thread.last_accessed_at) == (Status.FAILED, seen)
    assert thread.expires_at == seen + timedelta(days=1)
