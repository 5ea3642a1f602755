"""AG-UI on the wire, of a real server: every event is checked by the protocol's own types."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from ag_ui.core import Event
from langgraph_sdk import get_client
from pydantic import TypeAdapter

from tests.acceptance import door_graphs
from tests.acceptance.sdk import SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.serving import sse

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
PAINT = {"name": "paint", "description": "Paint a line.", "parameters": {"type": "object"}}
QUICK = {"CLEW_RUNNER_LEASE_SECONDS": "1", "CLEW_RUNNER_POLL_SECONDS": "0.05"}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path_factory.mktemp("agui"), door_graphs, **QUICK) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving() as served:
        yield served


class Conversation:
    """One thread as an AG-UI client keeps it: its messages and its state, which the server's snapshots replace."""

    def __init__(
        self, served: SdkServer, graph: str, *, key: str = "ann", thread: str = "", **fields: Any
    ) -> None:
        self.thread = thread or str(uuid4())
        self.graph = graph
        self.fields: dict[str, Any] = {"protocolVersion": "1.0", **fields}
        self.messages: list[Any] = []
        self.state: Any = {}
        self.headers: httpx.Headers = httpx.Headers()
        self._at = f"{served.server.address}/agui/{graph}"
        self._key = {"X-Api-Key": served.keys.get(key, key)}

    def body(self, **fields: Any) -> dict[str, Any]:
        ours = {
            "threadId": self.thread,
            "runId": str(uuid4()),
            "messages": self.messages,
            "state": self.state,
        }
        return {name: one for name, one in {**ours, **self.fields, **fields}.items() if one is not None}

    @asynccontextmanager
    async def events(self, **fields: Any) -> AsyncGenerator[AsyncIterator[Any]]:
        async with (
            httpx.AsyncClient(timeout=60, verify=False, headers=self._key) as http,
            http.stream("POST", self._at, json=self.body(**fields)) as answer,
        ):
            assert answer.status_code == 200, await answer.aread()
            self.headers = answer.headers
            yield self._heard(answer)

    async def _heard(self, answer: httpx.Response) -> AsyncIterator[Any]:
        async for event in sse(answer):
            EVENT.validate_python(event.data)
            match event.data:
                case {"type": "MESSAGES_SNAPSHOT", "messages": messages}:
                    self.messages = messages
                case {"type": "STATE_SNAPSHOT", "snapshot": state}:
                    self.state = state
                case _:
                    pass
            yield event.data

    async def run(self, **fields: Any) -> list[Any]:
        async with self.events(**fields) as events:
            return [event async for event in events]

    async def say(self, text: str, **fields: Any) -> list[Any]:
        self.messages = [*self.messages, {"id": str(uuid4()), "role": "user", "content": text}]
        return await self.run(**fields)

    async def refused(self, **fields: Any) -> tuple[int, Any]:
        async with httpx.AsyncClient(timeout=60, verify=False, headers=self._key) as http:
            answer = await http.post(self._at, json=self.body(**fields))
            return answer.status_code, answer.json()["error"]

    @property
    def last(self) -> str:
        return str(self.messages[-1]["content"])


def kinds(events: list[Any]) -> list[str]:
    """The types, each run of the same one once."""
    found: list[str] = []
    for event in events:
        if found[-1:] != [event["type"]]:
            found.append(event["type"])
    return found


def of(events: list[Any], kind: str, name: str) -> list[Any]:
    return [event[name] for event in events if event["type"] == kind]


