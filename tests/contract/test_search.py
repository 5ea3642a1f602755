"""What every full-text search must do."""

import pytest

from clew.domain.errors import Invalid
from clew.domain.events import Redacted, RoundFinished
from clew.domain.lifecycle import Change, next_round
from clew.domain.thread import Owner, Status
from clew.engine import searching
from clew.engine.searching import FullTextSearch
from clew.ports.threads import Store
from clew.server.database import open_search
from clew.stores.sql.trash import TrashRows
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import NOW, opened, recorded, said, stamp

pytestmark = pytest.mark.anyio


@pytest.fixture
def search(store: Store, database: Database) -> FullTextSearch:
    return FullTextSearch(store, open_search(database))


async def told(
    store: Store, search: FullTextSearch, thread_id: str, *texts: str, tenant: str = "acme"
) -> Change:
    first = opened(thread_id, owner=Owner(tenant=tenant, user_id="ann"))
    await store.commit(first)
    more = recorded(first.thread, *(said(text) for text in texts))
    await store.commit(more)
    await search.update(thread_id)
    return more


async def found(search: FullTextSearch, q: str, tenant: str = "acme") -> dict[str, list[str]]:
    hits = await search.find(Owner(tenant=tenant), q, limit=10)
    return {one.thread.id: [match.text for match in one.matches] for one in hits}


async def test_words_are_found_whatever_their_case_accents_and_ending(
    store: Store, search: FullTextSearch
) -> None:
    await told(store, search, "t1", "Ich möchte die Rückzahlung von 42,50 Euro", "退款政策是什么")
    await told(store, search, "t2", "it's a user_name: O'Brien \\ 50% \"quoted\" x:* & | ! <->")
    for q in ("rückzahlung", "RUCKZ", "möcht euro", "42,50", "退款", "政策"):
        assert list(await found(search, q)) == ["t1"], q
    for q in ("o'brien", "user_name", "quoted 50%", '"quoted"', "x:*"):
        assert list(await found(search, q)) == ["t2"], q
    for q in ("zahlung", "rückzahlung quoted", "款退", "brien'o", "NEAR", "42.60"):
        assert await found(search, q) == {}, q


async def test_what_has_no_word_is_refused(search: FullTextSearch) -> None:
    for q in (" ", "'", '"', "* & |", "a " * 17):
        with pytest.raises(Invalid, match=r"^q: "):
            await search.find(None, q, limit=10)


async def test_an_excerpt_shows_the_word(store: Store, search: FullTextSearch) -> None:
    await told(store, search, "t1", "before " * 100 + "the NEEDLE is here" + " after" * 100)
    ((excerpt,),) = (await found(search, "needle")).values()
    assert "the NEEDLE is here" in excerpt
    assert (excerpt[0], excerpt[-1]) == ("…", "…")
    assert len(excerpt) < 200


async def test_a_tenant_finds_its_own_threads_only(store: Store, search: FullTextSearch) -> None:
    await told(store, search, "t1", "a secret plan")
    await told(store, search, "t2", "a secret plan", tenant="other")
    assert list(await found(search, "secret")) == ["t1"]
    assert list(await found(search, "secret", "other")) == ["t2"]
    assert await search.find(Owner(tenant="acme", user_id="bob"), "secret", limit=10) == []


async def test_what_was_taken_away_is_not_found(
    store: Store, search: FullTextSearch, database: Database
) -> None:
    change = await told(store, search, "t1", "the password is swordfish", "another swordfish")
    first = change.events[0]
    redacted = recorded(change.thread, Redacted(message_id=first.id))
    await store.commit(redacted)
    assert list((await found(search, "swordfish")).values()) == [
        ["another swordfish"]
    ]  # before it is indexed
    await search.update("t1")
    assert await found(search, "password") == {}
    rows = await query(database, "SELECT event_id FROM message_words WHERE event_id = $1", first.id)
    assert list(rows) == []
    trash = TrashRows(database)
    await trash.put("t1", now=NOW)
    assert await found(search, "swordfish") == {}
    await trash.restore("t1", now=NOW)
    assert list(await found(search, "swordfish")) == ["t1"]
    await store.tombstone("t1", now=NOW)
    await store.purge()
    for table in ("message_words", "search_positions"):
        assert list(await query(database, f"SELECT thread_id FROM {table}")) == []


async def test_a_thread_that_was_left_behind_is_caught_up(store: Store, search: FullTextSearch) -> None:
    first = opened("t1")
    await store.commit(first)
    said_so = recorded(first.thread, said("left behind"))
    await store.commit(said_so)
    assert await search.catch_up() is False
    assert await found(search, "behind", "acme") == {}  # it still runs
    await store.commit(recorded(said_so.thread, RoundFinished(status=Status.COMPLETED)))
    assert await search.catch_up() is False
    assert list(await found(search, "behind")) == ["t1"]


async def test_threads_in_which_nothing_was_said_are_passed_over_until_something_is(
    store: Store, search: FullTextSearch, database: Database
) -> None:
    index = open_search(database)
    for thread_id in ("t1", "t2"):
        first = opened(thread_id, None)
        await store.commit(first)
        await store.commit(recorded(first.thread, RoundFinished(status=Status.COMPLETED)))
    assert list(await index.behind(limit=9)) == ["t1", "t2"]
    await index.pass_over({"t1": 2, "deleted": 7})
    assert list(await index.behind(limit=9)) == ["t2"]
    assert await index.position("deleted") == 0
    again = next_round(await store.get("t1"), "after all", stamp=stamp())
    await store.commit(again)
    await search.update("t1")
    assert list(await found(search, "after all")) == ["t1"]


@pytest.mark.raw_sql
async def test_a_thread_that_cannot_be_read_keeps_no_other_from_the_index(
    store: Store, search: FullTextSearch, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "PAGE", 1)
    for thread_id in ("t1", "t2", "t3"):
        first = opened(thread_id)
        await store.commit(first)
        await store.commit(
            recorded(first.thread, said("left behind"), RoundFinished(status=Status.COMPLETED))
        )
    await query(database, "UPDATE events SET content = '{' WHERE thread_id = 't1'")
    assert await search.catch_up() is False
    assert sorted(await found(search, "behind")) == ["t2", "t3"]
