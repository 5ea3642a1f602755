"""The store as LangGraph's own client asks for it, of a real server on either database."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, UnprocessableEntityError

from tests.acceptance.sdk import Clients, SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path_factory.mktemp("store")) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving() as served:
        yield served


@pytest.fixture
def place() -> list[str]:
    """A namespace of this test alone."""
    return ["tests", str(uuid4())]


async def keys_in(clients: Clients, place: list[str], **wanted: Any) -> list[str]:
    found = await clients.ann.store.search_items(place, **wanted)
    return [item["key"] for item in found["items"]]


async def test_an_item_is_written_read_and_deleted(clients: Clients, place: list[str]) -> None:
    store = clients.ann.store
    assert await store.get_item(place, key="k") is None
    await store.put_item(place, key="k", value={"a": [1, None, {"é": True}]})
    item = await store.get_item(place, key="k")
    assert (item["namespace"], item["key"], item["value"]) == (place, "k", {"a": [1, None, {"é": True}]})
    assert item["created_at"].endswith("+00:00")
    await store.put_item(place, key="k", value={"b": 2})
    again = await store.get_item(place, key="k")
    assert again["value"] == {"b": 2}
    assert again["created_at"] == item["created_at"]
    assert again["updated_at"] > item["updated_at"]
    for _ in range(2):  # what is gone already can be deleted
        await store.delete_item(place, key="k")
        assert await store.get_item(place, key="k") is None


async def test_a_search_finds_items_below_a_namespace(clients: Clients, place: list[str]) -> None:
    for n in range(4):
        await clients.ann.store.put_item(
            [*place, f"below{n % 2}"], key=f"k{n}", value={"n": n, "even": n % 2 == 0}
        )
    await clients.ann.store.put_item([*place[:1], f"{place[1]}x"], key="beside", value={"n": 0})
    assert await keys_in(clients, place) == ["k3", "k2", "k1", "k0"]
    assert await keys_in(clients, [*place, "below1"]) == ["k3", "k1"]
    assert await keys_in(clients, place, filter={"even": True}) == ["k2", "k0"]
    assert await keys_in(clients, place, filter={"n": {"$gte": 2}}) == ["k3", "k2"]
    assert await keys_in(clients, place, limit=2, offset=1) == ["k2", "k1"]
    assert await keys_in(clients, place, query="") == ["k3", "k2", "k1", "k0"]
    (found,) = (await clients.ann.store.search_items(place, limit=1))["items"]
    assert found["value"] == {"n": 3, "even": False}
    assert found["namespace"] == [*place, "below1"]


async def test_namespaces_are_listed(clients: Clients, place: list[str]) -> None:
    for labels in (["a", "x"], ["a", "y"], ["b", "x"]):
        await clients.ann.store.put_item([*place, *labels], key="k", value={})

    async def listed(**wanted: Any) -> list[list[str]]:
        found = await clients.ann.store.list_namespaces(**{"prefix": place, **wanted})
        return [labels[2:] for labels in found["namespaces"]]

    assert await listed() == [["a", "x"], ["a", "y"], ["b", "x"]]
    assert await listed(max_depth=3) == [["a"], ["b"]]
    assert await listed(suffix=["x"]) == [["a", "x"], ["b", "x"]]
    assert await listed(prefix=[*place, "*", "y"]) == [["a", "y"]]
    assert await listed(limit=1, offset=1) == [["a", "y"]]


async def test_an_item_lives_as_long_as_its_time_to_live(clients: Clients, place: list[str]) -> None:
    await clients.ann.store.put_item(place, key="short", value={}, ttl=0.005)
    await clients.ann.store.put_item(place, key="long", value={}, ttl=60, index=False)

    async def gone() -> None:
        while await clients.ann.store.get_item(place, key="short", refresh_ttl=False) is not None:
            await asyncio.sleep(0.02)

    await asyncio.wait_for(gone(), 30)
    assert await keys_in(clients, place) == ["long"]


async def test_reading_an_item_prolongs_its_life_unless_told_not_to(
    stage: Stage, clients: Clients, place: list[str]
) -> None:
    def pass_by(minutes: int) -> None:
        earlier = f"expires_at - {minutes * 60_000_000}"
        stage.sql(f"UPDATE store_items SET expires_at = {earlier} WHERE key IN ('read', 'looked at')")

    for key in ("read", "looked at"):
        await clients.ann.store.put_item(place, key=key, value={}, ttl=20)
    pass_by(15)
    assert await clients.ann.store.get_item(place, key="read") is not None
    assert await clients.ann.store.get_item(place, key="looked at", refresh_ttl=False) is not None
    pass_by(10)
    assert await clients.ann.store.get_item(place, key="read") is not None
    assert await clients.ann.store.get_item(place, key="looked at") is None


async def test_tenants_never_see_each_others_items(clients: Clients, place: list[str]) -> None:
    await clients.ann.store.put_item(place, key="k", value={"of": "acme"})
    assert await clients.rival.store.get_item(place, key="k") is None
    assert (await clients.rival.store.search_items(place))["items"] == []
    assert (await clients.rival.store.search_items([]))["items"] == []
    assert (await clients.rival.store.list_namespaces())["namespaces"] == []
    await clients.rival.store.delete_item(place, key="k")
    await clients.rival.store.put_item(place, key="k", value={"of": "rival"})
    # What a key of one user keeps is that user's; the whole tenant sees it below a label.
    assert (await clients.ann.store.get_item(place, key="k"))["value"] == {"of": "acme"}
    for client in (clients.bob, clients.acme):
        assert await client.store.get_item(place, key="k") is None
    whole = await clients.acme.store.get_item(["clew:user:ann", *place], key="k")
    assert whole["value"] == {"of": "acme"}
    await clients.rival.store.delete_item(place, key="k")
    assert (await clients.ann.store.get_item(place, key="k"))["value"] == {"of": "acme"}


async def test_what_a_graph_keeps_is_what_a_client_reads(served: SdkServer, clients: Clients) -> None:
    """And the other way round."""
    await clients.ann.store.put_item(["words"], key="first", value={"word": "before"})
    async with httpx.AsyncClient(
        base_url=served.server.address, headers={"X-API-Key": served.keys["ann"]}, timeout=40
    ) as client:
        body = {"graph": "keeper", "input": {"words": ["after"]}}
        answer = await client.post("/api/workflows/start?wait=30", json=body)
        assert answer.status_code == 200, answer.text
        workflow = answer.json()["id"]
        state = (await client.get(f"/api/workflows/{workflow}/state")).json()
    assert state["values"]["words"] == ["after", "after", "before"]
    assert (await clients.ann.store.get_item(["words"], key="last"))["value"] == {"word": "after"}
    assert await clients.rival.store.get_item(["words"], key="last") is None


async def test_where_chat_histories_are_kept_nothing_can_be_written(clients: Clients) -> None:
    for client in (clients.ann, clients.acme):
        for labels in (["tenant:acme"], ["tenant:acme", "chat_history", "telegram:1"], ["tenant:rival", "x"]):
            with pytest.raises(ConflictError):
                await client.store.put_item(labels, key="metadata", value={"last_seq": 0})
            with pytest.raises(ConflictError):
                await client.store.delete_item(labels, key="metadata")


async def test_what_is_wrong_is_refused_with_a_detail(
    served: SdkServer, clients: Clients, place: list[str]
) -> None:
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.store.put_item([""], key="k", value={})
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.store.put_item([], key="k", value={})
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.store.put_item(["langgraph"], key="k", value={})
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.store.get_item(["a", ""], key="k")
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.store.search_items(place, filter={"n": {"$like": 1}})
    good = {"namespace": place, "key": "k", "value": {}}
    wrong: list[tuple[str, str, Any]] = [
        ("PUT", "items", {**good, "namespace": ["a.b"]}),
        ("PUT", "items", {**good, "key": ""}),
        ("PUT", "items", {**good, "key": "k" * 2001}),
        ("PUT", "items", {**good, "value": [1]}),
        ("PUT", "items", {**good, "value": None}),
        ("PUT", "items", {**good, "ttl": 0}),
        ("PUT", "items", {**good, "ttl": 1e300}),
        ("PUT", "items", {**good, "index": "all"}),
        ("DELETE", "items", {"namespace": ["a.b"], "key": "k"}),
        ("POST", "items/search", {"namespace_prefix": ["a.b"]}),
        ("POST", "items/search", {"namespace_prefix": place, "limit": 1001}),
        ("POST", "items/search", {"namespace_prefix": place, "offset": -1}),
        ("POST", "namespaces", {"prefix": ["a", ""]}),
        ("POST", "namespaces", {"max_depth": 0}),
    ]
    async with httpx.AsyncClient(
        base_url=served.server.address, headers={"X-API-Key": served.keys["ann"]}
    ) as client:
        for method, path, body in wrong:
            answer = await client.request(method, f"/store/{path}", json=body)
            assert (answer.status_code, list(answer.json())) == (422, ["detail"]), body
        answer = await client.get("/store/items", params={"namespace": "a..b", "key": "k"})
        assert answer.status_code == 422
    assert await keys_in(clients, place) == []


async def test_the_longest_name_there_may_be_fits_into_any_database(
    clients: Clients, place: list[str]
) -> None:
    """Of letters that cannot be made shorter, and of four bytes each."""
    rest = 2000 - sum(len(label) + 1 for label in place)
    for key in ("".join(str(uuid4()) for _ in range(60))[:rest], "\N{SPOOL OF THREAD}" * (rest // 4)):
        await clients.ann.store.put_item(place, key=key, value={"n": 1})
        assert (await clients.ann.store.get_item(place, key=key))["value"] == {"n": 1}