END = ["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
TEXT = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
CALL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


async def test_a_run_is_steps_text_state_and_messages(served: SdkServer) -> None:
    chat = Conversation(served, "talk")
    events = await chat.say("hi")
    begin = ["RUN_STARTED", "STATE_SNAPSHOT", "STEP_STARTED"]
    assert kinds(events) == [*begin, *TEXT, "STEP_FINISHED", *END]
    assert "".join(of(events, "TEXT_MESSAGE_CONTENT", "delta")) == "you said hi"
    assert len(of(events, "TEXT_MESSAGE_CONTENT", "delta")) > 5
    assert [one["role"] for one in chat.messages] == ["user", "assistant"]
    assert of(events, "TEXT_MESSAGE_START", "messageId") == [chat.messages[-1]["id"]]
    assert events[0]["protocolVersion"] == "1.0"
    assert events[-1]["outcome"] == {"type": "success"}
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:
        state: Any = await sdk.threads.get_state(chat.headers["X-Clew-Thread"])
        assert [one["id"] for one in state["values"]["messages"]] == [one["id"] for one in chat.messages]
        _, _, thread, _, run = chat.headers["Content-Location"].split("/")
        assert (await sdk.runs.get(thread, run))["status"] == "success"
    await chat.say("ho")
    assert [one["content"] for one in chat.messages] == ["hi", "you said hi", "ho", "you said ho"]


async def test_reasoning_and_tool_calls_of_a_model_in_a_subgraph(served: SdkServer) -> None:
    chat = Conversation(served, "thinker")
    events = await chat.say("hi")
    thought = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"]
    thought += ["REASONING_MESSAGE_END", "REASONING_END"]
    said = [*TEXT[:2], *CALL[:2], TEXT[2], CALL[2]]
    assert kinds(events)[3:] == [*thought, *said, "STEP_FINISHED", *END]
    assert "".join(of(events, "REASONING_MESSAGE_CONTENT", "delta")) == "let me think"
    assert "".join(of(events, "TOOL_CALL_ARGS", "delta")) == '{"a":1}'
    assert [one["role"] for one in chat.messages] == ["user", "reasoning", "assistant"]
    assert chat.messages[1]["id"] == of(events, "REASONING_START", "messageId")[0]
    assert chat.messages[2]["toolCalls"][0]["function"] == {"name": "paint", "arguments": '{"a":1}'}
    used = {"provider": "scripted", "inputTokens": 5, "outputTokens": 2, "totalTokens": 7}
    assert events[-1]["usage"] == [used]


async def test_tools_and_state_of_the_client(served: SdkServer) -> None:
    chat = Conversation(served, "painter", tools=[PAINT])
    chat.state = {"color": "blue", "unknown to the graph": 1}
    events = await chat.say("paint")
    (call,) = of(events, "TOOL_CALL_START", "toolCallId")
    assert json.loads("".join(of(events, "TOOL_CALL_ARGS", "delta"))) == {"color": "blue"}
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [call]}
    customs = [(one["name"], one["value"]) for one in events if one["type"] == "CUSTOM"]
    assert customs == [("progress", 50), ("custom", "half")]
    assert {"op": "replace", "path": "/color", "value": "red"} in of(events, "STATE_DELTA", "delta")[0]
    assert chat.state == {"color": "red", "strokes": ["line"]}
    chat.messages.append(
        {"id": "r", "role": "tool", "toolCallId": call, "content": "a line", "error": "torn"}
    )
    events = await chat.run()
    assert chat.last == "painted a line (error)"
    assert events[-1]["outcome"] == {"type": "success"}
    # The reducer would have added the strokes that came back a second time.
    assert chat.state == {"color": "red", "strokes": ["line"]}


async def test_what_the_client_forwards_reaches_a_node(served: SdkServer) -> None:
    chat = Conversation(served, "painter")
    await chat.say("hi", forwardedProps={"theme": "dark", "config": {"configurable": {"a": 1}}})
    assert chat.last == "no tools; {'theme': 'dark', 'config': {'configurable': {'a': 1}}}"


async def test_a_tool_that_the_graph_leaves_to_its_client(served: SdkServer) -> None:
    chat = Conversation(served, "locator")
    events = await chat.say("where am I?")
    (call,) = events[-1]["outcome"]["pendingToolCallIds"]
    chat.messages.append({"id": "r", "role": "tool", "toolCallId": call, "content": "the Colosseum"})
    events = await chat.run()
    assert of(events, "TOOL_CALL_RESULT", "content") == ["the Colosseum"]
    assert chat.last == "you are at the Colosseum"


