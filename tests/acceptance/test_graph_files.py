"""Graphs given as files: their own types come back from the database in every interpreter."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import environment, until

GRAPH = """
import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel


@dataclass
class Fare:
    zone: int


@dataclass
class Discount:
    percent: int


class Ticket(BaseModel):
    owner: str


class State(TypedDict, total=False):
    ticket: Ticket
    fares: Annotated[list[Fare], operator.add]
    discount: Discount
    seen: list[str]


def price(state: State):
    return {"ticket": Ticket(owner="ann"), "fares": [Fare(zone=3)], "discount": Discount(percent=5)}


def ask(state: State):
    interrupt("pay?")
    return {"seen": [type(one).__name__ for one in (state["ticket"], *state["fares"])]}


graph = StateGraph(State).add_sequence([price, ask]).add_edge(START, "price")
"""


@contextmanager
def cold_serving(folder: Path) -> Iterator[tuple[str, Path]]:
    """The address and the log of a server in an interpreter of its own, in which hashes of texts are its own too."""
    output = folder / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "clew.cli", "serve", "--port", "0"],
            cwd=folder,
            env=environment(folder),
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            until(lambda: "listening" in output.read_text() or process.poll() is not None, 60)
            found = re.search(r"address +(\S+)", output.read_text())
            assert found, output.read_text()
            yield found[1], output
        finally:
            process.terminate()
            process.wait(30)


def ask(method: str, url: str, body: Any = None) -> Any:
    answer = httpx.request(method, url, json=body, timeout=40, verify=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def rested(address: str, thread: str, status: str) -> None:
    until(lambda: ask("GET", f"{address}/api/threads/{thread}")["status"] == status)


@pytest.mark.fault("U2")
def test_types_of_a_graphs_file_outlive_the_process_and_a_move_of_the_project(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    (before / "agent.py").write_text(GRAPH)
    (before / "clew.yaml").write_text("graphs:\n  tickets: ./agent.py:graph\n")
    with cold_serving(before) as (address, _):
        body = {"graph": "tickets", "prompt": "go"}
        thread = ask("POST", f"{address}/api/workflows/start", body)["id"]
        rested(address, thread, "blocked")
    before.rename(after)
    (after / "agent.py").write_text(GRAPH.replace("Discount", "Rebate"))  # as if its author renamed one type
    with cold_serving(after) as (address, output):
        ask("POST", f"{address}/api/workflows/{thread}/approve")
        rested(address, thread, "completed")
        state = ask("GET", f"{address}/api/workflows/{thread}/state")["values"]
        assert state["seen"] == ["Ticket", "Fare"]
        blocked = re.findall(r"Blocked deserialization of (\S+)", output.read_text())
        assert blocked == ["clew_graph_tickets.Discount"]
