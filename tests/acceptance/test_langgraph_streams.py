"""Streams of LangGraph's own client beside those of LangGraph itself, and streams of whole threads."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt
from langgraph_sdk.errors import NotFoundError, UnprocessableEntityError

from tests.acceptance import stream_graphs
from tests.acceptance.sdk import Clients
from tests.acceptance.sdk_runs import heard

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

MODES = ["values", "updates", "messages-tuple", "custom", "tasks", "checkpoints", "debug", "events"]
X = {"words": ["x"]}
# What a server adds to the config and the metadata of a run, and to checkpoints.
ADDED = {"assistant_id", "graph_id", "run_id", "created_by", "run_attempt", "checkpoint", "parent_checkpoint"}
# Different in every process.
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")
TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)")


SDK_GRAPHS = stream_graphs


def encoded(value: Any) -> Any:
    match value:
        case BaseMessage():
            return value.model_dump()
        case Interrupt():
            return asdict(value)
        case Command():
            return {"graph": None, "update": None, "resume": value.resume, "goto": []}
        case BaseException():
            return {"error": type(value).__name__, "message": str(value)}
        case _:
            raise TypeError(type(value).__name__)


def bared(value: Any) -> Any:
    """Without ids, times, and what a server adds."""
    match value:
        case dict():
            if value.get("type") == "tool":
                # LangGraph gives a tool's message its id while the event that shows it is sent.
                value = {**value, "id": "ID"}
            kept = {IDS.sub("ID", name): bared(each) for name, each in value.items() if name not in ADDED}
            return {name: each for name, each in kept.items() if (name, each) != ("metadata", {})}
        case list():
            return [bared(each) for each in value]
        case str():
            return TIMES.sub("TIME", IDS.sub("ID", value))
        case _:
            return value


def by_name(parts: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for name, data in parts:
        if name not in ("metadata", "end", "error"):
            found[IDS.sub("ID", name)].append(bared(data))
    return found


async def bare(graph: Any, config: Any, given: Any, *, subgraphs: bool) -> list[tuple[str, Any]]:
    """What LangGraph streams by itself, in the form of the server."""
    modes = ["messages" if mode == "messages-tuple" else mode for mode in MODES if mode != "events"]
    run_id = uuid4()
    told: list[tuple[str, Any]] = []
    try:
        async for event in graph.astream_events(
            given,
            {**config, "run_id": run_id},
            version="v2",
            stream_mode=modes,
            subgraphs=subgraphs,
            durability="sync",
        ):
            if event["event"] == "on_chain_stream" and event["run_id"] == str(run_id):
                *inside, mode, part = event["data"]["chunk"]
                told.append(("|".join((mode, *(inside[0] if inside else ()))), part))
            elif "langsmith:hidden" not in event["tags"]:
                told.append(("events", event))
    except ValueError:
        assert graph.name == "broken"
    return [(name, json.loads(json.dumps(data, default=encoded))) for name, data in told]


@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize("name", stream_graphs.NAMES)
@pytest.mark.mainly_sqlite(False)
async def test_streams_are_those_of_langgraph(
    clients: Clients, thread: str, name: str, subgraphs: bool
) -> None:
    graph = getattr(stream_graphs, name)()
    graph.checkpointer = InMemorySaver()
    config = {"configurable": {"thread_id": thread}}
    asked: dict[str, Any] = {"stream_mode": MODES, "stream_subgraphs": subgraphs}
    ours = await heard(clients.ann.runs.stream(thread, name, input=X, **asked))
    told, expected = by_name(ours), by_name(await bare(graph, config, X, subgraphs=subgraphs))
    if name == "handy":
        # A ToolNode runs its tools beside the graph's own task: LangGraph gives their events no fixed order.
        for each in (told, expected):
            each["events"].sort(key=repr)
    assert told == expected
    assert expected["events"]
    if name == "polite":
        ours = await heard(clients.ann.runs.stream(thread, name, command={"resume": "yes"}, **asked))
        pending = (await graph.aget_state(config)).interrupts[0].id
        resumed = await bare(graph, config, Command(resume={pending: "yes"}), subgraphs=subgraphs)
        assert by_name(ours) == by_name(resumed)
    if name == "broken":
        assert ours[-1] == ("error", {"error": "ValueError", "message": "out of luck"})


async def test_events_are_streamed_alone_and_again(clients: Clients, thread: str) -> None:
    """As CopilotKit asks for them: resumable, and joined later."""
    asked = {"stream_mode": "events", "stream_resumable": True}
    told = await heard(clients.ann.runs.stream(thread, "handy", input=X, **asked))
    events = [data for name, data in told if name == "events"]
    assert {name for name, _ in told} == {"metadata", "events", "end"}
    assert set(events[0]) == {"event", "name", "run_id", "tags", "metadata", "data", "parent_ids"}
    assert (events[0]["event"], events[-1]["event"]) == ("on_chain_start", "on_chain_end")
    assert events[0]["run_id"] == told[0][1]["run_id"]
    assert {"on_tool_start", "on_tool_end", "on_chat_model_stream"} <= {each["event"] for each in events}
    (run,) = await clients.ann.runs.list(thread)
    again = await heard(clients.ann.runs.join_stream(thread, run["run_id"], last_event_id="-1"))
    assert again == told


async def collect(stream: AsyncIterator[Any], *, runs: int) -> list[Any]:
    """Until so many runs are done."""
    parts = []
    async with asyncio.timeout(30), aclosing(stream) as stream:  # type: ignore[type-var]
        async for part in stream:
            parts.append(part)
            runs -= part.event == "metadata" and part.data.get("status") == "run_done"
            if not runs:
                break
    return parts


def told_by(parts: list[Any]) -> list[tuple[str, Any]]:
    return [(part.event, part.data) for part in parts]


async def test_a_thread_is_streamed_over_all_its_runs(clients: Clients, thread: str) -> None:
    following = asyncio.create_task(
        collect(await clients.ann.threads.join_stream(thread, stream_mode="run_modes"), runs=3)
    )
    states = await clients.ann.threads.join_stream(thread, stream_mode=["state_update", "lifecycle"])
    stated = asyncio.create_task(collect(states, runs=3))
    asked = {"stream_mode": ["values", "updates"], "stream_resumable": True}
    first = await heard(clients.ann.runs.stream(thread, "talker", input=X, **asked))
    await clients.ann.threads.update_state(thread, {"words": ["by hand"]}, as_node="speak")
    second = await heard(clients.ann.runs.stream(thread, "talker", input=X, **asked))
    third = await heard(clients.ann.runs.stream(thread, "broken", input=X, **asked))
    parts = await following
    runs = [list(each) for each in (first, second, third)]
    expected: list[tuple[str, Any]] = []
    for told in runs:
        done = ("metadata", {"status": "run_done", "run_id": told[0][1]["run_id"]})
        expected += [*(part for part in told if part[0] != "end"), done]
    assert told_by(parts) == expected
    # Every reader sees the same under the same ids, and one that was cut off anywhere sees the rest.
    everything = await collect(await clients.ann.threads.join_stream(thread, last_event_id="0"), runs=3)
    assert everything == parts
    end = len(first) - 1
    for at in (1, end - 1, end, end + 2):
        left = sum(part.data.get("status") == "run_done" for part in parts[at + 1 :])
        rest = await clients.ann.threads.join_stream(thread, last_event_id=parts[at].id)
        assert told_by(await collect(rest, runs=left)) == told_by(parts[at + 1 :])
    seen = await stated
    assert {part.event for part in seen} == {"metadata", "state_update"}
    (update,) = [part.data for part in seen if part.event == "state_update"]
    assert (update["thread_id"], update["state"]["values"]["words"][-1]) == (thread, "by hand")


async def test_a_thread_that_is_not_there_and_a_mode_that_is_none(clients: Clients, thread: str) -> None:
    with pytest.raises(NotFoundError):
        await heard(await clients.rival.threads.join_stream(thread))
    with pytest.raises(UnprocessableEntityError, match="run_modes, lifecycle, state_update"):
        await heard(await clients.ann.threads.join_stream(thread, stream_mode="songs"))
