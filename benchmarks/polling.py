"""What a poll costs: polls/s of a status and of logs, against an empty FastAPI route of the same server.

    python benchmarks/polling.py [--threads 10000] [--rounds 20] [--seconds 0.5] [--turns 15] [--profile FILE]

One server process as `clew serve` makes it, on a SQLite file with so many threads, so many rounds of them running all
the while. A client in a process of its own asks through kept-alive sockets; all arms take turns of `seconds` in one run,
so that whatever else the machine does meets them alike. Two empty routes: `empty` stands beside Clew, with nothing
around it, and is what the goals are counted from; `inside` is one behind all that every request of Clew passes.
`client` is how busy the client was: below 100 %, it was the server that set the pace.
"""

import argparse
import asyncio
import cProfile
import json
import operator
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psutil
import uvicorn
import uvloop
from fastapi import APIRouter, FastAPI
from langgraph.graph import START, StateGraph
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.access import needs
from clew.api.auth import Authenticator
from clew.api.http import create_http
from clew.cli.protocol import BoundedHttp, BoundedWebSocket
from clew.config import load_settings
from clew.domain.events import Log, Opening
from clew.domain.lifecycle import Stamp, finish, open_thread
from clew.domain.thread import Owner, Status
from clew.engine.commands import Request
from clew.server.app import Server, open_app
from clew.server.database import new_id, utc_now
from clew.telemetry import Metrics

HERE = Path(__file__)
OWNER = Owner()
CONNECTIONS = 16
NEWEST = 50
MANY_LOGS, FEW_LOGS = 10_000, 100
# So often each running round ends a step, which writes to its log and its checkpoints.
STEP_SECONDS = 1.0


# The server.


class State(TypedDict):
    said: Annotated[list[str], operator.add]


async def step(state: State) -> State:  # noqa: ARG001 - every node takes the state
    await asyncio.sleep(STEP_SECONDS)
    return {"said": ["a step"]}


def endless() -> StateGraph[State, None, State, State]:
    made = StateGraph(State)
    made.add_node("step", step)
    made.add_edge(START, "step")
    made.add_edge("step", "step")
    return made


async def empty() -> None:
    return None


def with_empty_routes(app: Server) -> ASGIApp:
    """Clew, an empty route as FastAPI makes it, and one within the layers that are around all of Clew's routes."""
    bare = FastAPI()
    bare.get("/empty")(empty)
    router = APIRouter()
    router.get("/inside", dependencies=[needs("read")])(empty)
    inside = create_http(
        [router],
        authenticator=Authenticator(app.stores.keys, clock=utc_now, open_locally=True),
        metrics=Metrics(),
        new_id=new_id,
        max_body_bytes=1_000_000,
    )
    apps: dict[str, ASGIApp] = {"/empty": bare, "/inside": inside}

    async def one_of(scope: Scope, receive: Receive, send: Send) -> None:
        await apps.get(scope["path"], app.http)(scope, receive, send)

    return one_of


async def serve(folder: Path, script: Path, threads: int, rounds: int, profile: str | None) -> None:
    """Says on one line where it listens and what is there to be polled; ends with its standard input."""
    config = folder / "clew.yaml"
    config.write_text(f"graphs:\n  endless: {script}:endless\nrunner:\n  concurrency: {rounds + 4}\n")
    settings = load_settings({}, cwd=folder, config=config)
    async with open_app(settings) as app:
        idle = await fill(app, threads - rounds)
        long, short = [await logged(app, count) for count in (MANY_LOGS, FEW_LOGS)]
        running = await begin(app, rounds)
        server = uvicorn.Server(
            uvicorn.Config(
                with_empty_routes(app),
                port=0,
                http=BoundedHttp,
                ws=BoundedWebSocket,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
            )
        )
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn says so no other way
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(json.dumps({"port": port, "threads": idle + running, "long": long, "short": short}), flush=True)
        with profiled(profile):
            await asyncio.to_thread(sys.stdin.read)
        states = [(await app.stores.threads.get(thread_id)).status for thread_id in running]
        server.should_exit = True
        await serving
        for thread_id in running:
            await app.execution.commands.stop(thread_id, OWNER, ())
    if states.count(Status.RUNNING) < rounds:
        raise RuntimeError(f"rounds ended while they should run: {states}")


