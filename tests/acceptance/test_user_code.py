"""Graphs and agents that try to leave, to cancel or to block: their own round fails, and the server goes on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.chatting import Chat, Chats, Model, model_serving
from tests.acceptance.conftest import Api
from tests.chats import plan_of
from tests.processes import serving, until

WAYS = ("sys.exit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "of its own")
SAID = {
    "sys.exit": "SystemExit: 3",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "GeneratorExit": "GeneratorExit",
    "CancelledError": "CancelledError",
    "of its own": "Leave: no reason",
}

LEAVING = '''
"""Code that leaves in every way Python has."""

import asyncio
import sys


class Leave(BaseException):
    """What `except Exception` does not catch."""


def leave(how):
    match how:
        case "sys.exit":
            sys.exit(3)
        case "KeyboardInterrupt":
            raise KeyboardInterrupt
        case "GeneratorExit":
            raise GeneratorExit
        case "CancelledError":
            raise asyncio.CancelledError
        case "of its own":
            raise Leave("no reason")
'''

GRAPHS = (
    LEAVING
    + """
import pathlib
import time
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph


def reduced(before, how):
    if before is not None:
        leave(how)
    return how


class State(TypedDict, total=False):
    how: str


class Reduced(TypedDict, total=False):
    how: Annotated[str, reduced]


async def waiting(state):
    await asyncio.sleep(0)
    leave(state["how"])


def sync(state):
    leave(state["how"])


async def beside(state):
    async def inside():
        await asyncio.sleep(0)
        leave(state["how"])

    await asyncio.gather(inside(), asyncio.sleep(0.1))


async def later(state):
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    match state["how"]:
        case "call_soon":
            loop.call_soon(sys.exit, 3)
        case "call_later":
            loop.call_later(0.05, sys.exit, 3)
        case "done_callback":
            asyncio.ensure_future(asyncio.sleep(0)).add_done_callback(lambda _: sys.exit(3))
        case "KeyboardInterrupt":
            loop.call_soon(leave, "KeyboardInterrupt")
    loop.call_later(0.2, done.set_result, None)
    await done


class Unsayable(Exception):
    def __str__(self):
        sys.exit(3)


def unsayable(state):
    raise Unsayable


async def within(state):
    await made(waiting).compile().ainvoke({"how": state["how"]})


def nothing(state):
    return {}


def again(state):
    return {"how": state["how"]}


def chosen(state):
    leave(state["how"])


def made(node):
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph


def made_with_reducer():
    graph = StateGraph(Reduced)
    graph.add_node("node", again)
    graph.add_edge(START, "node")
    return graph


def made_with_edge():
    graph = StateGraph(State)
    graph.add_node("node", nothing)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", chosen, [END])
    return graph


def sleep_in_thread(state):
    pathlib.Path(state["how"]).mkdir(exist_ok=True)
    pathlib.Path(state["how"], f"begun{time.monotonic_ns()}").touch()
    while not pathlib.Path(state["how"], "go").exists():
        time.sleep(0.01)


async def sleep_in_loop(state):
    time.sleep(float(state["how"]))


sleeping = made(sleep_in_thread)
in_callback = made(later)
in_words = made(unsayable)
freezing = made(sleep_in_loop)
in_async = made(waiting)
in_sync = made(sync)
in_task = made(beside)
in_subgraph = made(within)
as_subgraph = made(made(waiting).compile())
in_reducer = made_with_reducer()
in_edge = made_with_edge()
fine = made(nothing)
"""
)
PLACES = ("in_async", "in_sync", "in_task", "in_subgraph", "as_subgraph", "in_reducer", "in_edge")

AGENT = (
    LEAVING
    + """
import pathlib
import time

HERE = pathlib.Path(__file__).parent


class Leaver:
    name = "leaver"
    description = "Leaves."

    async def process_task(self, task):
        leave(task["prompt"])
        if task["prompt"].startswith("block"):
            (HERE / "begun").write_text("x")
            while not (HERE / "go").exists():
                if "sleep" in task["prompt"]:
                    time.sleep(0.01)
        if task["prompt"] == "made":
            return {"feedback": "here", "documents": []}
        return {"feedback": "did it", "documents": []}


class Unmade:
    name = "unmade"
    description = "Cannot even be made."

    def __init__(self, driver):
        sys.exit("no key, no agent")

    async def process_task(self, task):
        return {"feedback": "never", "documents": []}