async def test_interrupts_and_resume(served: SdkServer) -> None:
    chat = Conversation(served, "panel")
    outcome = (await chat.say("hi"))[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    assert {one["message"] for one in outcome["interrupts"]} == {"left?", "right?"}
    assert {one["reason"] for one in outcome["interrupts"]} == {"langgraph:interrupt"}
    # A message does not answer it: the thread asks again, and no run is started.
    assert (await chat.say("what?"))[-1]["outcome"] == outcome
    resume = [
        {"interruptId": one["id"], "status": "resolved", "payload": one["message"][:1]}
        for one in outcome["interrupts"]
    ]
    events = await chat.run(resume=resume)
    assert events[-1]["outcome"] == {"type": "success"}
    assert {one["content"] for one in chat.messages} == {"hi", "left l", "right r"}
    assert (await chat.refused(resume=resume))[0] == 409


@pytest.mark.parametrize("answer", ["ann", '{"name": "ann"}'])
async def test_interrupts_of_clients_before_1_0(served: SdkServer, answer: str) -> None:
    chat = Conversation(served, "asker", protocolVersion=None)
    events = await chat.say("hi")
    assert "outcome" not in events[-1]
    assert [(one["name"], json.loads(one["value"])) for one in events if one["type"] == "CUSTOM"] == [
        ("on_interrupt", {"question": "Who are you?"})
    ]
    await chat.run(forwardedProps={"command": {"resume": answer}})
    assert chat.last == ("you are ann" if answer == "ann" else "you are {'name': 'ann'}")


async def test_approvals_need_their_scope(stage: Stage, served: SdkServer) -> None:
    chat = Conversation(served, "mailer", key=stage.writer())
    (asked,) = (await chat.say("mail"))[-1]["outcome"]["interrupts"]
    assert asked["toolCallId"] == asked["id"] == "call-1"
    assert asked["responseSchema"]["required"] == ["approved"]
    entry = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
    assert (await chat.refused(resume=[entry]))[0] == 403
    ann = Conversation(served, "mailer", thread=chat.thread)
    await ann.run(resume=[{"interruptId": asked["id"], "status": "cancelled"}])
    assert ann.last.startswith("done: ")
    assert "sent" not in ann.last


async def test_a_failed_run_ends_with_an_error(served: SdkServer) -> None:
    events = await Conversation(served, "boom").say("hi")
    assert events[-1] == {"type": "RUN_ERROR", "message": "it does not work", "code": "ValueError"}


async def test_a_client_connects_to_a_thread_at_rest(served: SdkServer) -> None:
    chat = Conversation(served, "panel", thread="a thread of my own")
    await chat.say("hi")
    reloaded = Conversation(served, "panel", thread=chat.thread)
    events = await reloaded.run()
    assert kinds(events) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "CUSTOM", "RUN_FINISHED"]
    assert reloaded.messages == chat.messages
    assert len(events[-1]["outcome"]["interrupts"]) == 2
    for key in ("bob", "rival"):
        stranger = Conversation(served, "panel", key=key, thread=chat.thread)
        assert kinds(await stranger.run()) == ["RUN_STARTED", "STATE_SNAPSHOT", "RUN_FINISHED"]
        assert stranger.messages == []


async def until_said(events: AsyncIterator[Any], text: str) -> list[Any]:
    told: list[Any] = []
    async for event in events:
        told.append(event)
        if "".join(of(told, "TEXT_MESSAGE_CONTENT", "delta")).endswith(text):
            return told
    raise AssertionError(told)


