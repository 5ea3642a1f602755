"""The world outside: a process of its own that is acted upon, and remembers by whose key. Whoever acts may die; it stays."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx


@dataclass(frozen=True, slots=True)
class Sink:
    """Where to act, and what was done there."""

    address: str

    def place(self, name: str) -> str:
        """An address of its own for whatever is to be counted alone."""
        return f"{self.address}/{name}"

    def received(self, name: str) -> list[tuple[str, str]]:
        """What was done there and under which key, each time, in order."""
        answer = httpx.get(self.place(name), timeout=20, verify=False)
        return [(what, key) for what, key in answer.raise_for_status().json()]


def act(place: str, what: str, key: str) -> None:
    """Returns when it is done, whatever becomes of the caller."""
    httpx.post(place, json=[what, key], timeout=20, verify=False).raise_for_status()


@contextmanager
def sink() -> Generator[Sink]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.sink"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        yield Sink(f"http://127.0.0.1:{process.stdout.readline().strip()}")
    finally:
        process.kill()
        process.communicate(timeout=30)


def serve() -> None:
    received: dict[str, list[list[str]]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            if text:  # or whoever was about to act died over it
                received.setdefault(self.path, []).append(json.loads(text))
                self._answer([])

        def do_GET(self) -> None:
            self._answer(received.get(self.path, []))

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, body: list[list[str]]) -> None:
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)  # noqa: T201 - whoever started us reads it
    server.serve_forever()


if __name__ == "__main__":
    serve()