async def fill(app: Server, count: int) -> list[str]:
    """Threads that have ended, as most are."""
    ids = [new_id() for _ in range(count)]

    async def one(thread_id: str) -> None:
        opened = open_thread(
            thread_id, Opening(owner=OWNER, graph="chat", ttl=timedelta(days=30)), "hello", stamp=stamp()
        )
        await app.stores.threads.commit(opened)
        await app.stores.threads.commit(finish(opened.thread, Status.COMPLETED, stamp=stamp()))

    for first in range(0, count, 256):
        await asyncio.gather(*map(one, ids[first : first + 256]))
    return ids


async def logged(app: Server, count: int) -> dict[str, str]:
    """A thread with so many logs, and from which one on they are the newest."""
    opened = open_thread(new_id(), Opening(owner=OWNER, graph="chat"), "hello", stamp=stamp())
    await app.stores.threads.commit(opened)
    logs = [Log(message=f"step {n}", progress=n * 100 // count) for n in range(count)]
    change = finish(opened.thread, Status.COMPLETED, notes=logs, stamp=stamp())
    await app.stores.threads.commit(change)
    return {"id": opened.thread.id, "from": change.events[count - NEWEST].id}


async def begin(app: Server, rounds: int) -> list[str]:
    return [
        (
            await app.execution.commands.start(
                Opening(owner=OWNER, graph="endless"), Request(graph_input={"said": ["go"]})
            )
        ).id
        for _ in range(rounds)
    ]


def stamp() -> Stamp:
    return Stamp(utc_now(), new_id)


@contextmanager
def profiled(file: str | None) -> Generator[None]:
    if file is None:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        profile.dump_stats(file)


# The client.


@dataclass(slots=True)
class Arm:
    """One kind of request, over all of its paths again and again, and what was answered."""

    paths: list[str]
    tags: dict[str, bytes] = field(default_factory=dict)
    """The newest ETag of each path."""
    sends_tags: bool = False
    statuses: Counter[int] = field(default_factory=Counter)
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Of the server, for each answer."""
    client: list[float] = field(default_factory=list)
    """How busy this process was: were it always, the server would not have shown what it can."""
    _next: int = 0

    def forget(self) -> None:
        self.statuses.clear()
        self.rates.clear()
        self.cpu.clear()
        self.client.clear()

    def request(self) -> tuple[str, bytes]:
        path = self.paths[self._next % len(self.paths)]
        self._next += 1
        known = b"If-None-Match: %s\r\n" % self.tags[path] if self.sends_tags else b""
        return path, b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n" % (path.encode(), known)

    def answered(self, path: str, status: int, tag: bytes) -> None:
        self.statuses[status] += 1
        if tag:
            self.tags[path] = tag


class Asker(asyncio.Protocol):
    """One kept-alive connection that asks again as soon as it was answered."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self._got = b""
        self._asked = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._got += data
        end = self._got.find(b"\r\n\r\n")
        if end < 0 or len(self._got) < end + 4 + int(header(self._got, b"\r\ncontent-length: ", end) or b"0"):
            return
        self._arm.answered(self._asked, int(self._got[9:12]), header(self._got, b"\r\netag: ", end))
        self._got = b""
        self._ask()

    def _ask(self) -> None:
        self._asked, request = self._arm.request()
        self._transport.write(request)


def header(answer: bytes, name: bytes, end: int) -> bytes:
    at = answer.find(name, 0, end)
    return b"" if at < 0 else answer[at + len(name) : answer.index(b"\r\n", at + len(name))]


async def ask(arm: Arm, port: int, process: psutil.Process, seconds: float, *, at_least: int = 0) -> None:
    """Ask for so long, and until so many have been answered."""
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: Asker(arm), "127.0.0.1", port))[0] for _ in range(CONNECTIONS)
    ]
    answered, cpu, begun = arm.statuses.total(), cpu_seconds(process), time.perf_counter()
    own = time.process_time()
    await asyncio.sleep(seconds)
    while arm.statuses.total() < at_least:  # noqa: ASYNC110 - an event would have to be counted by each answer
        await asyncio.sleep(0.01)
    answered, took = arm.statuses.total() - answered, time.perf_counter() - begun
    arm.rates.append(answered / took)
    arm.cpu.append((cpu_seconds(process) - cpu) / answered)
    arm.client.append((time.process_time() - own) / took)
    for connection in connections:
        connection.abort()


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def server(options: argparse.Namespace) -> Generator[tuple[psutil.Process, dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"--serve={folder}", f"--threads={options.threads}", f"--rounds={options.rounds}"]
        if options.profile:
            arguments.append(f"--profile={Path(options.profile).absolute()}")
        child = subprocess.Popen(
            [sys.executable, str(HERE), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        try:
            yield psutil.Process(child.pid), json.loads(child.stdout.readline())
        finally:
            child.communicate()
        if child.returncode:
            raise RuntimeError("the server failed")


async def main(options: argparse.Namespace) -> None:
    with server(options) as (process, told):
        paths = [f"/api/workflows/{thread_id}/status" for thread_id in told["threads"]]
        random.shuffle(paths)
        tags: dict[str, bytes] = {}
        arms = {
            "empty": Arm(["/empty"]),
            "inside": Arm(["/inside"]),
            "status": Arm(paths, tags),
            "status, 304": Arm(paths, tags, sends_tags=True),
            **{
                f"logs, {NEWEST} of {count}": Arm(
                    [f"/api/workflows/{told[name]['id']}/logs?id={told[name]['from']}"]
                )
                for name, count in (("long", MANY_LOGS), ("short", FEW_LOGS))
            },
        }
        await ask(arms["status"], told["port"], process, 0, at_least=len(paths))  # warm, and every tag known
        for arm in arms.values():
            await ask(arm, told["port"], process, options.seconds)
            arm.forget()
        for _ in range(options.turns):
            for arm in arms.values():
                await ask(arm, told["port"], process, options.seconds)
    report(arms)


def report(arms: dict[str, Arm]) -> None:
    print(f"{'':20}{'polls/s':>9}{'CPU us':>9}{'of empty':>10}{'of inside':>11}{'client':>8}   answers")
    for name, arm in arms.items():
        rate, cpu = statistics.median(arm.rates), statistics.median(arm.cpu) * 1e6
        of_empty, of_inside = (f"{ratio(arm, arms[other]):.0%}" for other in ("empty", "inside"))
        client = f"{statistics.median(arm.client):.0%}"
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(arm.statuses.items()))
        print(f"{name:20}{rate:9.0f}{cpu:9.0f}{of_empty:>10}{of_inside:>11}{client:>8}   {answers}")
    print()
    long, short = (arms[f"logs, {NEWEST} of {count}"] for count in (MANY_LOGS, FEW_LOGS))
    for goal, found, limit in (
        ("status with a 304, of the empty route", ratio(arms["status, 304"], arms["empty"]), 0.6),
        ("status without, of the empty route", ratio(arms["status"], arms["empty"]), 0.35),
        (f"newest {NEWEST} logs of {MANY_LOGS}, of those of {FEW_LOGS}", ratio(long, short), 0.9),
    ):
        print(f"{goal:44}{found:6.0%}   goal >= {limit:.0%}   {'met' if found >= limit else 'NOT met'}")


def ratio(arm: Arm, other: Arm) -> float:
    """Turn by turn, since the machine is not the same all the time."""
    return statistics.median(one / two for one, two in zip(arm.rates, other.rates, strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--profile", help="where the server leaves its cProfile statistics")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.serve, HERE.resolve(), options.threads, options.rounds, options.profile))
    else:
        uvloop.run(main(options))
