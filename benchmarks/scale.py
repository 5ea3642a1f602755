"""What more processes bring and cost on one Postgres: runs/s, start latency, a part's way to the client, CPU a run.

    PYTHONPATH=. python benchmarks/scale.py [--runs 200] [--rounds 3]

Every arm has a database of its own on one Postgres server, and processes of its own; the arms take turns. `serve N` is N times
`clew serve` with the local runner; its clients use all of them. `workers N` is an API process without a runner, and N times
`clew worker`; it is measured if this build has that command. A process runs SLOTS runs at once, and a node waits 50 ms, so that
processes and not cores are what runs wait for.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import httpx
import psutil
import psycopg
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph

from tests.postgres import PostgresServer, postgres_server

HERE = Path(__file__)
SLOTS = 4
NODE_SECONDS = 0.05
PARTS = 20


class State(TypedDict, total=False):
    said: str


async def pause(state: State) -> State:  # noqa: ARG001 - every node takes the state
    await asyncio.sleep(NODE_SECONDS)
    return {"said": "waited"}


async def tick(state: State) -> State:  # noqa: ARG001 - every node takes the state
    for _ in range(PARTS):
        get_stream_writer()({"at": time.time()})
        await asyncio.sleep(NODE_SECONDS)
    return {"said": "ticked"}


def waits() -> StateGraph[State, None, State, State]:
    graph = StateGraph(State)
    graph.add_node("first", pause)
    graph.add_node("second", pause)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    return graph


def at_once() -> StateGraph[State, None, State, State]:
    graph = StateGraph(State)
    graph.add_node("only", lambda _: {"said": "done"})
    graph.add_edge(START, "only")
    return graph


def ticks() -> StateGraph[State, None, State, State]:
    graph = StateGraph(State)
    graph.add_node("tick", tick)
    graph.add_edge(START, "tick")
    return graph


@dataclass(frozen=True, slots=True)
class Cost:
    """What the database has done so far, or did for one run."""

    commits: float
    wal_kb: float
    stored_kb: float
    cpu_ms: float

    def since(self, before: "Cost", runs: int) -> "Cost":
        return Cost(*(getattr(self, name) / runs - getattr(before, name) / runs for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Ledger:
    """Reads what one database of the server has cost."""

    server: PostgresServer
    name: str

    def read(self) -> Cost:
        with psycopg.connect(self.server.url(self.name), autocommit=True) as connection:
            found = connection.execute(
                "SELECT xact_commit, pg_current_wal_insert_lsn() - '0/0', pg_database_size(datname)"
                " FROM pg_stat_database WHERE datname = current_database()"
            ).fetchone()
        assert found is not None
        commits, wal, stored = map(float, found)
        return Cost(commits, wal / 1024, stored / 1024, self._cpu() * 1000)

    def _cpu(self) -> float:
        cpu = 0.0
        for process in psutil.Process(self.server.pid).children():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                cpu += times.user + times.system
        return cpu


@dataclass(slots=True)
class Arm:
    """Processes on one database. `fronts` are those with an API."""

    name: str
    runners: int
    ledger: Ledger
    fronts: list[httpx.AsyncClient]
    processes: list[psutil.Process]
    rates: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def cpu(self) -> float:
        """Of Clew's processes; the database's is not in it."""
        times = [process.cpu_times() for process in self.processes]
        return float(sum(each.user + each.system for each in times))

    async def run(self, number: int, graph: str) -> None:
        front = self.fronts[number % len(self.fronts)]
        answer = await front.post(
            "/api/workflows/start?wait=60", json={"graph": graph, "input": {"said": ""}}
        )
        if answer.status_code != 200 or answer.json()["status"] != "completed":
            raise RuntimeError(f"{self.name}: {answer.status_code} {answer.text[:300]}")

    async def fill(self, runs: int) -> None:
        """Twice as many callers as slots: there is always a run that waits."""
        numbers = iter(range(runs))

        async def some() -> None:
            for number in numbers:
                await self.run(number, "waits")

        spent = self.ledger.read()
        before, begun = self.cpu(), time.perf_counter()
        await asyncio.gather(*(some() for _ in range(2 * SLOTS * self.runners)))
        self.rates.append(runs / (time.perf_counter() - begun))
        self.cpus.append((self.cpu() - before) / runs * 1000)
        self.costs.append(self.ledger.read().since(spent, runs))

    async def start(self, runs: int) -> None:
        for number in range(runs):
            begun = time.perf_counter()
            await self.run(number, "at_once")
            self.starts.append((time.perf_counter() - begun) * 1000)

    async def stream(self) -> None:
        """The client reads at the first process. With the local runner a run starts where it is created: at the last."""
        thread = (await self.fronts[0].post("/threads", json={})).json()["thread_id"]
        order = {"assistant_id": "ticks", "input": {"said": ""}, "stream_mode": "custom"}
        count = 0
        async with self.fronts[0].stream("GET", f"/threads/{thread}/stream", timeout=60) as answer:
            (await self.fronts[-1].post(f"/threads/{thread}/runs", json=order)).raise_for_status()
            async for data in _custom(answer):
                self.parts.append((time.time() - data["at"]) * 1000)
                count += 1
                if count == PARTS:
                    return


async def _custom(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    event = ""
    async for line in answer.aiter_lines():
        if line.startswith("event:"):
            event = line.partition(":")[2].strip()
        elif line.startswith("data:") and event == "custom":
            yield json.loads(line.partition(":")[2])


@contextmanager
def process(folder: Path, *arguments: str, **environ: str) -> Generator["subprocess.Popen[str]"]:
    child = subprocess.Popen(
        [sys.executable, "-m", "clew.cli", *arguments, "--config", str(folder / "clew.yaml")],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": str(HERE.resolve().parents[1]),  # this file has the graphs, and imports from tests
            "CLEW_RUNNER_CONCURRENCY": str(SLOTS),
            **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield child
    finally:
        child.terminate()
        child.communicate()


def _address(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if "http://" in line:
            return "http://" + line.partition("http://")[2].split()[0].strip("/")
    raise RuntimeError("a server did not start")


def open_arm(stack: ExitStack, server: PostgresServer, folder: Path, kind: str, count: int) -> Arm:
    name = f"scale_{kind}_{count}"
    environ = {"CLEW_DATABASE_URL": server.create_database(name)}
    there = folder / f"{kind}{count}"
    there.mkdir()
    names = "\n".join(f"  {name}: {HERE.resolve()}:{name}" for name in ("waits", "at_once", "ticks"))
    (there / "clew.yaml").write_text(f"graphs:\n{names}\n")
    fronts, others = [], []
    serve = ("serve", "--port", "0")
    if kind == "serve":
        fronts = [stack.enter_context(process(there, *serve, **environ)) for _ in range(count)]
    else:
        environ["CLEW_RUNNER_KIND"] = "workers"
        fronts = [stack.enter_context(process(there, *serve, "--no-runner", **environ))]
        others = [
            stack.enter_context(process(there, "worker", "--concurrency", str(SLOTS), **environ))
            for _ in range(count)
        ]
    clients = [httpx.AsyncClient(base_url=_address(one), timeout=90) for one in fronts]
    ledger = Ledger(server, name)
    return Arm(
        f"{kind} {count}", count, ledger, clients, [psutil.Process(one.pid) for one in (*fronts, *others)]
    )


def has_workers() -> bool:
    asked = subprocess.run(
        [sys.executable, "-m", "clew.cli", "worker", "--help"], capture_output=True, check=False
    )
    return asked.returncode == 0


async def main(runs: int, rounds: int) -> None:
    wanted = [("serve", 1), ("serve", 2)]
    if has_workers():
        wanted += [("workers", 1), ("workers", 2), ("workers", 4)]
    else:
        print("this build has no `clew worker`: its arms are left out\n")
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server, ExitStack() as stack:
        arms = [open_arm(stack, server, Path(folder), *one) for one in wanted]
        for arm in arms:
            await asyncio.gather(*(arm.run(number, "waits") for number in range(4 * SLOTS)))  # warm
        for _ in range(rounds):
            for arm in arms:
                await arm.fill(runs * arm.runners)
            for arm in arms:
                await arm.start(max(10, runs // 4))
            for arm in arms:
                await arm.stream()
    report({arm.name: arm for arm in arms})


def report(arms: dict[str, Arm]) -> None:
    print(
        f"{'':12}{'runs/s':>9}{'CPU ms':>9}{'start p50':>11}{'start p99':>11}{'part p50':>10}{'part p99':>10}"
    )
    for name, arm in arms.items():
        print(
            f"{name:12}{statistics.median(arm.rates):9.1f}{statistics.median(arm.cpus):9.2f}"
            f"{_at(arm.starts, 0.5):11.1f}{_at(arm.starts, 0.99):11.1f}"
            f"{_at(arm.parts, 0.5):10.1f}{_at(arm.parts, 0.99):10.1f}"
        )
    print(
        f"\n{'a run of two nodes costs the database':40}{'commits':>9}{'WAL KB':>9}{'kept KB':>9}{'CPU ms':>9}"
    )
    for name, arm in arms.items():
        figures = (statistics.median(getattr(cost, one) for cost in arm.costs) for one in Cost.__slots__)
        print(f"{name:40}" + "".join(f"{figure:9.2f}" for figure in figures))
    print()
    kind = "workers" if "workers 1" in arms else "serve"
    local, one, two = arms["serve 1"], arms[f"{kind} 1"], arms[f"{kind} 2"]
    goals = [
        (f"runs/s of {two.name}, of {one.name}", _of(two.rates, one.rates), 1.8, True),
        (f"part from {two.name} to the client, p50 ms", _at(two.parts, 0.5), 50.0, False),
        (f"CPU a run of {two.name}, of the local runner's", _of(two.cpus, local.cpus), 1.4, False),
    ]
    if kind == "workers":
        above = _at(one.starts, 0.5) - _at(local.starts, 0.5)
        goals.append(("start above the local runner's, p50 ms", above, 60.0, False))
        goals.append(
            ("runs/s of workers 4, of workers 1", _of(arms["workers 4"].rates, one.rates), 0.0, True)
        )
    for goal, figure, limit, is_least in goals:
        met = figure >= limit if is_least else figure <= limit
        told = (
            f"goal {'>=' if is_least else '<='} {limit:.1f}   {'met' if met else 'NOT met'}" if limit else ""
        )
        print(f"{goal:50}{figure:8.2f}   {told}")


def _of(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(ours) / statistics.median(theirs)


def _at(found: Sequence[float], share: float) -> float:
    return sorted(found)[int(len(found) * share)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(main(options.runs, options.rounds))