async def test_a_run_goes_on_without_its_client_which_connects_again(
    served: SdkServer, tmp_path: Path
) -> None:
    chat = Conversation(served, "held")
    chat.messages = [{"id": "m", "role": "user", "content": str(tmp_path / "go")}]
    first = chat.body()
    async with chat.events(**first) as events:
        told = await until_said(events, "a slow ")
    # The same request again, and a page that was loaded again.
    for again in (chat, Conversation(served, "held", thread=chat.thread)):
        fields = first if again is chat else {}
        async with again.events(**fields) as events:
            told = await until_said(events, "a slow ")
            begun = ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "STEP_STARTED", *TEXT[:2]]
            assert kinds(told) == begun
            assert of(told, "STEP_STARTED", "stepName") == ["hold"]
            assert [one["content"] for one in again.messages[1:]] == ["hello"]
            if again is not chat:
                (tmp_path / "go").touch()
                told += [event async for event in events]
                assert again.last == "a slow answer"
    assert (await chat.run(**first))[-1]["outcome"] == {"type": "success"}
    assert [one["content"] for one in chat.messages[1:]] == ["hello", "a slow answer"]


async def test_a_cancelled_run_says_so(served: SdkServer, tmp_path: Path) -> None:
    chat = Conversation(served, "held")
    chat.messages = [{"id": "m", "role": "user", "content": str(tmp_path / "go")}]
    async with chat.events() as events:
        await until_said(events, "a slow ")
        _, _, thread, _, run = chat.headers["Content-Location"].split("/")
        async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:
            await sdk.runs.cancel(thread, run)
        told = [event async for event in events]
    assert told[-1]["outcome"] == {"type": "cancelled"}


async def test_a_client_chooses_that_its_run_ends_when_it_disconnects(
    served: SdkServer, tmp_path: Path
) -> None:
    chat = Conversation(served, "held?on_disconnect=cancel")
    chat.messages = [{"id": "m", "role": "user", "content": str(tmp_path / "go")}]
    async with chat.events() as events:
        await until_said(events, "a slow ")
    _, _, thread, _, run = chat.headers["Content-Location"].split("/")
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:
        await sdk.runs.join(thread, run)
        assert (await sdk.runs.get(thread, run))["status"] == "interrupted"
    # What the run had written stays, and the conversation goes on.
    (tmp_path / "go").touch()
    await chat.say("again")
    assert [one["content"] for one in chat.messages[1:]] == ["hello", "again", "a slow answer"]
    assert (await Conversation(served, "held?on_disconnect=pause").refused())[0] == 400


async def test_a_run_survives_the_kill_of_its_server(stage: Stage, tmp_path: Path) -> None:
    with stage.serving() as served:
        chat = Conversation(served, "held")
        chat.messages = [{"id": "m", "role": "user", "content": str(tmp_path / "go")}]
        async with chat.events() as events:
            await until_said(events, "a slow ")
            served.server.signal(signal.SIGKILL)
            served.server.wait()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(events)
    with stage.serving() as served:
        again = Conversation(served, "held", thread=chat.thread)
        async with asyncio.timeout(30), again.events() as events:
            told = await until_said(events, "a slow ")
            (tmp_path / "go").touch()
            told += [event async for event in events]
        assert told[-1]["outcome"] == {"type": "success"}
        assert [one["content"] for one in again.messages[1:]] == ["hello", "a slow answer"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"messages": [{"role": "x"}]}, "messages.0"),
        ({"threadId": " "}, "threadId"),
        ({"runId": "r" * 300}, "runId"),
        ({"state": [1]}, "state"),
        ({"forwardedProps": {"command": {"goto": "x"}}}, "forwardedProps.command"),
        ({"forwardedProps": {"config": 1}}, "forwardedProps.config"),
        ({"messages": None}, "messages"),
    ],
)
async def test_bad_input_is_named(served: SdkServer, fields: dict[str, Any], field: str) -> None:
    status, error = await Conversation(served, "talk").refused(**fields)
    assert (status, error["field"]) == (400, field)


async def test_refusals(served: SdkServer) -> None:
    assert (await Conversation(served, "nothing").refused())[0] == 404
    assert (await Conversation(served, "talk", key="wrong").refused())[0] == 401
    resume = [{"interruptId": "x", "status": "resolved"}]
    assert (await Conversation(served, "talk").refused(resume=resume))[0] == 409
