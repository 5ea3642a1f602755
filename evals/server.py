"""A real server for the evaluation, on a port and a database of its own."""

import base64
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from evals.scoring import Answer

_START_SECONDS = 180
_ROUND_SECONDS = 120


@contextmanager
def serve(folder: Path, settings: Mapping[str, str]) -> Iterator[httpx.Client]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = {name: value for name, value in os.environ.items() if not name.startswith("CLEW_")}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [str(Path(sys.executable).with_name("clew")), "serve", "--port", str(port)],
            cwd=folder,
            env={**known, **settings},
            stdout=log,
            stderr=log,
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_ROUND_SECONDS) as client:
                _wait(client, server, folder / "server.log")
                yield client
        finally:
            server.terminate()
            server.wait(30)


def ask(client: httpx.Client, prompt: str, files: Mapping[str, bytes]) -> Answer:
    """One round: what a person sees when it is over."""
    ids = [_upload(client, name, data) for name, data in files.items()]
    body = {"prompt": prompt, "listFileId": ids, "graph": "chat"}
    started = client.post("/api/workflows/start", params={"wait": 60}, json=body).raise_for_status().json()
    address = f"/api/workflows/{started['id']}"
    deadline = time.monotonic() + _ROUND_SECONDS
    status = "running"
    while status == "running" and time.monotonic() < deadline:
        status = client.get(f"{address}/status", params={"wait": 30}).raise_for_status().json()["status"]
    said = [one for one in _messages(client, address) if one["role"] == "assistant"]
    last: dict[str, Any] = said[-1] if said else {"content": "", "documents": []}
    return Answer(
        text="\n\n".join(str(one["content"]) for one in said),
        last=str(last["content"]),
        reply="\n\n".join(str(one["content"]) for one in said[1:]),
        files={_label(one): base64.b64decode(one["data"]) for one in last["documents"]},
        status=status,
    )


def _messages(client: httpx.Client, address: str) -> list[dict[str, Any]]:
    answer = client.get(f"{address}/messages", params={"include": "data"}).raise_for_status().json()
    found: list[dict[str, Any]] = answer if isinstance(answer, list) else answer["messages"]
    return found


def _label(document: Mapping[str, str]) -> str:
    return f"{document['name']}.{document['ext']}"


def _upload(client: httpx.Client, name: str, data: bytes) -> str:
    answer = client.post("/api/files", files={"file": (name, data)}).raise_for_status().json()
    found = answer[0] if isinstance(answer, list) else answer
    return str(found["id"])


def _wait(client: httpx.Client, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            client.get("/ready").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")
