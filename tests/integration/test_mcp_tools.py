"""Tools of MCP servers over stdio and HTTP: called, allowed, approved, and killed in the middle of a call."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import load_settings
from clew.domain.errors import ConfigError, InvalidState
from clew.domain.events import ToolResult
from clew.domain.thread import Owner, Status, Thread
from clew.graph.tools import LedgerTool
from clew.server.mcp_servers import ask_mcp_servers, mcp_specs
from clew.toolsets.mcp_tools import McpServers, open_mcp_servers
from tests.chats import ChatHouse, open_chat, plan_of, step
from tests.mcp_servers import Weather, chat_yaml, mcp_yaml, model_that_mails, weather_over_http
from tests.openai_server import CallTool, Move, Say, openai_server, prompt_of
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stdio", "http"])
def weather(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Weather, dict[str, Any]]]:
    """The server, and its entry in the settings."""
    if request.param == "stdio":
        there = Weather(tmp_path)
        yield there, there.stdio()
        return
    with weather_over_http(tmp_path) as there:
        yield there, there.http()


@asynccontextmanager
async def tools_of(
    folder: Path, **servers: dict[str, Any]
) -> AsyncGenerator[tuple[McpServers, dict[str, LedgerTool]]]:
    (folder / "clew.yaml").write_text(mcp_yaml(**servers))
    settings = load_settings({}, cwd=folder)
    async with open_mcp_servers(mcp_specs(settings)) as opened:
        yield opened, {tool.name: tool for tool in await opened.tools()}


async def test_a_tool_is_offered_and_called(tmp_path: Path, weather: tuple[Weather, dict[str, Any]]) -> None:
    there, entry = weather
    async with tools_of(tmp_path, weather=entry) as (_, tools):
        assert sorted(tools) == [
            f"weather__{name}" for name in ("fail", "get_forecast", "send_mail", "variables")
        ]
        forecast = tools["weather__get_forecast"]
        assert forecast.description == "The weather of a city."
        assert (forecast.idempotent, tools["weather__send_mail"].idempotent) == (True, False)
        assert await forecast.ainvoke({"city": "Ulm", "days": 2}) == "Ulm: 17 degrees for 2 days"
        assert "the station is closed" in await tools["weather__fail"].ainvoke({})
    assert there.calls == ["forecast Ulm"]


async def test_a_program_is_given_few_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    there = Weather(tmp_path)
    async with tools_of(tmp_path, weather=there.stdio()) as (_, tools):
        names = set((await tools["weather__variables"].ainvoke({})).split())
    assert {"CALLS", "HOLD", "PATH"} <= names
    assert names <= {"CALLS", "HOLD", "PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LC_CTYPE"}


async def test_a_server_killed_in_a_call_may_have_had_its_effect(
    tmp_path: Path, weather: tuple[Weather, dict[str, Any]]
) -> None:
    there, entry = weather
    async with tools_of(tmp_path, weather=entry) as (_, tools):
        there.hold()
        calling = asyncio.create_task(tools["weather__send_mail"].ainvoke({"to": "ann"}))
        await until(lambda: there.calls == ["mail ann"])
        there.kill()
        said = await calling
        assert "its effect may have happened" in said
        there.release()
        if there.process is not None:
            there.process.wait()
            there.start()
        assert await tools["weather__send_mail"].ainvoke({"to": "bob"}) == "sent to bob"
    assert there.calls == ["mail ann", "mail bob"], "not repeated"


async def test_a_call_that_only_reads_is_made_again(tmp_path: Path) -> None:
    there = Weather(tmp_path)
    async with tools_of(tmp_path, weather=there.stdio()) as (_, tools):
        there.hold()
        calling = asyncio.create_task(tools["weather__get_forecast"].ainvoke({"city": "Ulm"}))
        await until(lambda: there.calls == ["forecast Ulm"])
        there.release()
        there.hold()
        there.kill()
        there.release()
        assert await calling == "Ulm: 17 degrees for 1 days"
    assert there.calls == ["forecast Ulm", "forecast Ulm"]


async def test_a_call_takes_no_longer_than_the_settings_say(tmp_path: Path) -> None:
    there = Weather(tmp_path)
    async with tools_of(tmp_path, weather=there.stdio(timeout=1)) as (_, tools):
        there.hold()
        said = await tools["weather__send_mail"].ainvoke({"to": "ann"})
        there.release()
    assert "no answer within 1 s; its effect may have happened" in said


async def test_only_the_named_tools_exist_and_some_need_an_approval(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = Weather(tmp_path)
    entry = there.stdio(tools=["get_forecast", "send_mail"], approval=["send_mail", "send_male"])
    async with tools_of(tmp_path, weather=entry) as (_, tools):
        approvals = {name: tool.terms.approval for name, tool in tools.items()}
    assert approvals == {"weather__get_forecast": False, "weather__send_mail": True}
    (told,) = [record for record in caplog.records if record.message == "MCP server has no such tool"]
    assert told.tool == "send_male"  # type: ignore[attr-defined]


async def test_a_server_that_is_not_there_has_no_tools_and_stops_no_other(tmp_path: Path) -> None:
    there = Weather(tmp_path)
    gone = {"command": ["/no/such/program"]}
    nobody = {"url": "http://127.0.0.1:9/mcp"}
    async with tools_of(tmp_path, weather=there.stdio(), gone=gone, empty=nobody) as (opened, tools):
        assert len(tools) == 4
        with pytest.raises(ConfigError, match="no MCP server 'wether'; there are weather, gone, empty"):
            await opened.tools("wether")
        assert len(await clew.mcp_tools("weather")) == 4
    with pytest.raises(InvalidState):
        await clew.mcp_tools()
    checks = {one.server: one for one in await ask_mcp_servers(load_settings({}, cwd=tmp_path))}
    assert checks["weather"].ok
    assert "weather__get_forecast" in checks["weather"].detail
    assert not checks["gone"].ok
    assert "cannot be reached" in checks["empty"].detail


async def asks(chat: ChatHouse, prompt: str) -> Thread:
    thread = await chat.start(prompt)
    return await chat.house.rest(thread, seconds=60)


async def test_a_chat_uses_tools_and_asks_before_it_mails(tmp_path: Path) -> None:
    there = Weather(tmp_path)
    async with openai_server(model_that_mails) as model:
        more = chat_yaml(model.url, weather=there.stdio(approval=["send_mail"]))
        async with open_chat("memory", tmp_path, more=more) as chat:
            thread = await asks(chat, "Mail Ann the weather in Ulm")
            (pending,) = thread.pending.values()
            prompt: Any = pending.prompt
            assert there.calls == ["forecast Ulm"]
            assert (prompt["server"], prompt["tool"], prompt["args"]) == (
                "weather",
                "weather__send_mail",
                {"to": "ann"},
            )
            await chat.house.app.execution.commands.approve(thread.id, Owner(), approved=True)
            thread = await chat.house.rest(thread, seconds=60)
            said, results = await chat.messages(thread), await chat.house.bodies(thread, ToolResult)
    assert thread.status is Status.COMPLETED
    assert there.calls == ["forecast Ulm", "mail ann"]
    assert [result.result for result in results] == ["Ulm: 17 degrees for 1 days", "sent to ann"]
    assert [str(one.content) for one in said] == [
        "On it.",
        "The mail says: sent to ann",
        "Ann has a mail: 17 degrees in Ulm.",
    ]
    assert len(model.requests) == 5, "the plan, three turns, the last words: none of them twice"
    offered = {one["function"]["name"] for one in model.requests[1]["tools"]}
    assert {"calculator", "search_documents", "weather__send_mail"} <= offered


async def test_the_agent_with_tools_reads_the_documents_of_the_chat(tmp_path: Path) -> None:
    def turn(body: dict[str, Any]) -> Move:
        asked = prompt_of(body)
        if "project manager" in asked:
            return Say(plan_of(step("toolUser", "What is the budget, doubled?", "answer.md", inputs=[])))
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if not results:
            return CallTool("search_documents", {"query": "budget"})
        if len(results) == 1:
            return CallTool("calculator", {"expression": "2 * 21"}, id="call_2")
        return Say("; ".join(results))

    async with (
        openai_server(turn) as model,
        open_chat("memory", tmp_path, more=chat_yaml(model.url)) as chat,
    ):
        thread = await chat.run(
            "Double the budget", notes__txt=b"The weather is fine. The budget is 21 euros."
        )
        made = await chat.documents(thread)
    answer = made["answer.md"][1].decode()
    assert answer.startswith("(notes.txt")
    assert answer.endswith("The weather is fine. The budget is 21 euros.; 42\n")


async def test_the_agent_with_tools_queries_the_tables_of_the_chat(tmp_path: Path) -> None:
    queries = [
        'SELECT sum("price") AS "total" FROM "b.csv"',
        'SELECT "colour" FROM "b.csv"',
        "SELECT * FROM read_csv('/etc/passwd')",
        'DROP TABLE "b.csv"',
    ]

    def turn(body: dict[str, Any]) -> Move:
        if "project manager" in prompt_of(body):
            return Say(plan_of(step("toolUser", "Add up the prices", inputs=[])))
        asked = sum(message["role"] == "tool" for message in body["messages"])
        if asked < len(queries):
            return CallTool("query_tables", {"sql": queries[asked]}, id=f"call_{asked}")
        return Say("That is all.")

    async with (
        openai_server(turn) as model,
        open_chat("memory", tmp_path, more=chat_yaml(model.url)) as chat,
    ):
        thread = await chat.run("Add up", a__csv=b"x,y\n1,2\n", b__csv=b"name,price\nlamp,20\ndesk,22.5\n")
        total, *refused = await chat.house.bodies(thread, ToolResult)
    assert total.ok
    assert "42.5" in total.result
    assert "b.csv" in total.result
    assert [one.ok for one in refused] == [False] * 3
    assert "colour" in refused[0].error
    assert "root:" not in str(refused)
    assert "expected one SELECT" in refused[2].error


async def test_an_agent_that_only_calls_tools_is_ended(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Move:
        if "project manager" in prompt_of(body):
            return Say(plan_of(step("toolUser", "Loop", inputs=[])))
        return CallTool("calculator", {"expression": "1 / 0"})

    async with (
        openai_server(answer) as model,
        open_chat("memory", tmp_path, more=chat_yaml(model.url)) as chat,
    ):
        thread = await chat.run("Loop")
        results = await chat.house.bodies(thread, ToolResult)
    assert thread.status is Status.FAILED
    assert "no answer after 12 turns with tools" in (thread.failure_reason or "")
    assert {result.error for result in results} == {"division by zero"}
