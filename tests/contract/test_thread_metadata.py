"""What clients hang on threads: set name by name, searched in, and gone with the thread."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from clew.domain.errors import Conflict, Invalid, NotFound
from clew.domain.events import RoundFinished
from clew.domain.thread import Owner, Status
from clew.ports.guards import Relabels
from clew.ports.thread_metadata import MOST, ThreadMetadata, ThreadSearch
from clew.ports.threads import Store
from clew.stores.sql.thread_metadata import ThreadMetadataRows
from clew.stores.sql.trash import TrashRows
from clew.stores.sql.work import Database
from tests.databases import SHARED, open_database, open_store, query
from tests.samples import ANN, NOW, opened, recorded

pytestmark = pytest.mark.anyio

ACME = Owner(tenant=ANN.tenant)
BOB = Owner(tenant=ANN.tenant, user_id="bob")
RIVAL = Owner(tenant="rival", user_id=ANN.user_id)


@pytest.fixture
def labels(database: Database) -> ThreadMetadata:
    return ThreadMetadataRows(database)


async def labelled(
    store: Store, labels: ThreadMetadata, thread_id: str, seconds: float = 0, **given: Any
) -> None:
    await store.commit(opened(thread_id, seconds=seconds))
    await labels.put(thread_id, given)


async def found(kept: ThreadMetadata, owner: Owner = ANN, **wanted: Any) -> list[str]:
    search = ThreadSearch(owner=owner, **wanted)
    ids = list(await kept.find(search))
    assert await kept.count(search) == len(ids)
    return ids


async def test_what_was_put_is_there(store: Store, labels: ThreadMetadata) -> None:
    given: dict[str, Any] = {
        "text": "é\0",
        "n": [1, {"a": None}],
        "deep": {"er": {"est": True}, "none": None},
        "empty": {},
    }
    await labelled(store, labels, "t1", **given)
    await labelled(store, labels, "t2")
    assert await labels.of(("t1", "t2", "t3")) == {"t1": given, "t2": {}, "t3": {}}


async def test_a_name_is_replaced_whole_and_others_stay(store: Store, labels: ThreadMetadata) -> None:
    await labelled(store, labels, "t1", kept=1, deep={"a": 1, "b": {"c": 2}}, deeper=3, plain=4)
    await labels.put("t1", {"deep": {"d": 5}, "plain": {"now": "deep"}})
    assert (await labels.of(("t1",)))["t1"] == {
        "kept": 1,
        "deep": {"d": 5},
        "deeper": 3,
        "plain": {"now": "deep"},
    }
    await labels.put("t1", {"deep": 6})
    assert (await labels.of(("t1",)))["t1"]["deep"] == 6


async def test_a_commit_may_write_names_over_those_there_are(store: Store, labels: ThreadMetadata) -> None:
    await labelled(store, labels, "t1", kept=1, graph_id={"deep": 2}, assistant_id="a")
    change = recorded(await store.get("t1"), RoundFinished(status=Status.COMPLETED))
    await store.commit(change, Relabels({"graph_id": "g", "assistant_id": "b"}))
    assert (await labels.of(("t1",)))["t1"] == {"kept": 1, "graph_id": "g", "assistant_id": "b"}
    with pytest.raises(Conflict):
        await store.commit(change, Relabels({"kept": 2}))
    assert (await labels.of(("t1",)))["t1"]["kept"] == 1


@pytest.mark.parametrize("name", ['"', "\\", "%", "_", "a,b", "['a'", "", "é", '", "', "x" * 900])
async def test_a_name_may_be_anything(store: Store, labels: ThreadMetadata, name: str) -> None:
    """It never becomes SQL, and never part of another name."""
    given: dict[str, Any] = {name: {"in": 1}, f"{name}x": 1}
    await labelled(store, labels, "t1", **given)
    await labels.put("t1", {name: {"other": 2}})
    assert (await labels.of(("t1",)))["t1"] == {name: {"other": 2}, f"{name}x": 1}
    assert await found(labels, labels={name: {"other": 2}}) == ["t1"]
    assert await found(labels, labels={name: {"in": 1}}) == []


async def test_threads_are_found_by_all_of_their_labels(store: Store, labels: ThreadMetadata) -> None:
    await labelled(store, labels, "t1", 1, team="a", place={"room": 1, "floor": 2})
    await labelled(store, labels, "t2", 2, team="a", place={"room": 2, "floor": 2})
    await labelled(store, labels, "t3", 3, team="b")
    assert await found(labels) == ["t3", "t2", "t1"]
    assert await found(labels, labels={"team": "a"}) == ["t2", "t1"]
    assert await found(labels, labels={"team": "a", "place": {"floor": 2}}) == ["t2", "t1"]
    assert await found(labels, labels={"team": "a", "place": {"room": 1}}) == ["t1"]
    assert await found(labels, labels={"team": "b", "place": {"room": 1}}) == []
    assert await found(labels, labels={"place": 1}) == []
    assert await found(labels, ids=("t1", "t3", "t9")) == ["t3", "t1"]
    assert await found(labels, ids=()) == []


async def test_threads_are_found_by_their_status(store: Store, labels: ThreadMetadata) -> None:
    await labelled(store, labels, "t1", 1)
    await labelled(store, labels, "t2", 2)
    await store.commit(recorded((await store.get("t2")), RoundFinished(status=Status.COMPLETED), seconds=3))
    assert await found(labels, statuses=(Status.RUNNING,)) == ["t1"]
    assert await found(labels, statuses=(Status.COMPLETED, Status.STOPPED)) == ["t2"]
    assert await found(labels, sort_by="updated_at", descending=False) == ["t1", "t2"]


async def test_a_part_of_what_is_found_is_handed_out_in_order(store: Store, labels: ThreadMetadata) -> None:
    for n in range(5):
        await labelled(store, labels, f"t{n}", n)
    search = ThreadSearch(owner=ANN, limit=2, offset=1, sort_by="created_at", descending=False)
    assert list(await labels.find(search)) == ["t1", "t2"]
    assert await labels.count(search) == 5


async def test_nobody_finds_what_is_not_theirs(store: Store, labels: ThreadMetadata) -> None:
    await labelled(store, labels, "t1", secret="x")
    assert await found(labels, ACME, labels={"secret": "x"}) == ["t1"]
    for stranger in (BOB, RIVAL):
        assert await found(labels, stranger, labels={"secret": "x"}) == []
        assert await found(labels, stranger, ids=("t1",)) == []


async def test_a_long_value_is_found_by_all_of_it(store: Store, labels: ThreadMetadata) -> None:
    """Longer than what an index takes, of letters that cannot be made shorter."""
    long = "".join(str(uuid4()) for _ in range(300))
    await labelled(store, labels, "t1", long=long)
    assert await found(labels, labels={"long": long}) == ["t1"]
    assert await found(labels, labels={"long": long[:-1]}) == []


async def test_a_thread_has_so_many_labels_and_no_more(store: Store, labels: ThreadMetadata) -> None:
    await labelled(store, labels, "t1", **{str(n): n for n in range(MOST)})
    with pytest.raises(Invalid):
        await labels.put("t1", {"one": "more"})
    assert len((await labels.of(("t1",)))["t1"]) == MOST
    await labels.put("t1", {"0": "another value"})


async def test_what_is_deleted_is_not_found_and_leaves_nothing(
    store: Store, labels: ThreadMetadata, database: Database
) -> None:
    await labelled(store, labels, "t1", a=1)
    await labelled(store, labels, "t2", a=1)
    await TrashRows(database).put("t1", ANN, now=NOW)
    await store.tombstone("t2", ANN, now=NOW)
    while await store.purge(only="t2"):
        pass
    assert await found(labels, labels={"a": 1}) == []
    assert [row[0] for row in await query(database, "SELECT thread_id FROM labels")] == ["t1"]
    for gone in ("t2", "never"):
        with pytest.raises(NotFound):
            await labels.put(gone, {"a": 1})


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_many_may_put_the_same_names_at_once(where: str) -> None:
    async with open_database(where) as one, open_database(where) as other:
        await open_store(one).commit(opened("t1"))
        hands = (ThreadMetadataRows(one), ThreadMetadataRows(other))
        async with asyncio.timeout(timedelta(seconds=60).total_seconds()):
            await asyncio.gather(
                *(
                    hands[n % 2].put("t1", dict.fromkeys(("a", "b", "c")[:: 1 if n % 4 < 2 else -1], n))
                    for n in range(40)
                )
            )
        left = (await hands[0].of(("t1",)))["t1"]
        assert left.keys() == {"a", "b", "c"}
        assert len(set(left.values())) == 1
