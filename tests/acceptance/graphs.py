"""Graphs for what is only seen from outside: errors by their class, plans made twice, work that cannot be called off."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk
from langgraph.graph import END, START, StateGraph
from pydantic import TypeAdapter

from clew.domain.errors import Permanent, Transient
from clew.domain.events import Log
from clew.graph.agent import Agent
from clew.graph.context_window import Compaction, ContextBudget
from clew.graph.run import current_run
from clew.graph.tools import tool
from tests.chains import chain
from tests.graphs import (
    Notes,
    Obedient,
    architect,
    developer,
    human_approval_node,
    leave,
    look_up,
    mark,
    my_name,
    send_mail,
    the_time,
)

GATE = "human_approval_node"
NAMES = ("failing", "replanning", "haunted", "strolling", "wilful_agent", "frugal_agent")


class Failing(Notes, total=False):
    error: str


def fail(state: Failing) -> Notes:
    """What the clients of models, trackers and commands raise, or what drivers make of it."""
    mark(state, "tried")
    request = httpx.Request("POST", "http://127.0.0.1/v1/chat")
    match state["error"]:
        case "network_timeout":
            raise httpx.ReadTimeout("nobody answered", request=request)
        case "cli_timeout":
            raise Transient("the command took too long", "cli_timeout")
        case "not_found":
            raise Permanent("no issue ABC-0", "not_found")
        case "validation":
            TypeAdapter(int).validate_python("three")
        case status:
            response = httpx.Response(int(status), request=request)
            response.raise_for_status()
    raise AssertionError("that is no error we know")


def failing() -> Any:
    return chain(Failing, fail)


def replanning() -> Any:
    """A gate, a developer, and after the first time another plan, which has to pass the gate as well."""
    graph = StateGraph(Notes)
    graph.add_node("architect", architect)
    graph.add_node(GATE, human_approval_node)
    graph.add_node("developer", developer)
    graph.add_edge(START, "architect")
    graph.add_edge("architect", GATE)
    graph.add_conditional_edges(GATE, lambda state: "developer" if state.get("human_approved") else END)
    graph.add_conditional_edges(
        "developer", lambda state: "architect" if state["log"].count("plan") < 2 else END
    )
    return graph.compile(interrupt_before=[GATE])


def is_there(path: str) -> bool:
    return Path(path).exists()


async def uncancelled() -> bool:
    """A moment passes; whether somebody tried to end it."""
    try:
        await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return True
    return False


class Haunted(Notes, total=False):
    go: str
    ends_badly: bool


async def work(state: Haunted) -> Notes:
    """Says which process works here, and when it is done, whoever tries to cancel it meanwhile."""
    mark(state, f"begun-by-{os.getpid()}")
    while not is_there(state["go"]):
        await uncancelled()
    mark(state, f"done-by-{os.getpid()}")
    if state.get("ends_badly"):
        raise Permanent("it was no good")
    return {"log": ["code"]}


def haunted() -> Any:
    """What a process that was thought dead may still be at work on."""
    return chain(Haunted, work)


async def stroll(state: Haunted) -> Notes:
    step = f"step {len(state['log'])}"
    mark(state, step)
    await asyncio.sleep(0.1)
    return {"log": [step]}


def strolling() -> Any:
    """One short step after another, until somebody lets it end."""
    graph = StateGraph(Haunted)
    graph.add_node("stroll", stroll)
    graph.add_edge(START, "stroll")
    graph.add_conditional_edges("stroll", lambda state: END if is_there(state["go"]) else "stroll")
    return graph


class ProviderDown(Exception):
    status_code = 403


class Wilful(Obedient):
    """Told to `fail`, its provider refuses. Told to speak `until: path`, it does not end before that file is there.

    When nobody answered in time, it asks in whose name it is here.
    """

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        _, is_told, path = messages[-1].text.partition("until: ")
        if not is_told:
            async for chunk in super()._astream(messages, *args, **kwargs):
                yield chunk
            return
        self._answer(messages)
        yield ChatGenerationChunk(message=AIMessageChunk(content="word"))
        while not is_there(path):
            await asyncio.sleep(0.02)
            yield ChatGenerationChunk(message=AIMessageChunk(content=" and word"))

    def _answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if isinstance(last, HumanMessage) and last.text == "fail":
            raise ProviderDown("no such customer")
        if isinstance(last, ToolMessage) and "expired" in last.text:
            call = ToolCall(id="call_own", name="my_name", args={}, type="tool_call")
            return AIMessage("then by myself", tool_calls=[call])
        return super()._answer(messages)


@tool
async def wait_for(go: str, marks: str) -> str:
    """Wait for a file, whoever tries to call it off."""
    leave(marks, "begun")
    while not is_there(go):
        if await uncancelled():
            leave(marks, "cancelled")
    leave(marks, "done")
    return "too late"


def wilful_agent() -> Any:
    return Agent(model=Wilful(), tools=(send_mail, my_name, wait_for)).graph()


@tool
async def chatter(lines: int) -> str:
    """Leave so many lines in the log."""
    run = current_run()
    assert run is not None
    for start in range(0, lines, 500):
        await run.record(*(Log(message=f"line {n}") for n in range(start, min(start + 500, lines))))
    return f"{lines} lines"


def frugal_agent() -> Any:
    """Shows its model one result, and sums up what is older than two rounds."""
    return Agent(
        model=Obedient(),
        tools=(look_up, chatter),
        inject=the_time,
        budget=ContextBudget(results_kept=1),
        compaction=Compaction(messages=6, keep=4),
    ).graph()