"""
)


@dataclass(frozen=True, slots=True)
class Place:
    api: Api
    chats: Chats
    model: Model
    agents: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("user_code")
    agents = folder / "agents"
    agents.mkdir()
    (agents / "leaver.py").write_text(AGENT)
    (agents / "leaving_at_once.py").write_text("import sys\n\nsys.exit('no key, no agents')\n")
    (folder / "leaving_graphs.py").write_text(GRAPHS)
    names = [*PLACES, "fine", "sleeping", "freezing", "in_callback", "in_words"]
    graphs = "".join(f"  {name}: ./leaving_graphs.py:{name}\n" for name in names)
    (folder / "clew.yaml").write_text(f"graphs:\n{graphs}")
    with (
        model_serving() as model,
        serving(folder, CLEW_MODELS_OPENAI_BASE_URL=model.url, CLEW_AGENTS_FOLDER=str(agents)) as server,
    ):
        yield Place(Api(server), Chats(server), model, agents)


def task(agent: str, prompt: str) -> dict[str, Any]:
    return {"agent": agent, "prompt": prompt, "outputDocuments": []}


class TestGraphs:
    @pytest.mark.parametrize("how", WAYS)
    @pytest.mark.parametrize("where", PLACES)
    def test_code_that_leaves_fails_its_round(self, place: Place, where: str, how: str) -> None:
        place.model.plans(plan_of())
        thread = place.api.run(where, how=how)
        assert thread["status"] == "failed"
        (end,) = place.api.content(thread["id"], "round_finished")
        assert SAID[how] in end["reason"] or (
            how == "CancelledError" and "cancelled" in end["reason"].lower()
        )
        assert place.api.run("fine", how="")["status"] == "completed"
        warned = [json.loads(line) for line in place.api.server.log.splitlines() if thread["id"] in line]
        assert any(line["event"] == "run failed" or "cancelled" in line["event"] for line in warned)

    @pytest.mark.parametrize("how", ["call_soon", "call_later", "done_callback", "KeyboardInterrupt"])
    def test_a_callback_that_leaves_ends_nothing(self, place: Place, how: str) -> None:
        assert place.api.run("in_callback", how=how)["status"] == "completed"
        assert place.api.run("fine", how="")["status"] == "completed"
        assert "a callback of the event loop raised" in place.api.server.log

    def test_an_exception_that_leaves_when_it_is_shown_fails_its_round(self, place: Place) -> None:
        thread = place.api.run("in_words")
        assert thread["status"] == "failed"
        (end,) = place.api.content(thread["id"], "round_finished")
        assert "Unsayable" in end["reason"]
        assert place.api.run("fine", how="")["status"] == "completed"

    def test_as_many_blocking_functions_as_may_run_leave_room_for_others(
        self, place: Place, tmp_path: Path
    ) -> None:
        marks = tmp_path / "marks"
        # One place is left, for the round that is run beside them.
        threads = [place.api.start("sleeping", how=str(marks)) for _ in range(15)]
        until(lambda: marks.exists() and len(list(marks.iterdir())) == len(threads))
        assert place.chats.upload("a.txt", b"some text")
        assert place.api.run("fine", how="")["status"] == "completed"
        (marks / "go").touch()
        assert {place.api.rest(thread)["status"] for thread in threads} == {"completed"}

    def test_a_node_that_blocks_the_event_loop_is_named(self, place: Place) -> None:
        thread = place.api.run("freezing", how="3.5")
        assert thread["status"] == "completed"

        def named() -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in place.api.server.log.splitlines()]
            return [
                line for line in lines if line.get("thread_id") == thread["id"] and "loop" in line["event"]
            ]

        until(lambda: len(named()) == 2)
        blocked, free = named()
        assert blocked["event"].startswith("event loop blocked")
        assert (blocked["stage"], free["stage"]) == ("node", "node")
        assert "leaving_graphs.py" in blocked["source"]
        assert "sleep_in_loop" in blocked["source"]
        assert free["seconds"] >= 2
        lag = place.api.server.get("/metrics").text
        assert "clew_event_loop_lag_seconds_count" in lag


class TestAgents:
    def test_one_that_leaves_when_it_is_imported_is_left_out(self, place: Place) -> None:
        assert "SystemExit: no key, no agents" in place.api.server.log

    @pytest.mark.accept("004-12", "004-19")
    @pytest.mark.parametrize("how", WAYS)
    def test_one_that_leaves_fails_its_task(self, place: Place, how: str) -> None:
        place.model.plans(plan_of(task("leaver", how), task("leaver", "work")))
        chat = place.chats.run("Two tasks")
        assert chat.status == "completed", "half of the tasks failed, which is not too many"
        errors = [line["message"] for line in chat.logs if line["type"] == "error"]
        assert errors == [f"Task 1/2 failed: leaver: {SAID[how]}"]
        assert [one["status"] for one in chat.messages].count("last") == 1

    @pytest.mark.accept("004-12", "004-19")
    @pytest.mark.parametrize("how", WAYS)
    def test_a_round_of_such_tasks_fails_with_an_error_and_a_last_message(
        self, place: Place, how: str
    ) -> None:
        place.model.plans(plan_of(task("leaver", how)))
        chat = place.chats.run("One task")
        assert chat.status == "failed"
        assert SAID[how] in chat.whole["failureReason"]
        assert (chat.logs[-1]["type"], chat.logs[-1]["progress"]) == ("error", 100)
        assert SAID[how] in chat.logs[-1]["message"]
        assert [one["status"] for one in chat.messages].count("last") == 1
        assert chat.messages[-1]["status"] == "last"

    def test_one_that_leaves_when_it_is_made_fails_its_task(self, place: Place) -> None:
        place.model.plans(plan_of(task("unmade", "x"), task("leaver", "work")))
        chat = place.chats.run("Two tasks")
        assert chat.status == "completed"
        assert "Task 1/2 failed: unmade: SystemExit: no key, no agent" in [
            line["message"] for line in chat.logs
        ]

    @pytest.mark.parametrize("how", ["block and sleep", "block and compute"])
    def test_one_that_blocks_holds_up_nobody(self, place: Place, how: str) -> None:
        begun, go = place.agents / "begun", place.agents / "go"
        begun.unlink(missing_ok=True)
        go.unlink(missing_ok=True)
        place.model.plans(plan_of(task("leaver", how)))
        chat = Chat(place.chats, place.chats.start("Block")["id"])
        until(begun.exists)
        assert place.api.server.get("/health").json() == {"status": "ok"}
        assert place.api.run("fine", how="")["status"] == "completed"
        place.model.plans(plan_of(task("leaver", "work")))
        assert place.chats.run("Another chat, the same agent").status == "completed"
        assert chat.status == "running"
        go.touch()
        assert chat.ended().status == "completed"
