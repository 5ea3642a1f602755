"""Servers of `benchmarks/peers.py`: each as it comes, on loopback, told its port, its database and to report to no one."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.arms.client import Client, HttpFailed
from benchmarks.arms.environments import Environment
from tests.postgres import PostgresServer

GRAPHS = Path(__file__).with_name("graphs.py")
START_SECONDS = 60.0

# All that the servers see of the environment. A proxy on a closed port: what tries to leave the machine fails at once.
QUIET = {
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost,test,testserver,api",
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "OTEL_SDK_DISABLED": "true",
    "ANONYMIZED_TELEMETRY": "false",
}


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds since a process began: of the server, and of its database."""

    server: float
    database: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(self.server - before.server, self.database - before.database)


class Server(ABC):
    """One arm: a server process with a folder of its own, and a Postgres of its own if it needs one."""

    health = "/health"
    """Answers as soon as the server answers anything."""

    def __init__(
        self, name: str, environment: Environment, folder: Path, postgres: PostgresServer | None = None
    ) -> None:
        self.name = name
        self.versions = environment.versions
        self._environment = environment
        self._folder = folder
        self._postgres = postgres
        self._process: subprocess.Popen[bytes] | None = None
        self.client = Client(0)
        folder.mkdir()
        shutil.copy(GRAPHS, folder / "graphs.py")
        self.prepare()

    def prepare(self) -> None:
        graphs = {"one": "./graphs.py:one", "chat": "./graphs.py:chat"}
        text = json.dumps({"dependencies": ["."], "graphs": graphs})
        for name in ("langgraph.json", "aegra.json"):
            (self._folder / name).write_text(text)

    @abstractmethod
    def command(self, port: int) -> list[str]: ...

    def variables(self, port: int) -> dict[str, str]:  # noqa: ARG002 - one kind needs it
        return {}

    async def start(self) -> float:
        """Seconds until the first 200."""
        port = _free_port()
        with (self._folder / "server.log").open("ab") as log:
            begun = time.perf_counter()
            self._process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
                self.command(port),
                cwd=self._folder,
                env=QUIET | {"HOME": str(self._folder)} | self.variables(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for the benchmark; it ends them itself
            )
        self.client = Client(port)
        while True:
            with suppress(OSError, HttpFailed):
                await self.client.ask("GET", self.health)
                return time.perf_counter() - begun
            if self._process.poll() is not None or time.perf_counter() - begun > START_SECONDS:
                self.stop()
                raise RuntimeError(f"{self.name} did not start; its log ends:\n{self._tail()}")
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self.client.hang_up()
        if self._process is None:
            return
        tree = list(self._tree())
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in tree[1:]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process = None

    def spent(self) -> Spent:
        database = 0.0
        if self._postgres is not None:
            # Of its backends too: the postmaster knows what those that ended have used.
            postmaster = psutil.Process(self._postgres.pid)
            database = _cpu([postmaster, *postmaster.children(recursive=True)])
        return Spent(_cpu(self._tree()), database)

    def resident(self) -> float:
        """MB of the server's processes."""
        total = 0
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 2**20

    @abstractmethod
    def stored(self) -> int | None:
        """Bytes on disk, or None for what is kept in memory."""

    def _tree(self) -> Iterator[psutil.Process]:
        assert self._process is not None, f"{self.name} does not run"
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            yield root
            yield from root.children(recursive=True)

    def _tail(self) -> str:
        return "\n".join((self._folder / "server.log").read_text(errors="replace").splitlines()[-20:])

    def _database_size(self) -> int:
        assert self._postgres is not None
        with psycopg.connect(self._postgres.url("bench"), autocommit=True) as connection:
            row = connection.execute("SELECT pg_database_size('bench')").fetchone()
        assert row is not None
        return int(row[0])

    # What a caller does.

    async def run(self) -> None:
        """The operation: create a thread, and wait for a run of the graph with one node."""
        thread_id = await self.thread()
        answer = await self.client.ask("POST", f"/threads/{thread_id}/runs/wait", ONE)
        if json.loads(answer)["said"] != ["go", "one"]:
            raise RuntimeError(f"{self.name}: a run ended as {answer[:300]!r}")

    async def thread(self) -> str:
        answer: dict[str, Any] = json.loads(await self.client.ask("POST", "/threads", b"{}"))
        return str(answer["thread_id"])

    async def turn(self, thread_id: str) -> None:
        answer = json.loads(await self.client.ask("POST", f"/threads/{thread_id}/runs/wait", TURN))
        if len(answer["messages"]) % 2:
            raise RuntimeError(f"{self.name}: a turn ended as {str(answer)[:300]}")

    async def fill(self, thread_id: str, turns: int) -> None:
        for _ in range(turns):
            await self.turn(thread_id)

    async def stream(self) -> tuple[float, float]:
        """Seconds from the request for a streamed run to its first event, and to the first that the graph made."""
        thread_id = await self.thread()
        parts: list[tuple[float, bytes]] = []
        begun = time.perf_counter()
        await self.client.ask(
            "POST",
            f"/threads/{thread_id}/runs/stream",
            STREAM,
            lambda part: parts.append((time.perf_counter() - begun, part)),
        )
        first = next(at for at, part in parts if b"event: " in part)
        of_graph = next(at for at, part in parts if b"event: updates" in part)
        return first, of_graph


