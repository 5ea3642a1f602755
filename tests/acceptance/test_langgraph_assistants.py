"""Assistants as LangGraph's own client asks for them, of a real server on either database."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4, uuid5

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from clew.engine.assistants import NAMESPACE
from tests.acceptance import sdk_graphs
from tests.acceptance.sdk import Clients, SdkServer, clients_of, sdk_serving

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

ECHO = "046b5dc7-2108-582c-9c6c-31d556d138f0"  # as any server of LangGraph's calls it
SYSTEM = {"created_by": "system"}


async def asked(served: SdkServer, method: str, path: str, who: str = "ann", **more: Any) -> httpx.Response:
    """Past the client, for what it does not show."""
    shown = {"X-API-Key": served.keys[who]}
    async with httpx.AsyncClient(base_url=served.server.address, headers=shown) as client:
        return await client.request(method, path, **more)


def names(found: Any) -> list[str]:
    return [one["name"] for one in found]


async def test_every_graph_has_an_assistant_under_the_id_langgraph_gives_it(clients: Clients) -> None:
    found = await clients.ann.assistants.search(metadata=SYSTEM, limit=100)
    assert {one["graph_id"] for one in found} >= {"echo", "nested", "keeper", "chat"}
    by_id = await clients.ann.assistants.get(ECHO)
    assert by_id == await clients.rival.assistants.get("echo")
    assert by_id in found
    assert by_id | {"created_at": 0, "updated_at": 0} == {
        "assistant_id": ECHO,
        "graph_id": "echo",
        "name": "echo",
        "description": None,
        "config": {},
        "context": {},
        "metadata": SYSTEM,
        "version": 1,
        "created_at": 0,
        "updated_at": 0,
    }
    assert by_id["created_at"].endswith("+00:00")
    (named,) = [one for one in found if one["graph_id"] == "nested"]
    assert named["name"] == "Matryoshka"  # as its maker called it


async def test_the_systems_assistants_are_not_one_users(clients: Clients) -> None:
    before = await clients.ann.assistants.get("echo")
    for name in ("echo", ECHO, ECHO.upper()):
        with pytest.raises(ConflictError):
            await clients.ann.assistants.delete(name)
        with pytest.raises(ConflictError, match="one user's key"):
            await clients.ann.assistants.update(name, name="mine")
        with pytest.raises(NotFoundError):
            await clients.ann.assistants.set_latest(name, 2)
        assert await clients.ann.assistants.set_latest(name, 1) == before
        versions = await clients.ann.assistants.get_versions(name)
        assert [one["version"] for one in versions] == [1]
    with pytest.raises(ConflictError):
        await clients.ann.assistants.create("nested", assistant_id=ECHO)
    assert await clients.ann.assistants.create("nested", assistant_id=ECHO, if_exists="do_nothing") == before
    assert await clients.ann.assistants.get("echo") == before


async def test_a_tenant_changes_the_assistant_of_a_graph_for_itself(clients: Clients) -> None:
    before = await clients.rival.assistants.get("keeper")
    name = before["assistant_id"]
    changed = await clients.acme.assistants.update("keeper", config={"configurable": {"z": 1}}, name="Ours")
    assert (changed["assistant_id"], changed["version"], changed["name"]) == (name, 2, "Ours")
    assert (changed["context"], changed["metadata"]) == ({"z": 1}, SYSTEM)
    assert changed["created_at"] == before["created_at"] != changed["updated_at"]
    for of_acme in (clients.acme, clients.ann, clients.bob):
        assert await of_acme.assistants.get("keeper") == await of_acme.assistants.get(name) == changed
        assert await of_acme.assistants.search(graph_id="keeper") == [changed]
        versions = await of_acme.assistants.get_versions(name)
        assert [one["version"] for one in versions] == [2, 1]
    assert await clients.rival.assistants.get(name) == before
    assert await clients.rival.assistants.search(graph_id="keeper") == [before]
    with pytest.raises(ConflictError, match="one user's key"):
        await clients.ann.assistants.set_latest(name, 1)
    with pytest.raises(NotFoundError):
        await clients.acme.assistants.set_latest(name, 3)
    assert (await clients.acme.assistants.set_latest("keeper", 1))["name"] == before["name"]
    assert (await clients.ann.assistants.get("keeper"))["config"] == {}


async def test_the_projects_own_graphs_come_first_and_ours_last(clients: Clients) -> None:
    found = [one["graph_id"] for one in await clients.rival.assistants.search(metadata=SYSTEM, limit=100)]
    assert found[: len(sdk_graphs.NAMES)] == [*sdk_graphs.NAMES]
    assert {"chat", "coding"} <= {*found[len(sdk_graphs.NAMES) :]}


async def test_our_graphs_have_no_assistants_if_that_is_wanted(tmp_path: Path) -> None:
    with sdk_serving(tmp_path, CLEW_LANGGRAPH_BUILT_IN_GRAPHS="false") as alone:
        async with clients_of(alone) as clients:
            found = [one["graph_id"] for one in await clients.ann.assistants.search(limit=100)]
            assert found == [*sdk_graphs.NAMES]
            assert await clients.ann.assistants.count() == len(found)
            with pytest.raises(UnprocessableEntityError):
                await clients.ann.assistants.get("chat")
            with pytest.raises(NotFoundError):
                await clients.ann.assistants.get(str(uuid5(NAMESPACE, "chat")))
            with pytest.raises(NotFoundError):
                await clients.ann.assistants.create("chat")
        graphs = alone.server.get("/api/graphs", **{"X-API-Key": alone.keys["ann"]}).json()["graphs"]
        assert "chat" in [one["name"] for one in graphs]


async def test_an_assistant_is_made_changed_and_deleted(clients: Clients) -> None:
    made = await clients.ann.assistants.create(
        "echo",
        config={"tags": ["t"], "recursion_limit": 7},
        context={"loud": True},
        metadata={"team": "a", "deep": {"x": 1, "y": [1, 2]}},
        name="Parrot",
        description="says it again",
    )
    assert made["version"] == 1
    # LangGraph has two names for a context, and keeps them alike.
    assert made["config"] == {"tags": ["t"], "recursion_limit": 7, "configurable": {"loud": True}}
    assert made["context"] == {"loud": True}
    assert await clients.ann.assistants.get(made["assistant_id"]) == made

    changed = await clients.ann.assistants.update(
        made["assistant_id"], metadata={"team": "b"}, description="says it"
    )
    assert changed["version"] == 2
    assert changed["metadata"] == {"team": "b", "deep": {"x": 1, "y": [1, 2]}}
    assert (changed["name"], changed["description"]) == ("Parrot", "says it")
    assert changed["config"] == made["config"]
    assert changed["created_at"] == made["created_at"]
    assert changed["updated_at"] > made["updated_at"]
    assert await clients.ann.assistants.get(made["assistant_id"]) == changed

    await clients.ann.assistants.delete(made["assistant_id"])
    for gone in (
        clients.ann.assistants.get,
        clients.ann.assistants.get_versions,
        clients.ann.assistants.delete,
    ):
        with pytest.raises(NotFoundError):
            await gone(made["assistant_id"])


async def test_with_an_assistant_go_the_threads_it_ran_if_wished(clients: Clients) -> None:
    made = await clients.ann.assistants.create("echo")
    stays = await clients.ann.assistants.create("echo")
    threads: dict[str, Any] = {}
    for name, client, assistant in (
        ("one", clients.ann, made),
        ("two", clients.ann, made),
        ("another assistant's", clients.ann, stays),
        ("another owner's", clients.bob, {"assistant_id": "echo"}),
    ):
        threads[name] = (await client.threads.create())["thread_id"]
        await client.runs.wait(threads[name], assistant["assistant_id"], input={"words": ["hi"]})
    with pytest.raises(NotFoundError):
        await clients.bob.assistants.delete(made["assistant_id"], delete_threads=True)
    await clients.ann.assistants.delete(made["assistant_id"], delete_threads=True)
    for name in ("one", "two"):
        with pytest.raises(NotFoundError):
            await clients.ann.threads.get(threads[name])
    assert await clients.ann.threads.get(threads["another assistant's"])
    assert await clients.bob.threads.get(threads["another owner's"])
    await clients.ann.assistants.delete(stays["assistant_id"])
    assert await clients.ann.threads.get(threads["another assistant's"])


async def test_what_is_left_out_has_its_default(clients: Clients) -> None:
    made = await clients.ann.assistants.create("echo")
    assert (made["name"], made["description"]) == ("Untitled", None)
    assert made["config"] == made["context"] == made["metadata"] == {}


async def test_any_version_can_be_made_the_one_that_counts(clients: Clients) -> None:
    made = await clients.ann.assistants.create("echo", name="one", context={"n": 1}, metadata={"n": 1})
    name = made["assistant_id"]
    two = await clients.ann.assistants.update(name, name="two", graph_id="nested", context={"n": 2})
    assert (two["version"], two["graph_id"]) == (2, "nested")

    back = await clients.ann.assistants.set_latest(name, 1)
    assert {**back, "updated_at": 0} == {**made, "updated_at": 0}
    assert await clients.ann.assistants.get(name) == back

    # The next one is built on the one that counts, and no number is given twice.
    three = await clients.ann.assistants.update(name, metadata={"m": 3})
    assert (three["version"], three["name"], three["metadata"]) == (3, "one", {"n": 1, "m": 3})
    versions = await clients.ann.assistants.get_versions(name)
    assert [one["version"] for one in versions] == [3, 2, 1]
    assert names(versions) == ["one", "two", "one"]
    assert "updated_at" not in versions[0]
    assert [one["version"] for one in await clients.ann.assistants.get_versions(name, limit=1, offset=1)] == [
        2
    ]
    assert [one["version"] for one in await clients.ann.assistants.get_versions(name, metadata={"m": 3})] == [
        3
    ]
    with pytest.raises(NotFoundError):
        await clients.ann.assistants.set_latest(name, 4)


async def test_of_changes_at_once_none_is_lost(clients: Clients) -> None:
    made = await clients.ann.assistants.create("echo")
    name = made["assistant_id"]
    changed = await asyncio.gather(
        *(clients.ann.assistants.update(name, metadata={f"k{n}": n}) for n in range(12))
    )
    assert sorted(one["version"] for one in changed) == list(range(2, 14))
    now = await clients.ann.assistants.get(name)
    assert now["version"] == 13
    assert now["metadata"] == {f"k{n}": n for n in range(12)}


async def test_of_those_who_make_the_same_one_at_once_one_does(clients: Clients) -> None:
    name = str(uuid4())
    made = await asyncio.gather(
        *(clients.ann.assistants.create("echo", assistant_id=name, name=str(n)) for n in range(6)),
        return_exceptions=True,
    )
    (winner,) = [one for one in made if isinstance(one, dict)]
    assert all(isinstance(one, ConflictError) for one in made if one is not winner)
    kept = await clients.ann.assistants.create("echo", assistant_id=name, if_exists="do_nothing")
    assert kept == winner


async def test_a_search_finds_by_graph_name_and_metadata(clients: Clients) -> None:
    team = {"of": str(uuid4())}
    for n, graph in enumerate(("echo", "nested", "echo", "echo")):
        await clients.ann.assistants.create(
            graph, name=f"Search {n}", metadata=team | {"n": n, "deep": {"even": n % 2 == 0}}
        )

    async def found(metadata: Any = team, **wanted: Any) -> list[str]:
        return names(await clients.ann.assistants.search(metadata=metadata, **wanted))

    assert await found() == ["Search 3", "Search 2", "Search 1", "Search 0"]
    assert await found(graph_id="nested") == ["Search 1"]
    assert await found(name="search 2") == ["Search 2"]
    assert await found(team | {"deep": {"even": True}}) == ["Search 2", "Search 0"]
    assert await found(team | {"n": True}) == []  # which is not 1
    assert await found(team | {"missing": None}) == []
    assert await found(sort_by="name", sort_order="asc") == [f"Search {n}" for n in range(4)]
    assert await found(sort_by="graph_id", sort_order="desc", limit=1) == ["Search 1"]
    assert await found(limit=2, offset=1) == ["Search 2", "Search 1"]
    assert await clients.ann.assistants.count(metadata=team) == 4
    assert await clients.ann.assistants.count(metadata=team, graph_id="echo", name="3") == 1

    selected = await clients.ann.assistants.search(
        metadata=team, limit=1, select=["name", "version", "description"]
    )
    assert selected == [{"name": "Search 3", "version": 1, "description": None}]


async def test_a_search_says_how_many_there_are_and_where_to_go_on(
    served: SdkServer, clients: Clients
) -> None:
    team = {"of": str(uuid4())}
    for n in range(3):
        await clients.ann.assistants.create("echo", name=str(n), metadata=team)
    page = await clients.ann.assistants.search(metadata=team, limit=2, response_format="object")
    assert (names(page["assistants"]), page["next"]) == (["2", "1"], "2")
    page = await clients.ann.assistants.search(metadata=team, limit=2, offset=2, response_format="object")
    assert (names(page["assistants"]), page["next"]) == (["0"], None)
    answer = await asked(served, "POST", "/assistants/search", json={"metadata": team, "limit": 1})
    assert (answer.headers["x-pagination-total"], answer.headers["x-pagination-next"]) == ("3", "1")


async def test_graphs_are_drawn(clients: Clients) -> None:
    drawn = await clients.ann.assistants.get_graph("nested")
    assert [node["id"] for node in drawn["nodes"]] == ["__start__", "middle", "__end__"]
    assert drawn["edges"] == [
        {"source": "__start__", "target": "middle"},
        {"source": "middle", "target": "__end__"},
    ]
    one = await clients.ann.assistants.get_graph("nested", xray=1)
    assert {node["id"] for node in one["nodes"]} == {"__start__", "middle:inner", "__end__"}
    whole = await clients.ann.assistants.get_graph("nested", xray=True)
    assert {node["id"] for node in whole["nodes"]} == {"__start__", "middle:inner:say", "__end__"}


async def test_schemas_say_what_a_graph_takes_and_gives(clients: Clients) -> None:
    mine = await clients.ann.assistants.create("echo")
    schemas = await clients.ann.assistants.get_schemas(mine["assistant_id"])
    assert schemas["graph_id"] == "echo"
    for which in ("input_schema", "output_schema", "state_schema"):
        assert schemas[which]["properties"].keys() == {"words"}, which
        assert schemas[which]["properties"]["words"]["items"] == {"type": "string"}
    assert schemas["context_schema"]["properties"]["loud"]["type"] == "boolean"
    assert schemas["config_schema"]["properties"].keys() == {"loud"}


async def test_subgraphs_are_told_by_namespace(clients: Clients) -> None:
    assert await clients.ann.assistants.get_subgraphs("echo") == {}
    inside = await clients.ann.assistants.get_subgraphs("nested")
    assert list(inside) == ["middle"]
    assert inside["middle"]["state_schema"]["properties"].keys() == {"words"}
    assert set(await clients.ann.assistants.get_subgraphs("nested", recurse=True)) == {
        "middle",
        "middle|inner",
    }
    only = await clients.ann.assistants.get_subgraphs("nested", namespace="middle")
    assert only == inside
    deep = await clients.ann.assistants.get_subgraphs("nested", namespace="middle|inner", recurse=True)
    assert set(deep) == {"middle|inner"}


async def test_nobody_sees_or_touches_what_is_another_owners(clients: Clients) -> None:
    team = {"of": str(uuid4())}
    made = await clients.ann.assistants.create("echo", name="Ann's", metadata=team)
    name = made["assistant_id"]
    for other in (clients.bob, clients.rival):
        missing = str(uuid4())
        verbs: list[Callable[[str], Any]] = [
            other.assistants.get,
            partial(other.assistants.update, name="taken"),
            other.assistants.delete,
            other.assistants.get_versions,
            partial(other.assistants.set_latest, version=1),
            other.assistants.get_graph,
            other.assistants.get_schemas,
            other.assistants.get_subgraphs,
        ]
        for verb in verbs:
            with pytest.raises(NotFoundError) as foreign:
                await verb(name)
            with pytest.raises(NotFoundError) as unknown:
                await verb(missing)
            assert foreign.value.response.text.replace(name, missing) == unknown.value.response.text
        assert await other.assistants.search(metadata=team) == []
        assert await other.assistants.count(metadata=team) == 0
    assert await clients.ann.assistants.get(name) == made
    # To whom the whole tenant is shown, Ann's assistants are too.
    assert await clients.acme.assistants.get(name) == made
    assert names(await clients.acme.assistants.search(metadata=team)) == ["Ann's"]


async def test_tenants_do_not_even_share_their_ids(clients: Clients) -> None:
    made = await clients.ann.assistants.create("echo", name="Ann's")
    name = made["assistant_id"]
    for if_exists in ("raise", "do_nothing"):
        with pytest.raises(ConflictError):  # and nothing of it is shown
            await clients.bob.assistants.create("echo", assistant_id=name, if_exists=if_exists)
    theirs = await clients.rival.assistants.create("nested", assistant_id=name, name="Rival's")
    assert (theirs["assistant_id"], theirs["graph_id"]) == (name, "nested")
    await clients.rival.assistants.delete(name)
    assert await clients.ann.assistants.get(name) == made


async def test_what_is_wrong_is_refused_with_a_detail(served: SdkServer, clients: Clients) -> None:
    with pytest.raises(NotFoundError):
        await clients.ann.assistants.create("nothing")
    with pytest.raises(NotFoundError):
        await clients.ann.assistants.search(graph_id="nothing")
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.assistants.get("neither-a-graph-nor-an-id")
    wrong: list[Any] = [
        {},
        {"graph_id": "echo", "assistant_id": "7"},
        {"graph_id": "echo", "config": {"recursion_limit": "many"}},
        {"graph_id": "echo", "if_exists": "perhaps"},
        {"graph_id": "echo", "metadata": []},
        [],
    ]
    for body in wrong:
        answer = await asked(served, "POST", "/assistants", json=body)
        assert (answer.status_code, list(answer.json())) == (422, ["detail"]), body
        assert isinstance(answer.json()["detail"], str)
    both = {"graph_id": "echo", "config": {"configurable": {"a": 1}}, "context": {"a": 1}}
    answer = await asked(served, "POST", "/assistants", json=both)
    assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    wrong = [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"sort_by": "age"}, {"select": ["secret"]}]
    for body in wrong:
        answer = await asked(served, "POST", "/assistants/search", json=body)
        assert answer.status_code == 422, body
    answer = await asked(
        served, "POST", "/assistants", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, list(answer.json())) == (422, ["detail"])
    answer = await asked(served, "GET", "/assistants/echo/graph?xray=none")
    assert answer.status_code == 422


async def test_who_has_no_key_is_told_so_in_this_faces_words(served: SdkServer) -> None:
    async with httpx.AsyncClient(base_url=served.server.address) as client:
        answer = await client.get("/assistants/echo")
        assert (answer.status_code, list(answer.json())) == (401, ["detail"])
        assert (await client.get("/ok")).json() == {"ok": True}
        assert (await client.get("/info")).status_code == 401
    info = (await asked(served, "GET", "/info")).json()
    assert info["flags"]["assistants"] is True
    assert info["version"]
