"""MCP as the `mcp` package's own client speaks it, to a real server."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import httpx2
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import NotFoundError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance import door_graphs
from tests.acceptance.sdk import SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.processes import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path_factory.mktemp("mcp"), door_graphs) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving(CLEW_LANGGRAPH_BUILT_IN_GRAPHS="false") as served:
        yield served


@asynccontextmanager
async def client_of(served: SdkServer, name: str = "ann", mode: str = "auto") -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {served.keys[name]}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{served.server.address}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_each_assistant_is_a_tool_with_its_schema(served: SdkServer, mode: str) -> None:
    async with client_of(served, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(door_graphs.NAMES) <= tools.keys()
    schema = tools["counter"].input_schema
    assert schema["properties"]["number"]["type"] == "integer"
    assert tools["talk"].input_schema["properties"]["messages"]["items"]["required"] == ["role", "content"]
    assert "$defs" not in tools["talk"].input_schema


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_is_a_run_with_progress(served: SdkServer, mode: str) -> None:
    heard: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None = None) -> None:
        heard.append((progress, message))

    async with client_of(served, mode=mode) as client:
        result = await client.call_tool("talk", said("hi"), progress_callback=note)
        counted = await client.call_tool("counter", {"number": 4})
    assert (text_of(result), result.is_error) == ("you said hi", False)
    assert heard == [(1.0, "speak")]
    assert counted.structured_content == {"number": 5}


async def test_an_assistant_of_a_client_is_a_tool_of_its_tenant_only(served: SdkServer) -> None:
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:
        made = await sdk.assistants.create("talk", name="My talker!", description="Talks.")
    name = f"My-talker--{made['assistant_id'][:8]}"
    async with client_of(served) as client:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == name]
        assert (tool.title, tool.description) == ("My talker!", "Talks.")
        assert text_of(await client.call_tool(name, said("hi"))) == "you said hi"
    async with client_of(served, "rival") as rival:
        assert name not in {tool.name for tool in (await rival.list_tools()).tools}
        assert (await rival.call_tool(name, said("hi"))).is_error


async def test_an_interrupt_is_reported_in_words_and_answered_by_another_call(
    stage: Stage, served: SdkServer
) -> None:
    async with client_of(served) as client:
        asked = await client.call_tool("mailer", said("mail"))
        thread = re.findall(r'clew_thread "([^"]+)"', text_of(asked))[0]
        assert "send_mail" in text_of(asked)
        async with client_of(SdkServer(served.server, {"ann": stage.writer()})) as writer:
            forbidden = await writer.call_tool("mailer", {"clew_thread": thread, "clew_answer": "yes"})
            assert forbidden.is_error
            assert "'approve'" in text_of(forbidden)
        unclear = await client.call_tool("mailer", {"clew_thread": thread, "clew_answer": "perhaps"})
        assert "send_mail" in text_of(unclear)
        done = await client.call_tool("mailer", {"clew_thread": thread, "clew_answer": "yes"})
        assert text_of(done) == "done: sent to ann"
        late = await client.call_tool("mailer", {"clew_thread": thread, "clew_answer": "yes"})
        assert late.is_error
    async with client_of(served, "bob") as bob:
        stolen = await bob.call_tool("mailer", {"clew_thread": thread, "clew_answer": "yes"})
        assert stolen.is_error


async def test_what_fails_is_an_error_of_the_tool(served: SdkServer) -> None:
    async with client_of(served) as client:
        failed = await client.call_tool("boom", said("hi"))
        unknown = await client.call_tool("nothing", {})
        nameless = await client.call_tool("talk", {"clew_thread": "x"})
    assert failed.is_error
    assert "it does not work" in text_of(failed)
    assert unknown.is_error
    assert "clew_thread" in text_of(nameless)


async def test_a_key_is_needed(served: SdkServer) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.post(f"{served.server.address}/mcp", json=call)
        got = await http.get(
            f"{served.server.address}/mcp", headers={"Authorization": f"Bearer {served.keys['ann']}"}
        )
    assert answer.status_code == 401
    assert got.status_code == 405


async def test_a_run_is_cancelled_when_its_client_is_gone(served: SdkServer) -> None:
    thread = str(uuid4())
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:

        async def statuses() -> list[str]:
            try:
                return [run["status"] for run in await sdk.runs.list(thread)]
            except NotFoundError:
                return []

        async def is_running() -> bool:
            return await statuses() == ["running"]

        async def is_cancelled() -> bool:
            return await statuses() == ["interrupted"]

        async with client_of(served) as client:
            calling = asyncio.create_task(client.call_tool("slow", {**said("hi"), "clew_thread": thread}))
            await until(is_running)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
        await until(is_cancelled)


async def test_the_code_of_the_guide_runs(served: SdkServer, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (ROOT / "docs" / "howto" / "mcp.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    code = code.replace("http://127.0.0.1:8124", served.server.address).replace(
        "clew_...", served.keys["ann"]
    )
    names: dict[str, Any] = {}
    exec(code.replace('"support"', '"talk"').replace("asyncio.run(main())", ""), names)
    await names["main"]()
    assert "you said My parcel is late" in capsys.readouterr().out
