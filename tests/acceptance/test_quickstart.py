"""The quickstart does what it says, word for word."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.processes import ROOT, SECONDS, Server, serving

TEXT = (ROOT / "docs" / "quickstart.md").read_text("utf-8")
# As the page prints them: the path, and what is sent, if anything is.
CURL = re.compile(
    r"\$ curl (?P<post>-X POST )?'?localhost:8124(?P<path>/[^\s']+)'?(?:.*?\n    -d '(?P<body>[^']*)')?"
)


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


def ask(server: Server, command: re.Match[str], thread_id: str = "") -> Any:
    method = "POST" if command["post"] or command["body"] else "GET"
    path = command["path"].replace("01a1e3c9-...", thread_id)
    body = json.loads(command["body"]) if command["body"] else None
    answer = httpx.request(method, server.address + path, json=body, timeout=SECONDS)
    return answer.raise_for_status().json()


def test_a_graph_is_brought_killed_and_approved(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(block("python"))
    (tmp_path / "langgraph.json").write_text(block("json"))
    start, approve, state = CURL.finditer(TEXT)
    with serving(tmp_path) as server:
        started = ask(server, start)
        assert started["status"] == "blocked"
        assert [one["prompt"] for one in started["pending"].values()] == [{"question": "Pay 42 back?"}]
        server.signal(signal.SIGKILL)
        server.wait()
    with serving(tmp_path) as server:
        assert ask(server, approve, started["id"])["status"] == "approved"
        server.get(f"/api/workflows/{started['id']}/status?wait=20").raise_for_status()
        assert ask(server, state, started["id"]) == {"values": {"amount": 42, "outcome": "paid"}, "next": []}
        assert '{"values": {"amount": 42, "outcome": "paid"}, "next": []}' in TEXT
