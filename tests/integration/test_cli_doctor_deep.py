"""`clew doctor --deep`: every thread against its log."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Server, clew, serving, until

DAMAGE = {
    "another status": ("UPDATE threads SET status = 'failed' WHERE id = ?", "was changed by other hands"),
    "no event": ("DELETE FROM events WHERE thread_id = ? AND seq = 2", "its log cannot be read back"),
    "no thread": ("DELETE FROM threads WHERE id = ?", "events: rows of 1 threads that do not exist"),
}


def start(server: Server) -> str:
    answer = httpx.post(f"{server.address}/api/workflows/start", json={"prompt": "hello"}, timeout=30)
    thread = str(answer.raise_for_status().json()["id"])
    until(lambda: server.get(f"/api/threads/{thread}").json()["status"] == "completed")
    return thread


def examined(folder: Path) -> dict[str, Any]:
    report = json.loads(clew(folder, "doctor", "--deep", "--json").stdout)
    (found,) = [one for one in report["checks"] if one["name"] == "integrity"]
    return dict(found)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_named(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path) as server:
        threads = [start(server) for _ in range(2)]
        assert examined(tmp_path) == {
            "name": "integrity",
            "ok": True,
            "detail": "2 threads: each row agrees with its log, no row without a thread",
        }
    statement, said = DAMAGE[kind]
    with sqlite3.connect(tmp_path / ".clew" / "clew.db") as db:
        db.execute(statement, (threads[0],))
    found = examined(tmp_path)
    assert not found["ok"]
    assert said in found["detail"]
    assert threads[1] not in found["detail"]
    assert clew(tmp_path, "doctor", "--deep").returncode == 1
