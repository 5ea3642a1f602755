"""What a follower costs: memory of the server and the way of one event to all of them, against a bare Starlette stream.

    python benchmarks/streams.py [--followers 1000] [--events 20]

Two servers with the same loop and the same HTTP: Clew on a SQLite file, whose event is committed and then read from its
log, and a Starlette route that hands a text from memory to a queue a follower. Each has so many followers, all of them in
one process; their events take turns, so that whatever else the machine does meets them alike. A delay counts from before
an event is made until a follower has it.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from clew.cli.protocol import BoundedHttp, BoundedWebSocket
from clew.config import load_settings
from clew.domain.events import Log, Opening
from clew.domain.lifecycle import Stamp, open_thread, record
from clew.domain.thread import Owner
from clew.server.app import Server, open_app
from clew.server.database import new_id, utc_now

HERE = Path(__file__)
ARMS = ("clew", "bare")

Say = Callable[[str], Awaitable[None]]


# The servers.


async def serve(arm: str, folder: Path, followers: int) -> None:
    if arm == "bare":
        await listen(*bare())
        return
    limits = ("STREAMS", "STREAMS_PER_CALLER", "CONNECTIONS_PER_ADDRESS")
    settings = load_settings({f"CLEW_LIMITS_{name}": str(followers + 10) for name in limits}, cwd=folder)
    async with open_app(settings) as app:
        await listen(*await clew(app))


async def clew(app: Server) -> tuple[ASGIApp, Say, str]:
    opened = open_thread(new_id(), Opening(owner=Owner(), graph="chat"), "hello", stamp=stamp(), held=True)
    await app.stores.threads.commit(opened)
    thread_id = opened.thread.id

    async def say(text: str) -> None:
        thread = await app.stores.threads.get(thread_id)
        await app.stores.threads.commit(record(thread, [Log(message=text)], stamp=stamp()))
        app.execution.notifier.publish(thread_id, thread.last_seq)

    return app.http, say, f"/api/workflows/{thread_id}/events"


def bare() -> tuple[ASGIApp, Say, str]:
    queues: set[asyncio.Queue[str]] = set()

    async def frames() -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        queues.add(queue)
        try:
            yield ": hello\n\n"
            while True:
                yield f"data: {await queue.get()}\n\n"
        finally:
            queues.discard(queue)

    async def events(_: object) -> StreamingResponse:
        return StreamingResponse(frames(), media_type="text/event-stream")

    async def say(text: str) -> None:
        for queue in queues:
            queue.put_nowait(text)

    return Starlette(routes=[Route("/events", events)]), say, "/events"


def stamp() -> Stamp:
    return Stamp(utc_now(), new_id)


async def listen(app: ASGIApp, say: Say, path: str) -> None:
    """Says on one line where to follow; makes an event of every line it is told, and ends with them."""
    config = uvicorn.Config(
        app,
        port=0,
        http=BoundedHttp,
        ws=BoundedWebSocket,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn says so no other way
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(json.dumps({"port": port, "path": path}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await say(line.strip())
    server.should_exit = True
    await serving


# The followers.


@dataclass(slots=True)
class Arm:
    child: subprocess.Popen[str]
    port: int
    path: str
    process: psutil.Process
    kilobytes: float = 0.0
    """Of the server's memory, for each follower."""
    heard: list[float] = field(default_factory=list)
    """When each follower had the newest event."""
    delays: list[list[float]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Of the server, for each event and follower."""

    def tell(self, text: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{text}\n")
        self.child.stdin.flush()

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


class Follower(asyncio.Protocol):
    """One connection that waits for one text after another."""

    wanted = b""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self.is_open = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % self._arm.path.encode())

    def data_received(self, data: bytes) -> None:
        self.is_open = True
        if self.wanted and self.wanted in data:
            self._arm.heard.append(time.monotonic())


async def follow(arm: Arm, count: int) -> list[Follower]:
    loop = asyncio.get_running_loop()
    before = arm.process.memory_info().rss
    followers = []
    for _ in range(count):
        _, follower = await loop.create_connection(lambda: Follower(arm), "127.0.0.1", arm.port)
        followers.append(follower)
    await until(lambda: all(follower.is_open for follower in followers), "not everybody was let in")
    arm.kilobytes = (arm.process.memory_info().rss - before) / 1024 / count
    return followers


async def ask(arm: Arm, number: int, followers: list[Follower]) -> None:
    text = f"event number {number}"
    Follower.wanted = text.encode()
    arm.heard.clear()
    cpu, begun = arm.cpu_seconds(), time.monotonic()
    arm.tell(text)
    await until(lambda: len(arm.heard) == len(followers), "somebody did not hear of an event")
    arm.delays.append([at - begun for at in arm.heard])
    arm.cpu.append((arm.cpu_seconds() - cpu) / len(followers))


async def left(arm: Arm, count: int) -> None:
    await until(lambda: arm.process.num_fds() < count, "the server kept its connections")


async def until(is_so: Callable[[], bool], otherwise: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        await asyncio.sleep(0.005)


@contextmanager
def server(arm: str, followers: int) -> Generator[Arm]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            sys.executable,
            str(HERE),
            f"--serve={arm}",
            f"--folder={folder}",
            f"--followers={followers}",
        ]
        child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            told = json.loads(child.stdout.readline())
            yield Arm(child, told["port"], told["path"], psutil.Process(child.pid))
        finally:
            child.communicate()


async def main(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        arms = {name: stack.enter_context(server(name, options.followers)) for name in ARMS}
        followers = {name: await follow(arm, options.followers) for name, arm in arms.items()}
        for number in range(options.events + 1):
            for name, arm in arms.items():
                await ask(arm, number, followers[name])
        for name, arm in arms.items():
            for follower in followers[name]:
                follower.transport.abort()
            await left(arm, options.followers)
    report(arms)


def report(arms: dict[str, Arm]) -> None:
    print(f"{'':8}{'KB a follower':>15}{'p50 ms':>9}{'p99 ms':>9}{'last ms':>9}{'CPU us':>9}")
    for name, arm in arms.items():
        delays = arm.delays[1:]  # the first one warms up
        p50, p99, last = (
            1000 * statistics.median(of(one) for one in delays) for of in (p(0.5), p(0.99), max)
        )
        cpu = statistics.median(arm.cpu[1:]) * 1e6
        print(f"{name:8}{arm.kilobytes:15.1f}{p50:9.0f}{p99:9.0f}{last:9.0f}{cpu:9.0f}")
    ours, theirs = (arms[name] for name in ARMS)
    ratios = [
        p(0.99)(one) / p(0.99)(two) for one, two in zip(ours.delays[1:], theirs.delays[1:], strict=True)
    ]
    print()
    print(f"memory a follower {ours.kilobytes:20.0f} KB   goal <= 60   {met(ours.kilobytes <= 60)}")
    worst = max(p(0.99)(one) for one in ours.delays[1:])
    print(f"p99 of the slowest event {worst:13.2f} s    goal <= 1    {met(worst <= 1)}")
    print(f"p99 of an event, of the bare stream's {statistics.median(ratios):.1f} times")


def p(part: float) -> Callable[[list[float]], float]:
    return lambda values: sorted(values)[min(len(values) - 1, int(len(values) * part))]


def met(is_met: bool) -> str:
    return "met" if is_met else "NOT met"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--followers", type=int, default=1000)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--serve", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.serve, options.folder, options.followers))
    else:
        uvloop.run(main(options))
