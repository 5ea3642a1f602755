"""LangGraph's thread protocol: commands, events and the WebSocket, by its client and by hand."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langchain_core._api import suppress_langchain_beta_warning
from langgraph.checkpoint.memory import InMemorySaver
from websockets.asyncio.client import connect

from clew.api.sdk.protocol.messages import protocol_state
from tests.acceptance import stream_graphs
from tests.acceptance.sdk import Clients, SdkServer, clients_of
from tests.acceptance.sdk_protocol import command, until_over
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.acceptance.test_langgraph_streams import IDS, encoded
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

X = {"words": ["x"]}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path_factory.mktemp("protocol"), stream_graphs) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving() as served:
        yield served


@pytest.fixture
async def clients(served: SdkServer) -> AsyncIterator[Clients]:
    async with clients_of(served) as clients:
        yield clients


@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_the_client_streams_asks_and_resumes(
    clients: Clients, served: SdkServer, transport: str
) -> None:
    # The client sends the key of `get_client` by HTTP alone.
    asked: Any = {"transport": transport, "headers": {"X-API-Key": served.keys["ann"]}}
    async with (
        asyncio.timeout(60),
        clients.ann.threads.stream(assistant_id="polite", **asked) as thread,
    ):
        started = await thread.run.start(input=X)
        (run,) = await clients.ann.runs.list(thread.thread_id)
        assert started == {"run_id": run["run_id"]}

        async def is_asked() -> bool:
            return bool(thread.interrupted)

        await until(is_asked)
        (question,) = thread.interrupts
        assert question["namespace"][0].startswith("child:")
        await thread.run.respond("yes")
        assert (await thread.output)["words"][-1] == "answered yes"
    async with (
        asyncio.timeout(60),
        clients.ann.threads.stream(assistant_id="broken", **asked) as thread,
    ):
        await thread.run.start(input=X)
        with pytest.raises(RuntimeError, match="out of luck"):
            await thread.output
    async with (
        asyncio.timeout(60),
        clients.ann.threads.stream(assistant_id="talker", **asked) as thread,
    ):
        await thread.run.start(input=X)
        values = [value async for value in thread.values]
        assert values[-1]["words"] == ["x", "1 words"]
        assert values[-1]["messages"][-1]["content"][0]["text"] == "hello dear world"


@pytest.mark.parametrize("name", ["family", "handy"])
async def test_events_are_those_of_langgraph(http: httpx.AsyncClient, name: str) -> None:
    graph = getattr(stream_graphs, name)()
    graph.checkpointer = InMemorySaver()
    expected = []
    with suppress_langchain_beta_warning():
        stream = await graph.astream_events(X, {"configurable": {"thread_id": "t"}}, version="v3")
    async with stream:
        async for event in stream:
            method, data = event["method"], event["params"]["data"]
            if method == "messages" and isinstance(data[0], dict):
                expected.append((method, event["params"]["namespace"], data[0]))
            elif method == "values":
                expected.append((method, event["params"]["namespace"], data))
    thread = str(uuid4())
    await command(http, thread, "run.start", assistant_id=name, input=X)
    found = await until_over(http, thread, channels=["values", "messages", "lifecycle"])
    ours = [
        (event["method"], event["params"]["namespace"], event["params"]["data"])
        for event in found
        # Outputs of tools as messages are the server's own.
        if event["method"] != "lifecycle"
        and not str(event["params"]["namespace"][-1:]).startswith("['tools:")
    ]
    assert _bare(ours) == _bare([(method, ns, protocol_state(_json(data))) for method, ns, data in expected])


def _json(data: Any) -> Any:
    return json.loads(json.dumps(data, default=encoded))


def _bare(value: Any) -> Any:
    return json.loads(IDS.sub("ID", re.sub(r"lc_run--", "", json.dumps(value))))


async def test_every_reader_sees_the_same_and_goes_on_from_anywhere(http: httpx.AsyncClient) -> None:
    thread = str(uuid4())
    await command(http, thread, "run.start", assistant_id="family", input=X)
    live = await until_over(http, thread)
    assert {event["method"] for event in live} == {
        "lifecycle",
        "values",
        "updates",
        "messages",
        "tasks",
        "checkpoints",
        "custom",
    }
    assert all(before["seq"] < after["seq"] for before, after in pairwise(live))
    assert len({event["event_id"] for event in live}) == len(live)
    await command(http, thread, "run.start", assistant_id="talker", input=X)
    everything = await until_over(http, thread, runs=2)
    assert everything[: len(live)] == live
    for at in (0, 7, len(live) - 1, len(live), len(everything) - 3):
        left = 2 if at < len(live) - 1 else 1
        rest = await until_over(http, thread, runs=left, since=everything[at]["seq"])
        assert rest == everything[at + 1 :]
    child = next(event["params"]["namespace"] for event in live if event["params"]["namespace"])
    asked = {"channels": ["values"], "namespaces": [["child"]], "since": live[0]["seq"]}
    stream = until_over(http, thread, runs=2, **{**asked, "channels": ["values", "lifecycle"]})
    with pytest.raises(TimeoutError):  # the lifecycle of the graph itself is not in that namespace
        await asyncio.wait_for(stream, 2)
    tree = (await command(http, thread, "agent.getTree"))["result"]["tree"]
    assert (tree["status"], tree["graph_name"], child[0][:6]) == ("completed", "talker", "child:")


async def test_what_is_wrong_is_said_in_the_protocols_form(
    http: httpx.AsyncClient, served: SdkServer, clients: Clients
) -> None:
    thread = str((await clients.ann.threads.create())["thread_id"])
    malformed: list[Any] = [{"method": "run.start"}, {"id": 1, "method": "run.start", "params": []}]
    for body in malformed:
        odd = await http.post(f"/threads/{thread}/commands", json=body)
        assert (odd.status_code, odd.json()["error"]) == (400, "invalid_argument")
    for method, params, code in (
        ("songs.sing", {}, "unknown_command"),
        ("state.get", {}, "unknown_command"),
        ("agent.getTree", {}, "no_such_run"),
        ("run.start", {}, "invalid_argument"),
        ("run.start", {"assistant_id": "nope"}, "invalid_argument"),
        ("run.start", {"assistant_id": "talker", "songs": 1}, "not_supported"),
        ("input.respond", {"response": 1}, "invalid_argument"),
        ("input.respond", {"interrupt_id": "x", "response": 1}, "no_such_interrupt"),
    ):
        told = await command(http, thread, method, **params)
        assert (told["type"], told["id"], told["error"]) == ("error", 1, code), told
    odd_bodies: list[Any] = [{}, {"channels": ["songs"]}, {"channels": ["values"], "since": -1}, []]
    for body in odd_bodies:
        assert (await http.post(f"/threads/{thread}/stream/events", json=body)).status_code == 422
    await command(http, thread, "run.start", assistant_id="talker", input=X)
    await until_over(http, thread)
    gap, *rest = await until_over(http, thread, since=64)
    assert (gap["type"], gap["error"], gap["since"]) == ("error", "resume_gap", 64)
    assert rest[0]["seq"] == gap["min_available_seq"] - 64
    headers = {"X-API-Key": served.keys["rival"]}
    body = {"channels": ["values"]}
    stranger = await http.post(f"/threads/{thread}/stream/events", json=body, headers=headers)
    assert stranger.status_code == 404
    reading = {"X-API-Key": served.keys["reader"]}
    asks = {"id": 1, "method": "run.start", "params": {"assistant_id": "talker", "input": X}}
    told = (await http.post(f"/threads/{thread}/commands", json=asks, headers=reading)).json()
    assert told["error"] == "permission_denied"


async def test_answers_need_their_scope(stage: Stage, served: SdkServer, http: httpx.AsyncClient) -> None:
    thread = str(uuid4())
    await command(http, thread, "run.start", assistant_id="polite", input=X)
    requested = [one for one in await until_over(http, thread) if one["method"] == "input.requested"]
    answer = {"interrupt_id": requested[-1]["params"]["data"]["interrupt_id"], "response": "yes"}
    writer = {"X-API-Key": stage.writer()}
    responds = {"id": 1, "method": "input.respond", "params": answer}
    starts = {"id": 2, "method": "run.start", "params": {"assistant_id": "polite", "input": "yes"}}
    address = served.server.address.replace("http", "ws", 1)
    async with connect(f"{address}/threads/{thread}/stream/events", additional_headers=writer) as socket:
        for message in (responds, starts):
            by_http = await http.post(f"/threads/{thread}/commands", json=message, headers=writer)
            await socket.send(json.dumps(message))
            by_socket = json.loads(await asyncio.wait_for(socket.recv(), 20))
            assert [by_http.json()["error"], by_socket["error"]] == ["permission_denied"] * 2
    run = {"assistant_id": "polite", "command": {"resume": "yes"}}
    assert (await http.post(f"/threads/{thread}/runs", json=run, headers=writer)).status_code == 403
    assert (await command(http, thread, "input.respond", **answer))["type"] == "success"


async def test_one_socket_subscribes_commands_and_unsubscribes(served: SdkServer) -> None:
    """As the client for JavaScript does: first the subscription, then the run that creates the thread."""
    address = served.server.address.replace("http", "ws", 1)
    thread = str(uuid4())
    headers = {"X-API-Key": served.keys["ann"]}
    async with (
        asyncio.timeout(60),
        connect(f"{address}/threads/{thread}/stream/events", additional_headers=headers) as socket,
    ):
        told: list[Any] = []

        async def ask(number: int, method: str, **params: Any) -> Any:
            await socket.send(json.dumps({"id": number, "method": method, "params": params}))
            while True:
                told.append(json.loads(await socket.recv()))
                if told[-1].get("id") == number:
                    return told.pop()

        first = await ask(1, "subscription.subscribe", channels=["values", "lifecycle"])
        assert first["result"]["replayed_events"] == 0
        await ask(2, "subscription.subscribe", channels=["lifecycle"])
        assert "run_id" in (await ask(3, "run.start", assistant_id="talker", input=X))["result"]
        while not any(one["params"]["data"].get("event") == "completed" for one in told if "params" in one):
            told.append(json.loads(await socket.recv()))
        seqs = [one["seq"] for one in told]
        assert len(seqs) == len({*seqs})  # once, though two subscriptions admit it
        later = [one for one in told[2:] if one["method"] == "values"]
        again = await ask(4, "subscription.reconnect", channels=["values"], since=told[1]["seq"])
        assert (again["result"]["replayed_events"], told[len(seqs) :]) == (len(later), later)
        gone = await ask(5, "subscription.unsubscribe", subscription_id=first["result"]["subscription_id"])
        assert gone["type"] == "success"
        for number, (method, code) in enumerate(
            [
                ("subscription.unsubscribe", "no_such_subscription"),
                ("subscription.subscribe", "invalid_argument"),
                ("songs.sing", "unknown_command"),
            ],
            start=6,
        ):
            assert (await ask(number, method))["error"] == code
        await socket.send("{")
        assert json.loads(await socket.recv())["error"] == "invalid_argument"
