"""What a run costs through HTTP (start, run to its end, read its state), against the bare graph with our checkpointer.

    python benchmarks/runs.py [--runs 160] [--rounds 3]

Both arms are processes of their own on SQLite files of their own; they take turns, so that whatever else the machine
does meets them alike. CPU is the arm's process alone; the client of the HTTP arm runs on the other core.
"""

import argparse
import asyncio
import json
import operator
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psutil
from langgraph.graph import END, START, StateGraph
from uuid_utils import uuid7

from clew import create_checkpointer

CONCURRENCY = (1, 16, 64)
HERE = Path(__file__)


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def one(state: State) -> State:  # noqa: ARG001 - every node takes the state
    return {"said": ["one"]}


def two(state: State) -> State:  # noqa: ARG001 - every node takes the state
    return {"said": ["two"]}


def graph() -> StateGraph[State, None, State, State]:
    made = StateGraph(State)
    made.add_node("one", one)
    made.add_node("two", two)
    made.add_edge(START, "one")
    made.add_edge("one", "two")
    made.add_edge("two", END)
    return made


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: float
    cpu: float
    latencies: list[float]


async def measure(
    runs: int, concurrency: int, cpu: Callable[[], float], run: Callable[[], Awaitable[None]]
) -> Measured:
    latencies: list[float] = []

    async def some(count: int) -> None:
        for _ in range(count):
            begun = time.perf_counter()
            await run()
            latencies.append(time.perf_counter() - begun)

    before, begun = cpu(), time.perf_counter()
    await asyncio.gather(*(some(runs // concurrency) for _ in range(concurrency)))
    return Measured(time.perf_counter() - begun, cpu() - before, latencies)


# The bare arm: a child that runs the graph itself.


async def bare_forever() -> None:
    """Answer each line `runs concurrency` with what it took."""
    with tempfile.TemporaryDirectory() as folder:
        async with create_checkpointer(f"sqlite:///{folder}/bare.db") as saver:
            compiled = graph().compile(checkpointer=saver)

            async def run() -> None:
                config: Any = {"configurable": {"thread_id": str(uuid7())}}
                await compiled.ainvoke({"said": ["go"]}, config, durability="sync")
                await compiled.aget_state(config)

            while line := await asyncio.to_thread(sys.stdin.readline):
                runs, concurrency = map(int, line.split())
                took = await measure(runs, concurrency, time.process_time, run)
                print(json.dumps([took.seconds, took.cpu, took.latencies]), flush=True)


class Bare:
    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(HERE), "--bare"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def measure(self, runs: int, concurrency: int) -> Measured:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{runs} {concurrency}\n")
        self._child.stdin.flush()
        return Measured(*json.loads(await asyncio.to_thread(self._child.stdout.readline)))

    def close(self) -> None:
        self._child.communicate()


# The HTTP arm: the real server, and a client that costs next to nothing.


class Connection:
    """One kept-alive HTTP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        payload = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(payload)}\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        self._writer.write(head.encode() + payload)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.decode().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
        content = await self._reader.readexactly(length)
        if not lines[0].split()[1].startswith("2"):
            raise RuntimeError(f"{method} {path}: {lines[0]} {content[:300]!r}")
        return json.loads(content)


class Clew:
    def __init__(self, host: str, process: psutil.Process) -> None:
        self._host, self._process = host, process
        self._free: list[Connection] = []

    async def measure(self, runs: int, concurrency: int) -> Measured:
        self._free.clear()  # the server has hung up on those that were idle while the other arm ran
        return await measure(runs, concurrency, self._cpu, self._run)

    def _cpu(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    async def _run(self) -> None:
        connection = self._free.pop() if self._free else await self._connect()
        answer = await connection.ask(
            "POST", "/api/workflows/start?wait=60", {"graph": "two", "input": {"said": ["go"]}}
        )
        if answer["status"] != "completed" or answer["state"]["values"]["said"] != ["go", "one", "two"]:
            raise RuntimeError(f"a run ended as {answer['status']}")
        self._free.append(connection)

    async def _connect(self) -> Connection:
        host, _, port = self._host.partition(":")
        return Connection(*await asyncio.open_connection(host, int(port)), self._host)


@contextmanager
def serve(folder: Path) -> Generator[Clew]:
    config = folder / "clew.yaml"
    config.write_text(f"graphs:\n  two: {HERE.resolve()}:graph\n")
    server = subprocess.Popen(
        [sys.executable, "-m", "clew.cli", "serve", "--port", "0", "--config", str(config)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Clew(_address(server), psutil.Process(server.pid))
    finally:
        server.terminate()
        server.communicate()


def _address(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if "http://" in line:
            return line.partition("http://")[2].split()[0].strip("/")
    raise RuntimeError("the server did not start")


async def main(runs: int, rounds: int) -> None:
    found: dict[tuple[str, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bare = Bare()
        try:
            with serve(Path(folder)) as clew:
                arms: list[tuple[str, Bare | Clew]] = [("bare", bare), ("clew", clew)]
                for _, arm in arms:
                    await arm.measure(32, 16)  # warm
                for _ in range(rounds):
                    for concurrency in CONCURRENCY:
                        for name, arm in arms:
                            measured = await arm.measure(max(runs, concurrency), concurrency)
                            found.setdefault((name, concurrency), []).append(measured)
        finally:
            bare.close()
    report(found)


def report(found: dict[tuple[str, int], list[Measured]]) -> None:
    print(f"{'':12}{'runs/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}")
    figures: dict[tuple[str, int], tuple[float, float, float, float]] = {}
    for (name, concurrency), measured in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        latencies = sorted(latency for each in measured for latency in each.latencies)
        figures[name, concurrency] = rate, p50, p99, cpu = (
            statistics.median(len(each.latencies) / each.seconds for each in measured),
            latencies[len(latencies) // 2] * 1000,
            latencies[int(len(latencies) * 0.99)] * 1000,
            statistics.median(each.cpu / len(each.latencies) for each in measured) * 1000,
        )
        print(f"{name:5} x {concurrency:<4}{rate:9.0f}{p50:9.1f}{p99:9.1f}{cpu:9.2f}")
    print()
    for goal, ratio, limit, above in (
        ("CPU a run at 16, of the bare graph's", _ratio(figures, 16, 3), 2.0, False),
        ("p50 at 1, of the bare run's", _ratio(figures, 1, 1), 4.0, False),
        ("runs/s at 16, of the bare graph's", _ratio(figures, 16, 0), 0.7, True),
    ):
        met = ratio >= limit if above else ratio <= limit
        print(
            f"{goal:40}{ratio:6.2f}   goal {'>=' if above else '<='} {limit:.1f}   {'met' if met else 'NOT met'}"
        )


def _ratio(
    figures: dict[tuple[str, int], tuple[float, float, float, float]], concurrency: int, figure: int
) -> float:
    return figures["clew", concurrency][figure] / figures["bare", concurrency][figure]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(bare_forever() if options.bare else main(options.runs, options.rounds))
