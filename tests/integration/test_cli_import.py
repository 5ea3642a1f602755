"""`clew import`: an exported thread is created again, with its log, documents and state, and goes on from there."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.processes import clew, one_line

GRAPHS = """
from typing import Annotated, TypedDict
from operator import add

from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


class Sum(MessagesState, total=False):
    number: Annotated[int, add]
    answer: str


def count(state):
    return {"messages": [("ai", f"I have heard {len(state['messages'])} messages")], "number": 1}


def ask(state):
    return {"answer": interrupt({"kind": "elicitation", "question": "Which?"})}


def one(node):
    graph = StateGraph(Sum)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph


counting, asking = one(count), one(ask)
"""


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Two projects, each with a database of its own."""
    made = []
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "agent.py").write_text(GRAPHS)
        (folder / "clew.yaml").write_text(
            "graphs: {counting: './agent.py:counting', asking: './agent.py:asking'}\n"
        )
        made.append(folder)
    return made[0], made[1]


def run_json(folder: Path, *arguments: str, code: int = 0) -> Any:
    ended = clew(folder, *arguments, "--json")
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout)


def said(text: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}]})


def exported(folder: Path, thread_id: str) -> Path:
    return folder / str(run_json(folder, "export", thread_id)["path"])


def test_an_imported_thread_has_its_log_and_goes_on(places: tuple[Path, Path]) -> None:
    here, there = places
    thread_id = run_json(here, "run", "counting", "--input", said("one"))["id"]
    file = exported(here, thread_id)
    made = run_json(there, "import", str(file), "--tenant", "acme", "--user", "ann")
    assert (made["id"], made["tenant"], made["status"], made["state"]) == (
        thread_id,
        "acme",
        "completed",
        None,
    )
    before, after = (run_json(folder, "threads", "show", thread_id)["events"] for folder in places)
    assert [(one["type"], one["seq"]) for one in before] == [(one["type"], one["seq"]) for one in after]
    ran = run_json(
        there, "run", "--thread", thread_id, "--input", said("two"), "--tenant", "acme", "--user", "ann"
    )
    assert ran["state"]["values"]["number"] == 2
    assert ran["state"]["values"]["messages"][-1]["content"] == "I have heard 3 messages"
    again = clew(there, "import", str(file))
    assert (again.returncode, "there is a thread" in one_line(again)) == (1, True)
    assert clew(there, "doctor", "--deep").returncode == 0


def test_a_round_under_way_is_stopped_and_the_thread_takes_the_next(places: tuple[Path, Path]) -> None:
    here, there = places
    thread_id = run_json(here, "run", "asking", "--input", said("one"), code=4)["id"]
    made = run_json(there, "import", str(exported(here, thread_id)))
    assert made["status"] == "stopped"
    assert run_json(there, "pending")["toolCalls"] == []
    ran = run_json(there, "run", "--thread", thread_id, "--input", said("two"), code=4)
    assert ran["status"] == "blocked"


def test_documents_come_with_their_bytes(places: tuple[Path, Path]) -> None:
    here, there = places
    (here / "notes.md").write_text("# Offers\n\nThe first offer costs 100.\n")
    asked = ("run", "chat", "--prompt", "Summarize the file as summary.txt", "--file", "notes.md")
    ran = run_json(here, *asked)
    assert run_json(there, "import", str(exported(here, ran["id"])))["documents"] == 2
    one, other = (
        exported(folder, ran["id"]) if folder is there else exported_again(folder, ran["id"])
        for folder in places
    )
    assert documents_in(one) == documents_in(other)


def exported_again(folder: Path, thread_id: str) -> Path:
    return folder / str(run_json(folder, "export", thread_id, "--output", "again.zip")["path"])


def documents_in(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.startswith("documents/")}


def test_a_graph_that_is_missing_leaves_the_thread_without_its_state(places: tuple[Path, Path]) -> None:
    here, there = places
    thread_id = run_json(here, "run", "counting", "--input", said("one"))["id"]
    (there / "clew.yaml").write_text("graphs: {}\n")
    made = run_json(there, "import", str(exported(here, thread_id)), code=3)
    assert "counting" in made["state"]
    assert run_json(there, "threads", "show", thread_id)["thread"]["status"] == "completed"


def test_what_is_no_whole_export_is_refused(places: tuple[Path, Path]) -> None:
    here, there = places
    thread_id = run_json(here, "run", "counting", "--input", said("one"))["id"]
    good = exported(here, thread_id)
    with zipfile.ZipFile(good) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    lines = parts["log.jsonl"].splitlines(keepends=True)
    wrong: dict[str, bytes | dict[str, bytes]] = {
        "text": b"no zip",
        "empty": {},
        "incomplete": {**parts, "problems.json": b"[]"},
        "gap": {**parts, "log.jsonl": b"".join([lines[0], *lines[2:]])},
        "unknown": {**parts, "log.jsonl": lines[0].replace(b"round_started", b"round_began")},
    }
    for name, content in wrong.items():
        path = there / f"{name}.zip"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            with zipfile.ZipFile(path, "w") as archive:
                for part, data in content.items():
                    archive.writestr(part, data)
        refused = clew(there, "import", str(path))
        assert (refused.returncode, one_line(refused).startswith("clew: ")) == (1, True), (
            name,
            refused.stderr,
        )
    assert not (there / ".clew" / "clew.db").exists()