ONE = json.dumps({"assistant_id": "one", "input": {"said": ["go"]}}).encode()
STREAM = json.dumps({"assistant_id": "one", "input": {"said": ["go"]}, "stream_mode": ["updates"]}).encode()
TURN = json.dumps(
    {"assistant_id": "chat", "input": {"messages": [{"role": "user", "content": "x" * 200}]}}
).encode()


class ClewServer(Server):
    def command(self, port: int) -> list[str]:
        return [str(self._environment.command("clew")), "serve", "--host", "127.0.0.1", "--port", str(port)]

    def variables(self, port: int) -> dict[str, str]:  # noqa: ARG002 - another kind needs it
        if self._postgres is None:
            return {"CLEW_DATABASE_URL": f"sqlite:///{self._folder}/clew.db"}
        return {"CLEW_DATABASE_URL": self._postgres.url("bench")}

    def stored(self) -> int | None:
        if self._postgres is not None:
            return self._database_size()
        return sum(path.stat().st_size for path in self._folder.glob("clew.db*"))


class LangGraphDev(Server):
    """LangGraph Server's development form, which keeps everything in memory."""

    health = "/ok"

    async def fill(self, thread_id: str, turns: int) -> None:
        # It looks for work once a second, or when a run ends: one turn at a time takes a second each, queued ones do not.
        for _ in range(turns - 1):
            await self.client.ask("POST", f"/threads/{thread_id}/runs", TURN)
        await self.turn(thread_id)

    def command(self, port: int) -> list[str]:
        return [
            *(str(self._environment.command("langgraph")), "dev", "--no-browser", "--no-reload"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]

    def stored(self) -> int | None:
        return None


class AegraServer(Server):
    """Aegra without Redis."""

    health = "/live"

    def command(self, port: int) -> list[str]:
        return [
            *(str(self._environment.python), "-m", "uvicorn", "aegra_api.main:app"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]

    def variables(self, port: int) -> dict[str, str]:
        assert self._postgres is not None
        return {
            "DATABASE_URL": self._postgres.url("bench"),
            "AEGRA_CONFIG": str(self._folder / "aegra.json"),
            "AUTH_TYPE": "noop",
            "REDIS_BROKER_ENABLED": "false",
            "HOST": "127.0.0.1",
            "PORT": str(port),
        }

    def stored(self) -> int | None:
        return self._database_size()


class Reference:
    """The bare graph in a child process: no server, no HTTP."""

    def __init__(self, name: str, environment: Environment, kind: str) -> None:
        self.name, self.versions = name, environment.versions
        self._child = subprocess.Popen(
            [str(environment.python), str(Path(__file__).with_name("bare.py")), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=QUIET,
            text=True,
        )

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"do": do} | arguments) + "\n")
        self._child.stdin.flush()
        line = await asyncio.to_thread(self._child.stdout.readline)
        if not line:
            raise RuntimeError(f"{self.name} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._child.communicate()


def end_on_signal() -> None:
    """Servers have process groups of their own: without this they would outlive a benchmark that is ended from outside."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


@contextmanager
def work_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _cpu(processes: Iterator[psutil.Process] | list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
