"""Store items found by meaning: what LangGraph's own stores find, in step with the items, for one tenant."""

import asyncio
from array import array
from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from clew.domain.errors import ConfigError, Invalid, Unavailable
from clew.domain.thread import Owner
from clew.history.embedding import EmbeddedItems
from clew.history.graph_store import GraphStore
from clew.server.store_index import require_vectors
from clew.stores.sql.histories import HistoryRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.work import Database, Statement, Work
from clew.stores.sqlite_vectors import cosine_distance

pytestmark = pytest.mark.anyio

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Letters:
    """A toy embedding: how often each letter is in a text. Counts its calls."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.broken = ""

    async def __call__(self, texts: Any) -> list[list[float]]:
        self.calls.append(list(texts))
        if any(self.broken and self.broken in text for text in texts):
            raise RuntimeError(f"cannot embed {texts!r}")
        return [[float(text.lower().count(letter)) for letter in LETTERS] for text in texts]


@pytest.fixture
def embed() -> Letters:
    return Letters()


@pytest.fixture
async def store(database: Database, where: str, embed: Letters) -> GraphStore:
    await require_vectors(database, "postgres" if where.startswith("postgres") else "sqlite")
    index = EmbeddedItems.of({"embed": embed, "dims": len(LETTERS), "fields": ["text"]})
    return GraphStore(ItemRows(database), HistoryRows(database), index=index)


async def found(store: Any, query: str, prefix: tuple[str, ...] = ("docs",), **more: Any) -> list[str]:
    return [item.key for item in await store.asearch(prefix, query=query, **more)]


async def vectors(db: Database) -> int:
    def work() -> Work[int]:
        ((number,),) = yield Statement("SELECT count(*) FROM store_vectors")
        return int(number)

    return await db.read(work)


async def test_items_are_ranked_as_langgraphs_own_store_ranks_them(store: GraphStore, embed: Letters) -> None:
    own = InMemoryStore(index={"embed": embed, "dims": len(LETTERS), "fields": ["text"]})
    texts = {"cats": "a cat sat", "dogs": "dogs dig", "zoo": "zzz ooo", "nothing": "!", "cat2": "cat"}
    for each in (store, own):
        for key, text in texts.items():
            await each.aput(("docs", key[0]), key, {"text": text, "n": len(text)})
    for query in ("cat", "dog", "zoo", "a cat and a dog"):
        ours = await store.asearch(("docs",), query=query)
        theirs = await own.asearch(("docs",), query=query)
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-5)
        assert {one.key for one in ours} == set(texts)
        assert ours[0].key == theirs[0].key
    assert (await store.asearch(("docs",), query="cat"))[0].score == pytest.approx(1)
    assert await found(store, "cat", limit=1) == ["cat2"]
    assert await found(store, "cat", limit=1, offset=1) == ["cats"]
    assert await found(store, "cat", filter={"n": {"$gt": 3}}, limit=1) == ["cats"]
    assert await found(store, "cat", ("docs", "d")) == ["dogs"]
    assert [one.score for one in await store.asearch(("docs",), limit=2)] == [None, None]


async def test_what_is_indexed_is_said_with_the_item(store: GraphStore, database: Database) -> None:
    await store.aput(("docs",), "plain", {"text": "cat"})
    await store.aput(("docs",), "hidden", {"text": "cat"}, index=False)
    await store.aput(
        ("docs",), "other", {"text": "cat", "facts": [{"of": "dog"}, {"of": "zzz"}]}, index=["facts[*].of"]
    )
    await store.aput(("docs",), "empty", {"title": "cat"})
    assert await found(store, "cat", limit=1) == ["plain"]
    assert await found(store, "zzz", limit=1) == ["other"]  # by the most similar of its texts
    assert sorted(await found(store, "dog")) == ["other", "plain"]
    assert await vectors(database) == 3
    assert (await store.aget(("docs",), "hidden")) is not None


async def test_the_index_is_in_step_with_the_items(store: GraphStore, database: Database) -> None:
    plain = GraphStore(ItemRows(database), HistoryRows(database))
    await store.aput(("docs",), "one", {"text": "cat"})
    await store.aput(("docs",), "one", {"text": "dog"})
    assert (await store.asearch(("docs",), query="dog"))[0].score == pytest.approx(1)
    assert await vectors(database) == 1
    await plain.aput(
        ("docs",), "one", {"text": "zoo"}
    )  # by a process without an index: no stale vector stays
    assert await vectors(database) == 0
    await store.aput(("docs",), "one", {"text": "zoo"}, ttl=10)
    await store.aput(("docs",), "two", {"text": "zoo"})
    await store.adelete(("docs",), "two")
    assert await found(store, "zoo") == ["one"]

    def expire() -> Work[None]:
        yield Statement("UPDATE store_items SET expires_at = 1 WHERE expires_at IS NOT NULL")

    await database.write(expire)
    assert await found(store, "zoo") == []
    assert await store.sweep_ttl() == 1
    assert await vectors(database) == 0


async def test_a_batch_is_embedded_once_and_is_written_whole_or_not_at_all(
    store: GraphStore, embed: Letters, database: Database
) -> None:
    puts = [PutOp(("docs",), f"k{n}", {"text": f"cat {n % 3}"}) for n in range(20)]
    await store.abatch([*puts, GetOp(("docs",), "k1")])
    assert embed.calls == [["cat 0", "cat 1", "cat 2"]]
    embed.calls.clear()
    both = await store.abatch([SearchOp(("docs",), query="cat"), SearchOp(("docs",), query="cat", limit=1)])
    assert [len(one) for one in both] == [10, 1]  # type: ignore[arg-type]
    assert len(embed.calls) == 1
    embed.broken = "secret"
    with pytest.raises(Unavailable, match="embedding failed: RuntimeError") as failed:
        await store.abatch([PutOp(("docs",), "a", {"text": "x"}), PutOp(("docs",), "b", {"text": "secret"})])
    assert "secret" not in str(failed.value)
    assert await store.aget(("docs",), "a") is None
    with pytest.raises(Unavailable):
        await store.asearch(("docs",), query="secret")
    wrong = EmbeddedItems.of({"embed": embed, "dims": 3})
    with pytest.raises(Unavailable, match="3 numbers"):
        await GraphStore(ItemRows(database), HistoryRows(database), index=wrong).aput(("a",), "b", {"c": "d"})
    for number in (float("nan"), float("inf"), 1e39):
        odd = EmbeddedItems.of({"embed": lambda texts, n=number: [[n] for _ in texts], "dims": 1})
        with pytest.raises(Unavailable, match="32-bit"):
            await GraphStore(ItemRows(database), HistoryRows(database), index=odd).aput(
                ("a",), "b", {"c": "d"}
            )


async def test_tenants_users_and_embeddings_of_other_sizes_are_apart(
    store: GraphStore, database: Database
) -> None:
    ann, rival = (store.for_owner(Owner(tenant=tenant, user_id="ann")) for tenant in ("acme", "rival"))
    await ann.aput(("docs",), "hers", {"text": "cat"})
    await store.aput(("docs",), "ours", {"text": "cat"})
    assert (
        await found(rival, "cat")
        == await found(store.for_owner(Owner(tenant="acme", user_id="bob")), "cat")
        == []
    )
    assert await found(ann, "cat") == ["hers"]
    assert await found(store, "cat") == ["ours"]
    smaller = EmbeddedItems.of({"embed": lambda texts: [[1.0, 2.0] for _ in texts], "dims": 2})
    other = GraphStore(ItemRows(database), HistoryRows(database), index=smaller)
    assert await found(other, "cat") == []
    await other.aput(("docs",), "new", {"text": "cat"})
    assert await found(other, "cat") == ["new"]
    assert await found(store, "cat") == ["ours"]


async def test_without_an_index_a_query_is_refused(database: Database) -> None:
    plain = GraphStore(ItemRows(database), HistoryRows(database))
    await plain.aput(("docs",), "one", {"text": "cat"}, index=["text"])
    with pytest.raises(Invalid, match=r"store\.index"):
        await plain.asearch(("docs",), query="cat")
    assert [item.key for item in await plain.asearch(("docs",), query="")] == ["one"]
    for wrong in (
        {"dims": 2},
        {"embed": len},
        {"embed": len, "dims": 0},
        {"embed": "nosuch:model", "dims": 2},
    ):
        with pytest.raises(ConfigError, match=r"store\.index"):
            EmbeddedItems.of(wrong)  # type: ignore[arg-type]


async def test_a_synchronous_function_does_not_block_the_loop(database: Database) -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(texts: Any) -> list[list[float]]:
        asyncio.run_coroutine_threadsafe(_set(gate), loop).result(timeout=20)
        return [[1.0] for _ in texts]

    index = EmbeddedItems.of({"embed": slow, "dims": 1})
    await GraphStore(ItemRows(database), HistoryRows(database), index=index).aput(("a",), "b", {"text": "c"})
    assert gate.is_set()


async def _set(gate: asyncio.Event) -> None:
    gate.set()


def test_the_distance_in_python_is_that_of_sqlite_vec() -> None:
    def distance(one: list[float], other: list[float]) -> float:
        return cosine_distance(array("f", one).tobytes(), array("f", other).tobytes())

    assert distance([1, 0], [2, 0]) == pytest.approx(0)
    assert distance([1, 0], [0, 3]) == pytest.approx(1)
    assert distance([1, 1], [-1, -1]) == pytest.approx(2)
    assert distance([0, 0], [1, 1]) == 1
