"""`RemoteGraph`: a graph of this server used as if it were local, alone and as a node; and the synchronous client."""

import operator
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.pregel.remote import RemoteException, RemoteGraph
from langgraph.types import Command
from langgraph_sdk import get_sync_client

from tests.acceptance import run_graphs
from tests.acceptance.sdk import SdkServer, sdk_serving_on

pytestmark = [
    pytest.mark.anyio,
    # RemoteGraph makes clients of its own, and never closes them.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    folder = tmp_path_factory.mktemp("remote")
    with sdk_serving_on(request.param, request, folder, run_graphs) as served:
        yield served


def remote(served: SdkServer, name: str) -> Any:
    return RemoteGraph(name, url=served.server.address, api_key=served.keys["ann"])


def in_thread() -> Any:
    return {"configurable": {"thread_id": str(uuid4())}}


async def test_a_remote_graph_is_run_and_read_as_a_local_one(served: SdkServer) -> None:
    echo = remote(served, "echo")
    assert (await echo.ainvoke({"words": ["x"]}))["words"] == ["x", "first", "second"]
    config = in_thread()
    await _create(served, config)
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


async def test_what_inner_graphs_stream_comes_with_their_names(served: SdkServer) -> None:
    nested = remote(served, "nested")
    parts = [part async for part in nested.astream({"words": ["x"]}, stream_mode="updates", subgraphs=True)]
    inner = [data for namespace, data in parts if namespace and namespace[0].startswith("inner:")]
    assert [*inner[0]] == ["first"]
    assert [data for namespace, data in parts if not namespace] == [parts[-1][1]]
    assert set((await nested.aget_graph(xray=True)).nodes) > {"inner:first"}


class Words(TypedDict):
    words: Annotated[list[str], operator.add]


async def test_a_remote_graph_is_a_node_that_asks_and_is_answered(served: SdkServer) -> None:
    graph = StateGraph(Words)
    graph.add_node("far", remote(served, "echo"))
    graph.add_edge(START, "far")
    local = graph.compile(checkpointer=InMemorySaver())
    values = await local.ainvoke({"words": ["x"]}, in_thread())
    assert values["words"][-3:] == ["x", "first", "second"]
    asker = remote(served, "asker")
    config = in_thread()
    await _create(served, config)
    asked = await asker.ainvoke({"words": ["x"]}, config)
    assert asked["__interrupt__"]
    answered = await asker.ainvoke(Command(resume="yes"), config)
    assert answered["words"][-1] == "answered yes"
    with pytest.raises(RemoteException):
        await remote(served, "boom").ainvoke({"words": ["x"]})


async def _create(served: SdkServer, config: Any) -> None:
    client = get_sync_client(url=served.server.address, api_key=served.keys["ann"])
    client.threads.create(thread_id=config["configurable"]["thread_id"])


def test_the_synchronous_client_does_the_same(served: SdkServer) -> None:
    client: Any = get_sync_client(url=served.server.address, api_key=served.keys["ann"])
    assert {one["graph_id"] for one in client.assistants.search(graph_id="echo")} == {"echo"}
    team = str(uuid4())
    thread = client.threads.create(graph_id="echo", metadata={"team": team})["thread_id"]
    assert client.runs.wait(thread, "echo", input={"words": ["x"]})["words"][-1] == "second"
    parts = list(client.runs.stream(thread, "echo", input={"words": ["y"]}, stream_mode="updates"))
    assert [part.event for part in parts if part.event == "updates"] == ["updates", "updates"]
    assert [
        one["thread_id"] for one in client.threads.search(values={"words": ["y"]}, metadata={"team": team})
    ] == [thread]
    assert client.threads.get(thread, include=["ttl"])["ttl"]["strategy"] == "delete"
    client.store.put_item(["sync"], key="k", value={"a": 1})
    assert client.store.get_item(["sync"], key="k")["value"] == {"a": 1}
    cron = client.crons.create("echo", schedule="0 0 1 1 *", input={})
    client.crons.delete(cron["cron_id"])
    client.threads.delete(thread)
