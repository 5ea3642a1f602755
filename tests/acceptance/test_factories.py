"""Graph factories: called for each run, read, update and schema, with what LangGraph's server hands them."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import BadRequestError

from tests.acceptance import factory_graphs
from tests.processes import ROOT, Server, serving

pytestmark = pytest.mark.anyio

NAMES = ("nothing", "config", "runtime", "both", "manager", "generator", "raising", "greedy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("factories")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    graphs = {name: f"{factory_graphs.__file__}:{name}" for name in NAMES}
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    with serving(folder, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}", NOTES=str(folder / "notes")) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=server.address, api_key=None) as client:
        yield client


def notes(folder: Path, factory: str) -> list[dict[str, Any]]:
    lines = (folder / "notes").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [one for one in found if one.pop("factory") == factory]


async def run(client: LangGraphClient, thread: Any, graph: str, tone: str) -> Any:
    given: Any = {"said": ""}
    return await client.runs.wait(thread["thread_id"], graph, input=given, context={"tone": tone})


async def test_a_factory_of_a_config_makes_a_graph_for_each_run(
    client: LangGraphClient, folder: Path
) -> None:
    thread = await client.threads.create()
    assert (await run(client, thread, "config", "warm"))["made_for"] == "warm"
    assert (await run(client, thread, "config", "cool"))["made_for"] == "cool"
    runs = [one["run_id"] for one in await client.runs.list(thread["thread_id"])]
    called = [one["run"] for one in notes(folder, "config") if one["thread"] == thread["thread_id"]]
    assert {*runs} <= {*called}


async def test_a_factory_of_a_runtime_knows_why_it_is_called_and_is_left_after_each_use(
    client: LangGraphClient, folder: Path
) -> None:
    thread = await client.threads.create()
    assert (await run(client, thread, "runtime", "warm"))["made_for"] == "warm"
    state: Any = await client.threads.get_state(thread["thread_id"])
    assert state["values"]["said"] == "done"
    await client.threads.update_state(thread["thread_id"], {"said": "changed"})
    (assistant,) = await client.assistants.search(graph_id="runtime")
    schemas: Any = await client.assistants.get_schemas(assistant["assistant_id"])
    assert "tone" in schemas["context_schema"]["properties"]
    drawing: Any = await client.assistants.get_graph(assistant["assistant_id"])
    assert drawing["nodes"]
    assert await client.assistants.get_subgraphs(assistant["assistant_id"]) == {}
    found = notes(folder, "runtime")
    entered = [one["access"] for one in found if "access" in one]
    assert {*entered} == {"threads.create_run", "threads.read", "threads.update", "assistants.read"}
    assert sorted(entered) == sorted(one["left"] for one in found if "left" in one)
    contexts = [one["context"] for one in found if one.get("access") == "threads.create_run"]
    assert contexts == [{"tone": "warm"}]
    assert (await client.store.get_item(["made"], "last"))["value"] == {"by": "runtime"}


@pytest.mark.parametrize("graph", ["both", "manager", "generator"])
async def test_factories_of_other_kinds_are_called_as_they_want(
    client: LangGraphClient, folder: Path, graph: str
) -> None:
    thread = await client.threads.create()
    assert (await run(client, thread, graph, "warm"))["made_for"] == "warm"
    found = notes(folder, graph)
    assert {"access": "threads.create_run", "user": "None"} in found or {"left": True} in found


async def test_a_factory_that_takes_nothing_is_called_once(client: LangGraphClient, folder: Path) -> None:
    for _ in range(2):
        assert (await run(client, await client.threads.create(), "nothing", "warm"))["made_for"] == "everyone"
    assert len(notes(folder, "nothing")) == 1


async def test_a_factory_that_raises_fails_its_run_and_no_list(client: LangGraphClient) -> None:
    thread = await client.threads.create()
    with pytest.raises(Exception, match="LookupError"):
        await run(client, thread, "raising", "sour")
    (failed,) = await client.runs.list(thread["thread_id"])
    assert failed["status"] == "error"
    with pytest.raises(BadRequestError, match="no tools today"):
        await client.threads.get_state(thread["thread_id"])
    found = await client.threads.search(ids=[thread["thread_id"]])
    assert [one["status"] for one in found] == ["error"]
    assert "raising" in {one["graph_id"] for one in await client.assistants.search()}
    assert (await run(client, await client.threads.create(), "raising", "mild"))["made_for"] == "sweet"


async def test_a_factory_that_wants_what_no_server_has_is_named(server: Server) -> None:
    assert "greedy" in server.log
    assert "database, cache" in server.log
