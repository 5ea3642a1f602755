"""What every store of summaries must do."""

import pytest

from clew.domain.errors import Conflict
from clew.domain.events import Event
from clew.domain.records import Summary
from clew.ports.model_calls import Summaries
from clew.ports.threads import Store
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import NOW, opened, recorded, said

pytestmark = pytest.mark.anyio


def summary(to_seq: int, *, from_seq: int = 1, version: str = "v1", content: object = "short") -> Summary:
    return Summary(from_seq=from_seq, to_seq=to_seq, content=content, version=version, created_at=NOW)


@pytest.fixture
async def log(store: Store) -> list[Event]:
    first = opened()
    await store.commit(first)
    rest = recorded(first.thread, *(said(str(n)) for n in range(8)))
    await store.commit(rest)
    return [*first.events, *rest.events]


@pytest.mark.accept("002-6")
async def test_without_a_summary_everything_is_read(summaries: Summaries, log: list[Event]) -> None:
    assert await summaries.load_since("t1") == (None, log)
    assert await summaries.load_since("nobody") == (None, [])


@pytest.mark.accept("002-6", "002-25")
async def test_the_summary_that_reaches_furthest_and_what_came_after(
    summaries: Summaries, log: list[Event]
) -> None:
    await summaries.add("t1", summary(4, content={"gist": ["a", None]}))
    await summaries.add("t1", summary(7, from_seq=5, content={"gist": "b"}))
    await summaries.add("t1", summary(2))
    found, after = await summaries.load_since("t1")
    assert found == summary(7, from_seq=5, content={"gist": "b"})
    assert after == log[7:]


async def test_a_summary_of_everything_leaves_nothing_to_read(summaries: Summaries, log: list[Event]) -> None:
    await summaries.add("t1", summary(10))
    assert await summaries.load_since("t1") == (summary(10), [])


@pytest.mark.accept("002-25")
async def test_deleting_summaries_changes_nothing_but_speed(
    store: Store, summaries: Summaries, log: list[Event]
) -> None:
    await summaries.add("t1", summary(4))
    await summaries.add("t1", summary(6, version="v2"))
    before = await store.get("t1")
    assert await summaries.drop("t1") == 2
    assert await summaries.drop("t1") == 0
    assert await summaries.load_since("t1") == (None, log)
    assert (await store.get("t1"), await store.read("t1")) == (before, log)


async def test_the_same_summary_again_takes_the_place_of_the_first(
    summaries: Summaries, log: list[Event]
) -> None:
    await summaries.add("t1", summary(4, content="worse"))
    await summaries.add("t1", summary(4, content="better"))
    assert (await summaries.load_since("t1"))[0] == summary(4, content="better")


async def test_a_summary_ends_where_it_begins_or_later(summaries: Summaries, log: list[Event]) -> None:
    with pytest.raises(Conflict):
        await summaries.add("t1", summary(2, from_seq=3))
    assert (await summaries.load_since("t1"))[0] is None


async def test_threads_do_not_share_summaries(
    store: Store, summaries: Summaries, log: list[Event], database: Database
) -> None:
    await store.commit(opened("t2"))
    await summaries.add("t1", summary(4))
    assert (await summaries.load_since("t2"))[0] is None
    assert await summaries.drop("t2") == 0
    assert len(await query(database, "SELECT 1 FROM summaries")) == 1
