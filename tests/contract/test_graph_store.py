"""Our BaseStore: it does what LangGraph's own does, and keeps the promises theirs does not."""

import asyncio
import threading
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
    TTLConfig,
)
from langgraph.store.memory import InMemoryStore

from clew.domain.errors import Invalid, InvalidState
from clew.history.graph_store import GraphStore
from clew.ports.histories import HistoryId, NewMessage, Shape
from clew.stores.sql.histories import HistoryRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.work import Database, Statement, Work
from tests.databases import open_database

pytestmark = pytest.mark.anyio


class Opened(NamedTuple):
    store: GraphStore
    db: Database


@pytest.fixture
async def opened(database: Database) -> Opened:
    return Opened(GraphStore(ItemRows(database), HistoryRows(database)), database)


@pytest.fixture
def store(opened: Opened) -> GraphStore:
    return opened.store


def with_ttl(opened: Opened, config: TTLConfig) -> GraphStore:
    return GraphStore(ItemRows(opened.db), HistoryRows(opened.db), ttl=config)


async def age(db: Database, by: timedelta) -> None:
    """Let this much of every item's life pass."""

    def work() -> Work[None]:
        yield Statement(
            "UPDATE store_items SET expires_at = expires_at - $1", (by // timedelta(microseconds=1),)
        )

    await db.write(work)


async def expiries(db: Database) -> list[int]:
    def work() -> Work[list[int]]:
        rows = yield Statement("SELECT expires_at FROM store_items WHERE expires_at IS NOT NULL")
        return [expires_at for (expires_at,) in rows]

    return await db.read(work)


async def test_the_methods_of_the_base_class_work(store: BaseStore) -> None:
    await store.aput(("users", "u1"), "name", {"text": "Ada"})
    item = await store.aget(("users", "u1"), "name")
    assert isinstance(item, Item)
    assert (item.namespace, item.key, item.value) == (("users", "u1"), "name", {"text": "Ada"})
    assert item.created_at.utcoffset() == timedelta(0)
    assert [found.key for found in await store.asearch(("users",), filter={"text": "Ada"})] == ["name"]
    assert await store.alist_namespaces(prefix=("users",)) == [("users", "u1")]
    await store.adelete(("users", "u1"), "name")
    assert await store.aget(("users", "u1"), "name") is None


async def test_the_methods_without_await_work_from_another_thread_and_nowhere_else(store: BaseStore) -> None:
    await asyncio.to_thread(store.put, ("a",), "k", {"v": 1})
    item = await asyncio.to_thread(store.get, ("a",), "k")
    assert item is not None
    assert item.value == {"v": 1}
    with pytest.raises(asyncio.InvalidStateError):
        store.get(("a",), "k")


async def test_of_two_writes_to_one_key_the_last_counts(store: BaseStore) -> None:
    ops: list[Op] = [
        PutOp(("a",), "k", {"v": 1}),
        GetOp(("a",), "k"),
        PutOp(("a",), "k", None),
        PutOp(("a",), "k", {"v": 3}),
    ]
    assert await store.abatch(ops) == [None, None, None, None]
    item = await store.aget(("a",), "k")
    assert item is not None
    assert item.value == {"v": 3}


async def test_one_callers_bad_value_is_that_callers_error(store: BaseStore) -> None:
    results = await asyncio.gather(
        *(store.aput(("a",), f"k{n}", {"v": object() if n == 3 else n}) for n in range(8)),
        return_exceptions=True,
    )
    assert [type(result) for result in results].count(Invalid) == 1
    assert len(await store.asearch(("a",), limit=100)) == 7


@pytest.mark.parametrize("label", ["", "a.b", "a\x00", 7])
async def test_a_label_that_could_be_taken_for_another_is_refused(store: BaseStore, label: Any) -> None:
    for op in (
        GetOp((label,), "k"),
        PutOp((label,), "k", {}),
        SearchOp((label,)),
        ListNamespacesOp((MatchCondition("prefix", (label,)),)),
    ):
        with pytest.raises(InvalidNamespaceError):
            await store.abatch([op])


@pytest.mark.parametrize(
    "op",
    [
        PutOp(("a",), "k\x00", {"v": 1}),
        PutOp(("a\ud800",), "k", {"v": 1}),
        PutOp(("a",), "k", {"v": 1}, ttl=0),
        PutOp(("a",), "k", {"v": 1}, ttl=-5),
        SearchOp(("a",), limit=-1),
        SearchOp(("a",), offset=-1),
        SearchOp(("a",), filter={"v": {"$regex": "x"}}),
        SearchOp(("a",), filter={1: 2}),  # type: ignore[dict-item]
    ],
)
async def test_what_cannot_be_done_is_refused_before_it_begins(store: BaseStore, op: Op) -> None:
    with pytest.raises(Invalid):
        await store.abatch([PutOp(("b",), "k", {"v": 1}), op])
    assert await store.aget(("b",), "k") is None


async def test_a_get_changes_nothing(opened: Opened) -> None:
    store = with_ttl(opened, {"default_ttl": 60})
    await store.aput(("a",), "k", {"v": 1})
    before = await expiries(opened.db)
    for _ in range(5):
        await store.aget(("a",), "k")
        await store.asearch(("a",))
    assert await expiries(opened.db) == before


async def test_reading_prolongs_a_life_that_has_begun_to_pass(opened: Opened) -> None:
    store = with_ttl(opened, {"default_ttl": 60})
    await store.aput(("a",), "k", {"v": 1})
    (full,) = await expiries(opened.db)
    await age(opened.db, timedelta(minutes=30))
    await store.aget(("a",), "k", refresh_ttl=False)
    assert await expiries(opened.db) < [full]
    await store.aget(("a",), "k")
    assert await expiries(opened.db) >= [full]
    await age(opened.db, timedelta(minutes=30))
    await store.asearch(("a",))
    assert await expiries(opened.db) >= [full]


async def test_what_expired_is_gone_for_readers_at_once_and_from_the_disk_when_swept(opened: Opened) -> None:
    store = with_ttl(opened, {"default_ttl": 1})
    showing = with_ttl(opened, {"default_ttl": 1, "omit_expired": False})
    await store.aput(("a",), "brief", {"v": 1})
    await store.aput(("a",), "lasting", {"v": 1}, ttl=None)
    await age(opened.db, timedelta(minutes=2))
    assert await store.aget(("a",), "brief") is None
    assert [item.key for item in await store.asearch(("a",))] == ["lasting"]
    assert await showing.aget(("a",), "brief") is not None
    assert await store.aget(("a",), "brief") is None, "reading does not raise the dead"
    assert await store.sweep_ttl() == 1
    assert await showing.aget(("a",), "brief") is None


async def test_another_tenant_sees_nothing(store: GraphStore) -> None:
    other = store.for_tenant("acme")
    await store.aput(("a",), "k", {"v": 1})
    assert await other.aget(("a",), "k") is None
    assert await other.asearch(()) == []
    assert await other.alist_namespaces() == []
    await other.aput(("a",), "k", {"v": 2})
    await other.adelete(("a",), "k")
    assert await store.aget(("a",), "k") is not None


async def test_a_history_reads_like_items_and_is_not_written_like_them(store: GraphStore) -> None:
    place = HistoryId(namespace=("agent_chat_history",), key="telegram:1")
    await store.histories.append(place, [NewMessage(role="user", content="Hi")], shape=Shape())
    meta = await store.aget(place.path, "__meta__")
    chunk = await store.aget(place.path, "chunk:000000")
    assert meta is not None
    assert chunk is not None
    assert meta.value["latest_chunk_key"] == chunk.value["chunk_key"] == chunk.key
    assert chunk.value["messages"] == [{"seq": 1, "role": "user", "content": "Hi"}]
    with pytest.raises(InvalidState):
        await store.aput(place.path, "__meta__", {})
    with pytest.raises(InvalidState):
        await store.adelete(place.path, "chunk:000000")


labels = st.sampled_from(["a", "b", "ab", "a_", "%"])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
scalars: st.SearchStrategy[Any] = st.integers(0, 3) | st.sampled_from(["s", "t"])
values = st.dictionaries(st.sampled_from("xy"), scalars, max_size=2)
wishes: st.SearchStrategy[Any] = scalars | st.builds(lambda n: {"$ne": n}, scalars)
filters = st.none() | st.dictionaries(st.sampled_from("xy"), wishes, max_size=2)
keys = st.sampled_from(["k1", "k2"])
paths = st.lists(labels | st.just("*"), min_size=1, max_size=2).map(tuple)
ends: st.SearchStrategy[Literal["prefix", "suffix"]] = st.sampled_from(["prefix", "suffix"])
patterns = st.tuples(ends, paths).map(lambda args: MatchCondition(*args))
operations: st.SearchStrategy[Op] = st.one_of(
    st.tuples(namespaces, keys).map(lambda args: GetOp(*args)),
    st.tuples(namespaces, keys, st.none() | values).map(lambda args: PutOp(*args)),
    st.tuples(st.lists(labels, max_size=2).map(tuple), filters, st.just(100)).map(
        lambda args: SearchOp(*args)
    ),
)
listings = st.tuples(
    st.lists(patterns, max_size=2).map(tuple),
    st.none() | st.integers(1, 3),
    st.integers(0, 9),
    st.integers(0, 2),
).map(lambda args: ListNamespacesOp(*args))


def plain(op: Op, result: Any) -> Any:
    """What two stores must agree on: everything but times and the order of a search."""
    if isinstance(op, SearchOp):
        return sorted((item.namespace, item.key, sorted(item.value.items(), key=repr)) for item in result)
    return (result.namespace, result.key, result.value) if isinstance(result, Item) else result


@settings(max_examples=50)
@given(batches=st.lists(st.tuples(st.lists(operations, max_size=6), listings), max_size=6))
def test_it_answers_as_the_store_in_memory_does(batches: list[tuple[list[Op], Op]]) -> None:
    async def check() -> None:
        theirs = InMemoryStore()
        async with open_database("memory") as db:
            ours = GraphStore(ItemRows(db), HistoryRows(db))
            for batch, listing in batches:
                results, expected = await ours.abatch(batch), await theirs.abatch(batch)
                for op, mine, other in zip(batch, results, expected, strict=True):
                    assert plain(op, mine) == plain(op, other)
                # Theirs lists a namespace also when its last item is gone, or when it was only asked about.
                for namespace in [ns for ns, held in theirs._data.items() if not held]:
                    del theirs._data[namespace]
                assert await ours.abatch([listing]) == await theirs.abatch([listing])

    asyncio.run(check())


async def test_threads_and_tasks_share_one_store(store: BaseStore) -> None:
    started = threading.Barrier(4)

    def work(name: str) -> None:
        started.wait()
        for n in range(10):
            store.put((name,), f"k{n}", {"n": n})

    await asyncio.gather(*(asyncio.to_thread(work, f"t{n}") for n in range(4)))
    assert len(await store.asearch((), limit=100)) == 40
