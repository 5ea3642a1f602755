"""The MCP server of tests/mcp_server.py, started over HTTP, and its settings over stdio."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chats import plan_of, step
from tests.openai_server import CallTool, Move, Say, prompt_of
from tests.processes import until

PROGRAM = Path(__file__).parent / "mcp_server.py"


@dataclass(slots=True)
class Weather:
    """What the server did, in a folder of its own. While it is held, a call does its work and then waits."""

    folder: Path
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def variables(self) -> dict[str, str]:
        return {"CALLS": str(self.folder / "calls"), "HOLD": str(self.folder / "hold")}

    @property
    def lines(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    @property
    def calls(self) -> list[str]:
        """Without the process that did it."""
        return [line.rpartition(" ")[0] for line in self.lines]

    def hold(self, what: str = "") -> None:
        (self.folder / "hold").write_text(what)

    def release(self) -> None:
        (self.folder / "hold").unlink()

    def kill(self) -> None:
        """The process that did the last call."""
        os.kill(int(self.lines[-1].rpartition(" ")[2]), signal.SIGKILL)

    def stdio(self, **options: Any) -> dict[str, Any]:
        return {"command": [sys.executable, str(PROGRAM), "stdio"], "env": self.variables, **options}

    def http(self, **options: Any) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/mcp", **options}

    def start(self) -> None:
        command = [sys.executable, str(PROGRAM), "http", str(self.port)]
        self.process = subprocess.Popen(command, env=self.variables, stderr=subprocess.DEVNULL)
        until(self._answers)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


@contextmanager
def weather_over_http(folder: Path) -> Iterator[Weather]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        weather = Weather(folder, port=free.getsockname()[1])
    weather.start()
    try:
        yield weather
    finally:
        weather.stop()


def mcp_yaml(**servers: dict[str, Any]) -> str:
    return f"mcp: {json.dumps({'servers': servers})}\n"


def model_that_mails(body: dict[str, Any]) -> Move:
    """Plans for the agent with tools, which asks for the weather, mails it, and says so."""
    asked = prompt_of(body)
    if "project manager" in asked:
        return Say(plan_of(step("toolUser", "Mail Ann the weather in Ulm", inputs=[])))
    if "team of agents has worked" in asked:
        return Say("Ann has a mail: 17 degrees in Ulm.")
    results = [message for message in body["messages"] if message["role"] == "tool"]
    if not results:
        return CallTool("weather__get_forecast", {"city": "Ulm"})
    if len(results) == 1:
        return CallTool("weather__send_mail", {"to": "ann"}, id="call_1")
    return Say(f"The mail says: {results[-1]['content']}")


def chat_yaml(url: str, **servers: dict[str, Any]) -> str:
    profile = {"driver": "api:openai", "base_url": url, "model": "a-model"}
    return f"profiles: {json.dumps({'default': profile})}\n{mcp_yaml(**servers)}"
