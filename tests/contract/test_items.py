"""What every keeper of the graph store's items must do."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from clew.domain.errors import Invalid, InvalidState
from clew.domain.items import (
    Answer,
    DeleteItem,
    FindItems,
    GetItem,
    Item,
    ListNamespaces,
    Namespace,
    Pattern,
    PutItem,
    Question,
)
from clew.ports.histories import Histories, HistoryId, NewMessage, Shape
from clew.ports.items import Items
from clew.stores.sql.histories import HistoryRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.work import Database, Statement, Work

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
TENANT = HistoryId(namespace=("h",), key="k").tenant


class Ports(NamedTuple):
    items: Items
    histories: Histories
    db: Database


@pytest.fixture
def ports(database: Database) -> Ports:
    return Ports(ItemRows(database), HistoryRows(database), database)


@pytest.fixture
def items(ports: Ports) -> Items:
    return ports.items


def put(namespace: str, key: str = "k", value: Any = None, ttl: timedelta | None = None) -> PutItem:
    value = {"at": namespace} if value is None else value
    return PutItem(namespace=tuple(namespace.split("/")), key=key, value=value, ttl=ttl)


async def get(items: Items, namespace: str, key: str = "k", tenant: str = TENANT) -> Any:
    (found,) = await items.ask(tenant, [GetItem(namespace=tuple(namespace.split("/")), key=key)])
    assert found is None or isinstance(found, Item)
    return None if found is None else found.value


async def find(items: Items, prefix: str, **options: Any) -> list[Item]:
    labels = tuple(prefix.split("/")) if prefix else ()
    return _items((await items.ask(TENANT, [FindItems(prefix=labels, **options)]))[0])


async def namespaces(items: Items, **options: Any) -> list[Namespace]:
    (found,) = await items.ask(TENANT, [ListNamespaces(**options)])
    assert isinstance(found, Sequence)
    return list(found)  # type: ignore[arg-type]


def _items(answer: Answer) -> list[Item]:
    assert isinstance(answer, Sequence)
    return list(answer)  # type: ignore[arg-type]


async def backdate(db: Database, at: datetime) -> None:
    """Move every expiry to this time, as if it had come."""

    def work() -> Work[None]:
        yield Statement(
            "UPDATE store_items SET expires_at = $1 WHERE expires_at IS NOT NULL",
            (int(at.timestamp() * 1e6),),
        )

    await db.write(work)


async def test_what_was_put_is_got_and_found(items: Items) -> None:
    value = {"text": "a'b\"c\\", "n": 1.5, "deep": [{"x": None}, True], "\u4f60": "\U0001f9f6"}
    await items.change(TENANT, [], [put("a/b", "k", value)])
    assert await get(items, "a/b") == value
    assert [item.value for item in await find(items, "a")] == [value]
    assert await get(items, "a/b", "other") is None
    assert await get(items, "a") is None


async def test_a_second_put_changes_the_value_and_keeps_the_birthday(items: Items) -> None:
    await items.change(TENANT, [], [put("a", value={"v": 1})])
    (first,) = await find(items, "a")
    await items.change(TENANT, [], [put("a", value={"v": 2})])
    (second,) = await find(items, "a")
    assert second.value == {"v": 2}
    assert second.created_at == first.created_at
    assert second.updated_at >= first.updated_at


async def test_a_deleted_item_is_gone_and_deleting_nothing_is_fine(items: Items) -> None:
    await items.change(TENANT, [], [put("a", "k1"), put("a", "k2")])
    await items.change(
        TENANT, [], [DeleteItem(namespace=("a",), key="k1"), DeleteItem(namespace=("z",), key="k")]
    )
    assert [item.key for item in await find(items, "")] == ["k2"]


async def test_namespaces_match_whole_labels(items: Items) -> None:
    names = ["foo", "foo/bar", "foobar", "fo_", "fo%", "foo-1", "foo0", "%", "_", "\u4f60\u597d"]
    await items.change(TENANT, [], [put(name) for name in names])
    for prefix in [*names, "f", "fo", "o"]:
        expected = {name for name in names if name == prefix or name.startswith(f"{prefix}/")}
        assert {item.value["at"] for item in await find(items, prefix, limit=100)} == expected, prefix
    assert len(await find(items, "", limit=100)) == len(names)


async def test_tenants_never_see_each_others_items(items: Items) -> None:
    await items.change("a", [], [put("x", value={"of": "a"})])
    await items.change("b", [], [put("x", value={"of": "b"}), put("b-only")])
    assert await get(items, "x", tenant="a") == {"of": "a"}
    assert await get(items, "b-only", tenant="a") is None
    everything: list[Question] = [FindItems(prefix=()), ListNamespaces()]
    found, listed = await items.ask("a", everything)
    assert [item.value for item in _items(found)] == [{"of": "a"}]
    assert listed == [("x",)]
    await items.change("a", [], [DeleteItem(namespace=("x",), key="k")])
    assert await get(items, "x", tenant="b") == {"of": "b"}
    assert await items.ask(TENANT, everything) == [[], []]


async def test_the_newest_change_is_found_first_and_pages_do_not_overlap(items: Items) -> None:
    for number in range(7):
        await items.change(TENANT, [], [put("a", f"k{number}")])
    await items.change(TENANT, [], [put("a", "k0")])
    assert [item.key for item in await find(items, "a", limit=3)] == ["k0", "k6", "k5"]
    assert [item.key for item in await find(items, "a", limit=3, offset=3)] == ["k4", "k3", "k2"]
    assert await find(items, "a", limit=0) == []
    assert await find(items, "a", offset=50) == []


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ({"color": "red"}, "ab"),
        ({"color": "red", "n": 2}, "b"),
        ({"n": {"$gt": 1}}, "bc"),
        ({"n": {"$gte": 1, "$lt": 3}}, "ab"),
        ({"n": {"$lte": 2.5}}, "ab"),
        ({"n": {"$ne": 1}}, "bcde"),
        ({"color": {"$eq": "blue"}}, "c"),
        ({"color": {"$gt": "blue"}}, "ab"),
        ({"deep": {"x": 1}}, "d"),
        ({"deep": {"x": {"$gte": 1}}}, "d"),
        ({"flag": True}, "e"),
        ({"flag": 1}, ""),
        ({"list": [1, 2]}, "e"),
        ({"list": [1]}, ""),
        ({"none": None}, "abcde"),
        ({"color": "' OR 1=1 --"}, ""),
        ({"') OR 1=1 --": 1}, ""),
        ({}, "abcde"),
    ],
)
async def test_filters_compare_as_json(items: Items, wanted: dict[str, Any], keys: str) -> None:
    values = {
        "a": {"color": "red", "n": 1},
        "b": {"color": "red", "n": 2},
        "c": {"color": "blue", "n": 3},
        "d": {"deep": {"x": 1, "y": 2}},
        "e": {"flag": True, "list": [1, 2], "n": "2"},
    }
    await items.change(TENANT, [], [put("f", key, value) for key, value in values.items()])
    assert sorted(item.key for item in await find(items, "f", filter=wanted)) == sorted(keys)


async def test_a_filter_sees_past_the_first_page(items: Items) -> None:
    await items.change(TENANT, [], [put("f", f"k{n:04}", {"n": n}) for n in range(1200)])
    found = await find(items, "f", filter={"n": {"$gte": 1190}}, limit=5, offset=5)
    assert len(found) == 5
    assert len(await find(items, "f", filter={"n": {"$gte": 0}}, limit=2000)) == 1200


async def test_a_change_is_made_whole_or_not_at_all(items: Items) -> None:
    await items.change(TENANT, [], [put("a", value={"v": 1})])
    with pytest.raises(Invalid):
        await items.change(TENANT, [], [put("a", value={"v": 2}), put("b", value={"v": object()})])
    assert await get(items, "a") == {"v": 1}
    assert await get(items, "b") is None


async def test_half_of_a_character_is_replaced_and_the_rest_is_kept(items: Items) -> None:
    await items.change(TENANT, [], [put("a", value={"v": "x\ud800y", "w\udc00": ["é\ud83d", 1.5, None]})])
    assert await get(items, "a") == {"v": "x\ufffdy", "w\ufffd": ["é\ufffd", 1.5, None]}


async def test_questions_are_answered_before_the_changes(items: Items) -> None:
    await items.change(TENANT, [], [put("a", value={"v": 1})])
    answers = await items.change(TENANT, [GetItem(namespace=("a",), key="k")], [put("a", value={"v": 2})])
    assert isinstance(answers[0], Item)
    assert answers[0].value == {"v": 1}


async def test_namespaces_are_listed_by_pattern_and_depth(items: Items) -> None:
    names = ["a/b/c", "a/b/d/e", "a/b/d/i", "a/b/f", "a/c/f", "ab/c", "z"]
    await items.change(TENANT, [], [put(name, key) for name in names for key in ("k1", "k2")])
    under = Pattern(at="prefix", labels=("a", "b"))
    assert await namespaces(items, patterns=(under,), max_depth=3) == [
        ("a", "b", "c"),
        ("a", "b", "d"),
        ("a", "b", "f"),
    ]
    assert await namespaces(items, patterns=(Pattern(at="suffix", labels=("f",)),)) == [
        ("a", "b", "f"),
        ("a", "c", "f"),
    ]
    assert await namespaces(items, patterns=(Pattern(at="prefix", labels=("a", "*", "f")),)) == [
        ("a", "b", "f"),
        ("a", "c", "f"),
    ]
    assert await namespaces(items, patterns=(under, Pattern(at="suffix", labels=("*", "e")))) == [
        ("a", "b", "d", "e")
    ]
    assert await namespaces(items, max_depth=1) == [("a",), ("ab",), ("z",)]
    assert await namespaces(items, max_depth=1, limit=1, offset=1) == [("ab",)]
    assert await namespaces(items, patterns=(Pattern(at="prefix", labels=("nothing",)),)) == []


async def test_an_item_past_its_time_is_not_shown_and_then_swept(ports: Ports) -> None:
    items = ports.items
    await items.change(
        TENANT, [], [put("a", "brief", ttl=HOUR), put("a", "lasting"), put("b", "brief", ttl=HOUR)]
    )
    (found,) = [item for item in await find(items, "a") if item.key == "brief"]
    assert found.ttl == HOUR
    assert found.left is not None
    assert HOUR - timedelta(minutes=1) < found.left <= HOUR
    assert await items.sweep() == 0
    await backdate(ports.db, found.updated_at - HOUR)
    assert await get(items, "a", "brief") is None
    assert [item.key for item in await find(items, "")] == ["lasting"]
    assert await namespaces(items) == [("a",)]
    shown, everything, listed = await items.ask(
        TENANT, [GetItem(namespace=("a",), key="brief"), FindItems(prefix=()), ListNamespaces()], expired=True
    )
    assert isinstance(shown, Item)
    assert len(_items(everything)) == 3
    assert listed == [("a",), ("b",)]
    assert await items.sweep(limit=1) == 1
    assert await items.sweep() == 1
    assert await items.sweep() == 0
    assert await get(items, "a", "lasting") is not None


async def test_a_refresh_prolongs_what_is_alive_and_wakes_nothing(ports: Ports) -> None:
    items = ports.items
    await items.change(TENANT, [], [put("a", "brief", ttl=HOUR), put("a", "lasting")])
    (before,) = [item for item in await find(items, "a") if item.key == "brief"]
    await backdate(ports.db, before.updated_at + timedelta(minutes=10))
    await items.refresh(TENANT, [(("a",), "brief"), (("a",), "lasting"), (("a",), "none")])
    (after,) = [item for item in await find(items, "a") if item.key == "brief"]
    assert after.left is not None
    assert after.left > timedelta(minutes=50)
    await backdate(ports.db, before.updated_at - HOUR)
    await items.refresh(TENANT, [(("a",), "brief")])
    assert await get(items, "a", "brief") is None
    await items.change(TENANT, [], [put("a", "brief")])
    assert await get(items, "a", "brief") is not None, "a put without a time to live lifts it"


async def fill(histories: Histories, place: HistoryId, count: int, shape: Shape) -> None:
    for number in range(count):
        role = "user" if number % 2 == 0 else "assistant"
        await histories.append(place, [NewMessage(role=role, content=str(number + 1))], shape=shape)  # type: ignore[arg-type]


async def test_a_history_is_seen_as_the_seeds_items(ports: Ports) -> None:
    place = HistoryId(namespace=("agent_chat_history",), key="telegram:1")
    await fill(ports.histories, place, 7, Shape(chunk_size=3, value_field="text"))
    at = "agent_chat_history/telegram:1"
    meta = await get(ports.items, at, "__meta__")
    assert meta | {"updated_at": ""} == {
        "conversation_key": "telegram:1",
        "last_seq": 7,
        "chunk_size": 3,
        "latest_chunk_key": "chunk:000002",
        "updated_at": "",
        "version": 7,
    }
    chunk = await get(ports.items, at, "chunk:000001")
    assert chunk | {"updated_at": ""} == {
        "conversation_key": "telegram:1",
        "chunk_key": "chunk:000001",
        "start_seq": 4,
        "end_seq": 6,
        "messages": [
            {"seq": 4, "role": "assistant", "text": "4"},
            {"seq": 5, "role": "user", "text": "5"},
            {"seq": 6, "role": "assistant", "text": "6"},
        ],
        "updated_at": "",
    }
    last = await get(ports.items, at, "chunk:000002")
    assert (last["start_seq"], last["end_seq"], len(last["messages"])) == (7, 7, 1)
    assert await get(ports.items, at, "chunk:000003") is None
    assert await get(ports.items, at, "chunk:2") is None


async def test_histories_are_found_and_listed_among_items(ports: Ports) -> None:
    await fill(ports.histories, HistoryId(namespace=("h",), key="one"), 5, Shape(chunk_size=2))
    await fill(ports.histories, HistoryId(namespace=("h", "deep"), key="two"), 1, Shape(chunk_size=2))
    await fill(
        ports.histories, HistoryId(namespace=("h",), key="one", tenant="other"), 9, Shape(chunk_size=2)
    )
    await ports.items.change(TENANT, [], [put("h/one", "note", {"last_seq": 5}), put("hh")])
    found = await find(ports.items, "h", limit=100)
    assert [(item.namespace, item.key) for item in found] == [
        (("h", "one"), "note"),
        (("h", "deep", "two"), "__meta__"),
        (("h", "deep", "two"), "chunk:000000"),
        (("h", "one"), "__meta__"),
        (("h", "one"), "chunk:000002"),
        (("h", "one"), "chunk:000001"),
        (("h", "one"), "chunk:000000"),
    ]
    pages = [await find(ports.items, "h", limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [item for page in pages for item in page] == found
    matching = await find(ports.items, "h", filter={"last_seq": 5})
    assert sorted(item.key for item in matching) == ["__meta__", "note"]
    assert await namespaces(ports.items) == [("h", "deep", "two"), ("h", "one"), ("hh",)]


async def test_a_history_cannot_be_written_as_items(ports: Ports) -> None:
    await fill(ports.histories, HistoryId(namespace=("h",), key="one"), 3, Shape(chunk_size=2))
    for key in ("__meta__", "chunk:000000", "chunk:000009"):
        with pytest.raises(InvalidState):
            await ports.items.change(TENANT, [], [put("a"), put("h/one", key)])
    for key in ("__meta__", "chunk:000000"):
        with pytest.raises(InvalidState):
            await ports.items.change(TENANT, [], [DeleteItem(namespace=("h", "one"), key=key)])
    assert await get(ports.items, "a") is None
    await ports.items.change(TENANT, [], [put("h/one", "note"), put("h/two", "chunk:000000")])
    assert await get(ports.items, "h/one", "note") is not None
