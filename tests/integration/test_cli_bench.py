"""`clew bench`: runs of a graph are started and timed, and their threads are deleted."""

import json
from pathlib import Path

from tests.processes import clew, one_line, serving

GRAPH = """
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    number: int


def work(state):
    if state["number"] < 0:
        raise ValueError("negative")
    return {"number": state["number"] + 1}


graph = StateGraph(State)
graph.add_node("work", work)
graph.add_edge(START, "work")
graph.add_edge("work", END)
"""


def test_without_a_graph_the_machine_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    done = clew(tmp_path, "bench", "--runs", "8", "--at-once", "4", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["runs"], shown["byStatus"]) == (8, {"completed": 8})
    assert 0 < shown["milliseconds"]["p50"] <= shown["milliseconds"]["max"] <= shown["seconds"] * 1000
    assert not list(tmp_path.glob("**/*.db"))


def test_a_graph_of_a_server_is_measured_and_its_threads_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(GRAPH)
    (tmp_path / "clew.yaml").write_text("graphs: {work: './agent.py:graph'}\n")
    asked = ("bench", "--graph", "work", "--runs", "3", "--at-once", "2")
    with serving(tmp_path) as server:
        done = clew(tmp_path, *asked, "--input", '{"number": 1}', "--url", server.address)
        assert (done.returncode, "3 runs, 2 at once" in done.stdout) == (0, True), done.stderr
        failed = clew(tmp_path, *asked, "--input", '{"number": -1}', "--url", server.address)
        assert (failed.returncode, "not completed: 3 failed" in failed.stdout) == (5, True), failed.stderr
        assert server.get("/api/threads").json()["threads"] == []
        refused = clew(tmp_path, "bench", "--url", server.address)
        assert (refused.returncode, one_line(refused).startswith("clew: --graph")) == (1, True)
