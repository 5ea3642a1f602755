"""A recorded model: a local server that answers as a model did, and a recorder that asks a model and keeps its answers.

An answer is known by its case, by the role of the model and by its turn in that role. So other words in Clew's prompts
need no new recordings, and a case that asks in another order does.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from clew.apps.prompts import prompt

RECORDINGS = Path(__file__).with_name("recordings.yaml")
ROLES = (
    "project_manager",
    "analyst",
    "coder",
    "conclusion",
    "extract",
    "researcher",
    "summarizer",
    "translator",
    "writer",
)
MODEL = "recorded"
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Turn:
    role: str
    says: str


@dataclass(slots=True)
class RecordedModel:
    """`turns` by case. With an `address` the model there is asked, and what it says is added."""

    turns: dict[str, list[Turn]]
    case: str = ""
    address: str = ""
    key: str = ""
    model: str = MODEL
    url: str = ""
    problems: list[str] = field(default_factory=list)
    _taken: Counter[str] = field(default_factory=Counter)

    def begin(self, case: str) -> None:
        self.case = case
        self._taken.clear()
        if self.address:
            self.turns[case] = []

    def answer(self, body: Mapping[str, Any]) -> str:
        role = role_of(body)
        if self.address:
            says = self._ask(body)
            self.turns[self.case].append(Turn(role, says))
            return says
        known = [turn.says for turn in self.turns.get(self.case, ()) if turn.role == role]
        number = self._taken[role]
        self._taken[role] += 1
        if number >= len(known):
            self.problems.append(f"{self.case}: no recorded answer number {number + 1} of the {role}")
            return ""
        return known[number]

    def _ask(self, body: Mapping[str, Any]) -> str:
        sent = {"model": self.model, "messages": body["messages"]}
        answer = httpx.post(
            f"{self.address}/chat/completions",
            json=sent,
            headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
            timeout=_SECONDS,
        ).raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"])


def role_of(body: Mapping[str, Any]) -> str:
    """The role that the system prompt gives."""
    given = str(body["messages"][0]["content"])
    return next((role for role in ROLES if given.startswith(prompt(role)[:60])), "another role")


def load_recordings(path: Path = RECORDINGS) -> dict[str, list[Turn]]:
    found: Mapping[str, Sequence[Mapping[str, str]]] = yaml.safe_load(path.read_text("utf-8"))
    return {case: [Turn(one["role"], one["says"]) for one in turns] for case, turns in found.items()}


def save_recordings(turns: Mapping[str, Sequence[Turn]], path: Path = RECORDINGS) -> None:
    plain = {case: [{"role": one.role, "says": one.says} for one in known] for case, known in turns.items()}
    path.write_text(yaml.safe_dump(plain, allow_unicode=True, sort_keys=False, width=120), "utf-8")


@contextmanager
def serving(model: RecordedModel) -> Iterator[str]:
    """Its address, as a server that speaks OpenAI's protocol."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content = _stream(body, model.answer(body))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _stream(body: Mapping[str, Any], text: str) -> bytes:
    pieces = [text[at : at + 40] for at in range(0, len(text), 40)] or [""]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}
        for piece in pieces
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    common = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": body.get("model", MODEL)}
    lines = [f"data: {json.dumps(common | {'choices': [one]})}\n\n" for one in choices]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()
