"""Clients of other protocols whose server is killed in the middle of an answer: the run goes on, and so do they."""

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import openai
import pytest
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_client, get_sync_client
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance import door_graphs
from tests.acceptance.sdk import SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.waiting import until

pytestmark = pytest.mark.anyio
QUICK = {"CLEW_RUNNER_LEASE_SECONDS": "1", "CLEW_RUNNER_POLL_SECONDS": "0.05"}
PART, WHOLE = "a slow ", "a slow answer"
LOST = r"(?i)connect|peer closed"


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with stage_on("sqlite", request, tmp_path, door_graphs, **QUICK) as stage:
        yield stage


@pytest.fixture
def thread() -> str:
    return str(uuid4())


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The graph `held` says the rest of its answer once this file exists."""
    return tmp_path / "go"


def said(text: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": str(text)}]}


def contents(values: Any) -> list[str]:
    """Of the messages, without the greeting that the graph puts behind the first."""
    return [one["content"] for one in values["messages"] if one["content"] != "hello"]


async def cut_off(texts: AsyncIterator[str], served: SdkServer) -> None:
    """Read until a part of the answer has come, kill the server, and read to the end, which is an error."""
    heard = ""
    async for text in texts:
        heard += text
        if heard.endswith(PART):
            kill(served)


async def allow(go: Path) -> None:
    await asyncio.to_thread(go.touch)


def kill(served: SdkServer) -> None:
    served.server.signal(signal.SIGKILL)
    served.server.wait()


@asynccontextmanager
async def sdk_of(served: SdkServer) -> AsyncGenerator[Any]:
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as client:
        yield client


async def until_said(client: Any, thread: str, *texts: object) -> None:
    """Until every run of the thread has ended well, and these are its messages."""

    async def is_over() -> bool:
        return {run["status"] for run in await client.runs.list(thread)} == {"success"}

    await until(is_over)
    state = await client.threads.get_state(thread)
    assert contents(state["values"]) == [str(text) for text in texts]


@asynccontextmanager
async def remote_graph(served: SdkServer) -> AsyncGenerator[Any]:
    with get_sync_client(url=served.server.address, api_key=served.keys["ann"]) as sync:
        async with sdk_of(served) as client:
            yield RemoteGraph("held", client=client, sync_client=sync)


async def test_a_remote_graph(stage: Stage, thread: str, go: Path) -> None:
    config: Any = {"configurable": {"thread_id": thread}}
    with stage.serving() as served:
        async with remote_graph(served) as graph:
            stream = graph.astream(said(go), config, stream_mode="messages")
            with pytest.raises(Exception, match=LOST):
                await cut_off((chunk["content"] async for chunk, _ in stream), served)
    with stage.serving() as served:
        async with remote_graph(served) as graph, sdk_of(served) as client:
            await allow(go)
            await until_said(client, thread, go, WHOLE)
            state = await graph.aget_state(config)
            assert (state.next, state.values["messages"][-1]["content"]) == ((), WHOLE)
            stream = graph.astream(said("again"), config, stream_mode="messages")
            assert "".join([chunk["content"] async for chunk, _ in stream]).endswith(WHOLE)
            await until_said(client, thread, go, WHOLE, "again", WHOLE)


def openai_client(served: SdkServer) -> openai.AsyncOpenAI:
    key = served.keys["ann"]
    return openai.AsyncOpenAI(base_url=f"{served.server.address}/v1", api_key=key, max_retries=0, timeout=60)


async def test_an_openai_client(stage: Stage, thread: str, go: Path) -> None:
    where = {"X-Clew-Thread": thread}
    with stage.serving() as served:
        async with openai_client(served) as client:
            given: Any = said(go)["messages"]
            stream = await client.chat.completions.create(
                model="held", messages=given, stream=True, extra_headers=where
            )
            with pytest.raises(Exception, match=LOST):
                await cut_off((chunk.choices[0].delta.content or "" async for chunk in stream), served)
    with stage.serving() as served:
        async with openai_client(served) as client, sdk_of(served) as sdk:
            await allow(go)
            await until_said(sdk, thread, go, WHOLE)
            given = said("again")["messages"]
            answer = await client.chat.completions.create(model="held", messages=given, extra_headers=where)
            assert answer.choices[0].message.content == WHOLE
            await until_said(sdk, thread, go, WHOLE, "again", WHOLE)


@asynccontextmanager
async def mcp_client(served: SdkServer) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {served.keys['ann']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{served.server.address}/mcp", http_client=http)
        async with Client(transport) as client:
            yield client


async def test_an_mcp_client(stage: Stage, thread: str, go: Path) -> None:
    with stage.serving() as served:
        async with sdk_of(served) as sdk:

            async def is_running() -> bool:
                found = await sdk.threads.search(ids=[thread])
                return [one["status"] for one in found] == ["busy"]

            async def call() -> None:
                async with mcp_client(served) as client:
                    await client.call_tool("held", {**said(go), "clew_thread": thread})

            calling = asyncio.create_task(call())
            await until(is_running)
            kill(served)
            (lost,) = await asyncio.gather(calling, return_exceptions=True)
            assert isinstance(lost, Exception)
    with stage.serving() as served:
        async with mcp_client(served) as client, sdk_of(served) as sdk:
            await allow(go)
            await until_said(sdk, thread, go, WHOLE)
            again: Any = await client.call_tool("held", {**said("again"), "clew_thread": thread})
            assert again.content[0].text == WHOLE
            await until_said(sdk, thread, go, WHOLE, "again", WHOLE)
