"""`RemoteGraph`: a graph of this server used as if it were local, alone and as a node; and the synchronous sync."""

import operator
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.pregel.remote import RemoteException, RemoteGraph
from langgraph.types import Command
from langgraph_sdk import get_client, get_sync_client

from tests.acceptance import run_graphs
from tests.acceptance.sdk import SdkServer, sdk_serving_on

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    folder = tmp_path_factory.mktemp("remote")
    with sdk_serving_on(request.param, request, folder, run_graphs) as served:
        yield served


@pytest.fixture
def sync(served: SdkServer) -> Iterator[Any]:
    with get_sync_client(url=served.server.address, api_key=served.keys["ann"]) as client:
        yield client


@pytest.fixture
async def remote(served: SdkServer, sync: Any) -> AsyncIterator[Callable[[str], Any]]:
    """Graphs of the server by name, with clients that are closed: those that a RemoteGraph makes are not."""
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as client:
        yield lambda name: RemoteGraph(name, client=client, sync_client=sync)


def in_thread() -> Any:
    return {"configurable": {"thread_id": str(uuid4())}}


async def test_a_remote_graph_is_run_and_read_as_a_local_one(remote: Any, sync: Any) -> None:
    echo = remote("echo")
    assert (await echo.ainvoke({"words": ["x"]}))["words"] == ["x", "first", "second"]
    config = in_thread()
    sync.threads.create(thread_id=config["configurable"]["thread_id"])
    assert echo.invoke({"words": ["x"]}, config)["words"] == ["x", "first", "second"]
    state = await echo.aget_state(config)
    assert (state.values["words"], state.next) == (["x", "first", "second"], ())
    written = await echo.aupdate_state(config, {"words": ["hand"]}, as_node="first")
    assert echo.get_state(written).next == ("second",)
    past = [one.values.get("words") async for one in echo.aget_state_history(config, limit=2)]
    assert past == [["x", "first", "second", "hand"], ["x", "first", "second"]]
    assert {"first", "second"} <= set((await echo.aget_graph()).nodes)
    parts = [part async for part in echo.astream({"words": ["y"]}, config, stream_mode=["updates", "values"])]
    assert {part[0] for part in parts} == {"updates", "values"}


async def test_what_inner_graphs_stream_comes_with_their_names(remote: Any) -> None:
    nested = remote("nested")
    parts = [part async for part in nested.astream({"words": ["x"]}, stream_mode="updates", subgraphs=True)]
    inner = [data for namespace, data in parts if namespace and namespace[0].startswith("inner:")]
    assert [*inner[0]] == ["first"]
    assert [data for namespace, data in parts if not namespace] == [parts[-1][1]]
    assert set((await nested.aget_graph(xray=True)).nodes) > {"inner:first"}


class Words(TypedDict):
    words: Annotated[list[str], operator.add]


async def test_a_remote_graph_is_a_node_that_asks_and_is_answered(remote: Any, sync: Any) -> None:
    graph = StateGraph(Words)
    graph.add_node("far", remote("echo"))
    graph.add_edge(START, "far")
    local = graph.compile(checkpointer=InMemorySaver())
    values = await local.ainvoke({"words": ["x"]}, in_thread())
    assert values["words"][-3:] == ["x", "first", "second"]
    asker = remote("asker")
    config = in_thread()
    sync.threads.create(thread_id=config["configurable"]["thread_id"])
    asked = await asker.ainvoke({"words": ["x"]}, config)
    assert asked["__interrupt__"]
    answered = await asker.ainvoke(Command(resume="yes"), config)
    assert answered["words"][-1] == "answered yes"
    with pytest.raises(RemoteException):
        await remote("boom").ainvoke({"words": ["x"]})


def test_the_synchronous_client_does_the_same(sync: Any) -> None:
    assert {one["graph_id"] for one in sync.assistants.search(graph_id="echo")} == {"echo"}
    team = str(uuid4())
    thread = sync.threads.create(graph_id="echo", metadata={"team": team})["thread_id"]
    assert sync.runs.wait(thread, "echo", input={"words": ["x"]})["words"][-1] == "second"
    parts = list(sync.runs.stream(thread, "echo", input={"words": ["y"]}, stream_mode="updates"))
    assert [part.event for part in parts if part.event == "updates"] == ["updates", "updates"]
    assert [
        one["thread_id"] for one in sync.threads.search(values={"words": ["y"]}, metadata={"team": team})
    ] == [thread]
    assert sync.threads.get(thread, include=["ttl"])["ttl"]["strategy"] == "delete"
    sync.store.put_item(["sync"], key="k", value={"a": 1})
    assert sync.store.get_item(["sync"], key="k")["value"] == {"a": 1}
    cron = sync.crons.create("echo", schedule="0 0 1 1 *", input={})
    sync.crons.delete(cron["cron_id"])
    sync.threads.delete(thread)
