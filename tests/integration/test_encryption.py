"""Encryption at rest through real servers: what people wrote is not in the database, and comes back with the key only."""

import json
import os
import signal
import sqlite3
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.processes import Server, clew, one_line, serving, until

MARKER = "Zaubertrank-7f3a"
OLD, NEW, OTHER = (b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))
GRAPH = f"""
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import interrupt

from clew import ChatHistory


class State(TypedDict, total=False):
    text: str
    answer: str


async def work(state: State, *, store: BaseStore):
    await store.aput(("notes",), "one", {{"text": state["text"]}})
    await ChatHistory(store).append("telegram:42", state["text"], role="user", id="first")
    return {{"answer": interrupt("{MARKER}, really?")}}


graph = StateGraph(State)
graph.add_node("work", work)
graph.add_edge(START, "work")
graph.add_edge("work", END)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(GRAPH)
    (tmp_path / "clew.yaml").write_text("graphs:\n  ask: ./agent.py:graph\n")
    return tmp_path


@pytest.fixture
def database(where: str) -> str:
    return where if where.startswith("postgres") else f"sqlite:///{where}"


def post(server: Server, path: str, **more: Any) -> Any:
    answer = httpx.post(server.address + path, timeout=30, **more)
    assert answer.status_code < 300, answer.text
    return answer.json()


def use(server: Server) -> dict[str, str]:
    """A file, a chat with it, and a run that writes an item and a history, streams and waits for a person; another one
    that waits for it, an assistant and a cron."""
    file = post(server, "/api/files", files={"file": (f"{MARKER}.txt", f"Recipe of the {MARKER}".encode())})
    start = {"prompt": f"Read {MARKER}", "listFileId": [file["id"]], "name": MARKER}
    chat = post(server, "/api/workflows/start", json=start, headers={"Idempotency-Key": file["id"]})
    thread = post(server, "/threads", json={})["thread_id"]
    run = {"assistant_id": "ask", "input": {"text": MARKER}, "stream_mode": ["values", "updates"]}
    with httpx.stream(
        "POST", f"{server.address}/threads/{thread}/runs/stream", json=run, timeout=30
    ) as parts:
        assert MARKER in "".join(parts.iter_text())
    hook = {"webhook": f"http://127.0.0.1:9/{MARKER}", "multitask_strategy": "enqueue"}
    post(server, f"/threads/{thread}/runs", json=run | hook)
    words = {"graph_id": "ask", "name": MARKER, "description": MARKER, "context": {"of": MARKER}}
    post(server, "/assistants", json=words | {"config": {"tags": [MARKER]}, "metadata": {"of": MARKER}})
    post(server, "/runs/crons", json=run | {"schedule": "0 0 1 1 *", "context": {"of": MARKER}})
    until(lambda: server.get(f"/api/workflows/{chat['id']}").json()["status"] != "running")
    return {"file": file["id"], "chat": chat["id"], "thread": thread}


def require_readable(server: Server, made: dict[str, str]) -> None:
    assert MARKER in server.get(f"/api/files/{made['file']}/content").text
    assert server.get(f"/api/files/{made['file']}").json()["name"] == f"{MARKER}.txt"
    messages = json.dumps(server.get(f"/api/workflows/{made['chat']}/messages").json())
    assert f"Read {MARKER}" in messages
    state = server.get(f"/threads/{made['thread']}/state").json()
    assert (state["values"]["text"], state["tasks"][0]["interrupts"][0]["value"]) == (
        MARKER,
        f"{MARKER}, really?",
    )
    item = server.get("/store/items?namespace=notes&key=one").json()
    assert item["value"] == {"text": MARKER}


def raw(where: str) -> Iterator[bytes]:
    """All that a thief of the database has."""
    if not where.startswith("postgres"):
        yield from (
            path.read_bytes() for path in Path(where).parent.glob(f"{Path(where).name}*") if path.is_file()
        )
        return
    with psycopg.connect(where) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            whole = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(table))
            for (row,) in connection.execute(whole):
                yield row.encode()


def holds_marker(where: str) -> bool:
    # Also as a word of a search index, which has words in lower case and without what joins them.
    word = MARKER.partition("-")[0].casefold()
    looked_for = (MARKER.encode(), MARKER.encode().hex().encode(), word.encode())
    return any(text in piece for piece in raw(where) for text in looked_for)


def stop(server: Server) -> None:
    server.signal(signal.SIGTERM)
    assert server.wait()[0] == 0


def test_a_stolen_database_tells_nothing(project: Path, where: str, database: str) -> None:
    settings: dict[str, Any] = {"CLEW_DATABASE_URL": database}
    with serving(project, CLEW_ENCRYPTION_KEY=OLD, **settings) as server:
        made = use(server)
        assert not holds_marker(where), "while the server runs, its journal included"
        require_readable(server, made)
        stop(server)
    assert not holds_marker(where)
    for keys, said in {
        "": "the database is encrypted (key ",
        OTHER: "which is not among the keys given",
        "abc": "CLEW_ENCRYPTION_KEY: expected AES keys of 32 bytes",
    }.items():
        refused = clew(project, "threads", "list", CLEW_ENCRYPTION_KEY=keys, **settings)
        assert (refused.returncode, said in one_line(refused)) == (2, True), refused.stderr
    # A new key, with the old one to read; then all under the new key, but not while a server still writes with the old.
    with serving(project, CLEW_ENCRYPTION_KEY=f"{OLD},{NEW}", **settings) as server:
        require_readable(server, made)
        until(lambda: len(server.get("/api/queue").json()["processes"]) == 1)
        early = clew(project, "encrypt", CLEW_ENCRYPTION_KEY=f"{NEW},{OLD}", **settings)
        assert (early.returncode, "restart it with that key first, or stop it" in early.stderr) == (1, True)
        stop(server)
    with serving(project, CLEW_ENCRYPTION_KEY=f"{NEW},{OLD}", **settings) as server:
        require_readable(server, made)
        encrypted = clew(project, "encrypt", "--json", CLEW_ENCRYPTION_KEY=f"{NEW},{OLD}", **settings)
        assert encrypted.returncode == 0, encrypted.stderr
        (done,) = json.loads(encrypted.stdout)["databases"]
        assert (done["rows"] > 5, done["unreadable"]) == (True, 0)
        require_readable(server, made)
        stop(server)
    command = f"{sys.executable} -c \"print('{NEW}')\""
    with serving(project, CLEW_ENCRYPTION_KEY_COMMAND=command, **settings) as server:
        require_readable(server, made)
        assert (
            post(
                server,
                f"/threads/{made['thread']}/runs/wait",
                json={"assistant_id": "ask", "command": {"resume": f"{MARKER}!"}},
            )["answer"]
            == f"{MARKER}!"
        )
        os.kill(server.process.pid, signal.SIGKILL)
        server.wait()
    assert not holds_marker(where)


def test_a_database_from_before_stays_readable_until_it_is_encrypted(
    project: Path, where: str, database: str
) -> None:
    settings: dict[str, Any] = {"CLEW_DATABASE_URL": database}
    with serving(project, **settings) as server:
        made = use(server)
        stop(server)
    assert holds_marker(where), "what this test looks for is there to be found"
    no_key = clew(project, "encrypt", **settings)
    assert (no_key.returncode, "no key was given" in one_line(no_key)) == (2, True)
    with serving(project, CLEW_ENCRYPTION_KEY=NEW, **settings) as server:
        require_readable(server, made)
        assert "values from before encryption" in server.log
        stop(server)
    assert clew(project, "encrypt", CLEW_ENCRYPTION_KEY=NEW, **settings).returncode == 0
    if where.startswith("postgres"):
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("VACUUM FULL")
    assert not holds_marker(where)
    with serving(project, CLEW_ENCRYPTION_KEY=NEW, **settings) as server:
        require_readable(server, made)
        assert "values from before encryption" not in server.log
        stop(server)


def test_a_command_that_prints_no_key_is_named(project: Path) -> None:
    for command, said in {
        "false": "the command ended with code 1",
        "echo no-key": "expected the command to print AES keys",
        "/no/such/program": "the command cannot be run",
    }.items():
        refused = clew(project, "migrate", CLEW_ENCRYPTION_KEY_COMMAND=command)
        assert (refused.returncode, said in one_line(refused)) == (2, True), refused.stderr
    both = clew(project, "migrate", CLEW_ENCRYPTION_KEY_COMMAND="echo x", CLEW_ENCRYPTION_KEY=NEW)
    assert "`key` and `key_command` are both set" in one_line(both)


def test_a_value_moved_to_another_row_is_refused(project: Path) -> None:
    with serving(project, LANGGRAPH_AES_KEY="sixteen letters!") as server:
        for key, text in (("a", "of a"), ("b", "of b")):
            put = {"namespace": ["notes"], "key": key, "value": {"text": text}}
            httpx.put(f"{server.address}/store/items", json=put, timeout=30).raise_for_status()
        with closing(sqlite3.connect(project / ".clew" / "clew.db")) as stolen, stolen:
            stolen.execute(
                "UPDATE store_items SET value = (SELECT value FROM store_items WHERE key = 'b') WHERE key = 'a'"
            )
        moved = server.get("/store/items?namespace=notes&key=a")
        assert (moved.status_code, moved.json()) == (500, {"detail": "a stored value is not JSON"})
        assert server.get("/store/items?namespace=notes&key=b").json()["value"] == {"text": "of b"}
