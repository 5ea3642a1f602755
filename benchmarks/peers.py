"""What a run costs on Clew and on its peers: the same graphs and the same client against each server, in turns.

    PYTHONPATH=. python benchmarks/peers.py [--only start cost stream thread memory] [--rounds 5] [--seconds 4]

Arms: Clew on SQLite, Clew on Postgres, `langgraph dev` (in memory), Aegra (Postgres, without Redis); and two references
without a server: the bare graph in memory and with the packaged SQLite saver. Each has an environment of its own under
build/peers, all on one version of Python, and each Postgres arm a Postgres of its own. All use their default settings:
for `langgraph dev` that is one run at a time. An arm that cannot be installed is named as absent.

One operation creates a thread and waits for a run of a graph with one node. CPU is that of the server's processes, and of
Postgres's. The client writes and reads plain sockets; it shares the cores with the servers, and its own CPU is shown.

`start` is from the start of the process, on a database that has its tables, to the first 200 of a health check, and to the end
of a run that is asked for then.
`stream` is `runs/stream` on a new thread: to the first event, and to the first `updates` event, which the graph made;
busy while BUSY callers make operations. `thread` is one chat that grows by two messages of 200 characters a turn.
Sections that are not asked for keep the figures of the run before.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.arms.environments import Absent, find_python, prepare
from benchmarks.arms.figures import Figures, Goal, quantile
from benchmarks.arms.servers import (
    AegraServer,
    ClewServer,
    LangGraphDev,
    Reference,
    Server,
    Spent,
    end_on_signal,
    work_folder,
)
from tests.postgres import postgres_server

CLEW, CLEW_POSTGRES, DEV, AEGRA = "Clew SQLite", "Clew Postgres", "langgraph dev", "Aegra"
MEMORY, SAVER = "bare memory", "bare SQLite"
OURS, PEERS = (CLEW, CLEW_POSTGRES), (DEV, AEGRA)
CALLERS = (1, 16, 64)
BUSY = 4
SHARES = (0.01, 0.05, *(n / 10 for n in range(1, 10)), 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Load:
    seconds: float
    spent: Spent
    client: float
    latencies: list[float]

    def each(self, seconds: float) -> float:
        """Milliseconds an operation."""
        return seconds / len(self.latencies) * 1000


@dataclass(frozen=True, slots=True)
class Bench:
    servers: list[Server]
    references: list[Reference]
    figures: Figures
    options: argparse.Namespace

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[Server]]:
        """All servers, warm."""
        try:
            for server in self.servers:
                await server.start()
                await load(server, 16, most=64)
            yield self.servers
        finally:
            for server in self.servers:
                server.stop()


async def load(server: Server, callers: int, *, seconds: float = 60.0, most: int | None = None) -> Load:
    """So many callers for so long, or until so many operations were made."""
    server.client.hang_up()
    latencies: list[float] = []
    left = iter(range(most)) if most is not None else iter(int, 1)
    before, own, begun = server.spent(), time.process_time(), time.perf_counter()

    async def caller() -> None:
        for _ in left:
            start = time.perf_counter()
            if start - begun > seconds:
                return
            await server.run()
            latencies.append(time.perf_counter() - start)

    await asyncio.gather(*(caller() for _ in range(callers)))
    took = time.perf_counter() - begun
    return Load(took, server.spent().since(before), time.process_time() - own, latencies)


async def measure_start(bench: Bench) -> None:
    for server in bench.servers:  # makes the tables, and warms the disk's cache
        await server.start()
        await server.run()
        server.stop()
    for _ in range(bench.options.rounds):
        for server in bench.servers:
            begun = time.perf_counter()
            seconds = await server.start()
            try:
                spent = server.spent()
                await server.run()
                bench.figures.add("start to first 200 s", server.name, seconds)
                bench.figures.add("start to first 200 CPU s", server.name, spent.server)
                bench.figures.add("start to first run s", server.name, time.perf_counter() - begun)
                bench.figures.add("start to first run CPU s", server.name, server.spent().server)
                bench.figures.add("RSS after start MB", server.name, server.resident())
            finally:
                server.stop()


async def measure_cost(bench: Bench) -> None:
    figures, latencies = bench.figures, dict[str, dict[str, list[float]]]()
    async with bench.running() as servers:
        for _ in range(bench.options.rounds):
            for callers in CALLERS:
                for server in servers:
                    made = await load(server, callers, seconds=bench.options.seconds)
                    latencies.setdefault(str(callers), {}).setdefault(server.name, []).extend(made.latencies)
                    record_cost(figures, server.name, callers, made)
                for reference in bench.references:
                    answer = await reference.ask("load", seconds=bench.options.seconds / 2, callers=callers)
                    bare = Load(answer["seconds"], Spent(answer["cpu"], 0.0), 0.0, answer["latencies"])
                    record_cost(figures, reference.name, callers, bare)
    figures.series["latencies"] = {
        callers: {arm: [quantile(each, share) * 1000 for share in SHARES] for arm, each in found.items()}
        for callers, found in latencies.items()
    }
    figures.series["shares"] = list(SHARES)


def record_cost(figures: Figures, arm: str, callers: int, made: Load) -> None:
    figures.add(f"runs/s at {callers}", arm, len(made.latencies) / made.seconds)
    figures.add(f"server CPU ms at {callers}", arm, made.each(made.spent.server))
    figures.add(f"Postgres CPU ms at {callers}", arm, made.each(made.spent.database))
    figures.add(f"CPU ms at {callers}", arm, made.each(made.spent.server + made.spent.database))
    figures.add(f"client CPU ms at {callers}", arm, made.each(made.client))
    figures.add(f"p50 ms at {callers}", arm, quantile(made.latencies, 0.5) * 1000)
    figures.add(f"p99 ms at {callers}", arm, quantile(made.latencies, 0.99) * 1000)


async def measure_stream(bench: Bench) -> None:
    async with bench.running() as servers:
        for _ in range(bench.options.rounds):
            for busy in (False, True):
                for server in servers:
                    server.client.hang_up()
                    found = await streams(server, bench.options.seconds / 2, BUSY if busy else 0)
                    state = "busy" if busy else "idle"
                    for name, values in zip(("event", "update"), zip(*found, strict=True), strict=True):
                        metric = f"first {name} ms, {state}"
                        bench.figures.add(metric, server.name, statistics.median(values) * 1000)


async def streams(server: Server, seconds: float, busy: int) -> list[tuple[float, float]]:
    ended = False

    async def caller() -> None:
        while not ended:
            await server.run()

    others = [asyncio.create_task(caller()) for _ in range(busy)]
    begun, found = time.perf_counter(), list[tuple[float, float]]()
    try:
        while time.perf_counter() - begun < seconds or len(found) < 3:
            found.append(await server.stream())
    finally:
        ended = True
        await asyncio.gather(*others)
    return found


async def measure_thread(bench: Bench) -> None:
    lengths = [length for length in (1, 50, 125, 250, 500) if length <= bench.options.turns]
    curves: dict[str, dict[str, list[float]]] = {}
    async with bench.running() as servers:
        chats = [Chat.of(server, await server.thread()) for server in servers]
        chats += [Chat.of_reference(reference) for reference in bench.references]
        for length in lengths:
            for chat in chats:
                await chat.fill(length)
            for _ in range(bench.options.rounds):
                for chat in chats:
                    await chat.measure(length, bench.figures)
            for chat in chats:
                curve = curves.setdefault(
                    chat.name, {"length": [], "turn ms": [], "read ms": [], "bytes": []}
                )
                curve["length"].append(length)
                for name in ("turn", "read"):
                    values = bench.figures.rounds[f"{name} ms at {length} turns"][chat.name]
                    curve[f"{name} ms"].append(statistics.median(values))
                size = await chat.stored()
                if size is not None:
                    curve["bytes"].append(size / chat.turns_made)
                    bench.figures.add(
                        f"KB a turn at {length} turns", chat.name, size / chat.turns_made / 1024
                    )
    bench.figures.series["thread"] = curves


@dataclass(slots=True)
class Chat:
    """One growing thread of an arm."""

    name: str
    more: Callable[[int], Awaitable[object]]
    """Makes so many turns as fast as the arm can."""
    turn: Callable[[], Awaitable[float]]
    reads: Callable[[int], Awaitable[list[float]]]
    size: Callable[[], Awaitable[int | None]]
    turns_made: int = 0
    before: int | None = None

    @classmethod
    def of(cls, server: Server, thread_id: str) -> "Chat":
        async def more(count: int) -> None:
            await server.fill(thread_id, count)

        async def turn() -> float:
            return await timed(server.turn(thread_id))

        async def reads(count: int) -> list[float]:
            path = f"/threads/{thread_id}/state"
            return [await timed(server.client.ask("GET", path)) for _ in range(count)]

        async def size() -> int | None:
            return server.stored()

        return cls(server.name, more, turn, reads, size)

    @classmethod
    def of_reference(cls, reference: Reference) -> "Chat":
        async def more(count: int) -> None:
            await reference.ask("turns", thread_id="chat", count=count)

        async def turn() -> float:
            return float((await reference.ask("turns", thread_id="chat", count=1))["took"][0])

        async def reads(count: int) -> list[float]:
            return list((await reference.ask("reads", thread_id="chat", count=count))["took"])

        async def size() -> int | None:
            found = (await reference.ask("bytes"))["bytes"]
            return None if found is None else int(found)

        return cls(reference.name, more, turn, reads, size)

    async def fill(self, length: int) -> None:
        if self.before is None:
            self.before = await self.size()
        if length > self.turns_made:
            await self.more(length - self.turns_made)
            self.turns_made = length

    async def measure(self, length: int, figures: Figures) -> None:
        """One turn, and five reads. The first request of a round pays for a new connection, so it is not counted."""
        await self.reads(1)
        figures.add(f"turn ms at {length} turns", self.name, await self.turn() * 1000)
        self.turns_made += 1
        reads = await self.reads(5)
        figures.add(f"read ms at {length} turns", self.name, statistics.median(reads) * 1000)

    async def stored(self) -> int | None:
        size = await self.size()
        return None if size is None or self.before is None else size - self.before


async def timed(call: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await call
    return time.perf_counter() - begun


async def measure_memory(bench: Bench) -> None:
    async with bench.running() as servers:
        at = {server.name: [(0, server.resident())] for server in servers}
        batch = max(1, bench.options.runs // 10)
        for number in range(1, 11):
            for server in servers:
                await load(server, 16, seconds=600, most=batch)
                at[server.name].append((number * batch, server.resident()))
    for name, curve in at.items():
        for _, resident in curve[1:]:
            bench.figures.add("RSS during the runs MB", name, resident)
        bench.figures.add("RSS after a tenth MB", name, curve[1][1])
        bench.figures.add("RSS at the end MB", name, curve[-1][1])
    bench.figures.series["memory"] = at


SECTIONS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "start": measure_start,
    "cost": measure_cost,
    "stream": measure_stream,
    "thread": measure_thread,
    "memory": measure_memory,
}


def goals() -> list[Goal]:
    cpu, rate = "CPU ms at 16", "runs/s at 16"
    found = [
        Goal(
            "CPU an operation at 16: Clew SQLite of the bare graph in memory", (cpu, CLEW), (cpu, MEMORY), 4
        ),
        Goal("CPU an operation at 16: Clew SQLite of langgraph dev", (cpu, CLEW), (cpu, DEV), 1 / 3),
        Goal("CPU an operation at 16: Clew SQLite of Aegra and Postgres", (cpu, CLEW), (cpu, AEGRA), 1 / 6),
        Goal(
            "CPU an operation at 16: Clew Postgres of Aegra, both with Postgres",
            (cpu, CLEW_POSTGRES),
            (cpu, AEGRA),
            1 / 3,
        ),
        Goal("runs/s at 16: Clew SQLite of langgraph dev", (rate, CLEW), (rate, DEV), 3, at_least=True),
        Goal("runs/s at 16: Clew SQLite of Aegra", (rate, CLEW), (rate, AEGRA), 5, at_least=True),
        Goal("runs/s at 16: Clew Postgres of Aegra", (rate, CLEW_POSTGRES), (rate, AEGRA), 3, at_least=True),
        Goal("p50 at 1: Clew SQLite of Aegra", ("p50 ms at 1", CLEW), ("p50 ms at 1", AEGRA), 1 / 4),
        Goal(
            "p99 at 1 on Clew Postgres, of its p50",
            ("p99 ms at 1", CLEW_POSTGRES),
            ("p50 ms at 1", CLEW_POSTGRES),
            3,
        ),
    ]
    for ours in OURS:
        for peer in PEERS:
            for what, metric, limit in (
                ("first event, busy", "first event ms, busy", 1 / 4),
                ("first update, busy", "first update ms, busy", 1 / 4),
                ("start to first 200", "start to first 200 s", 1 / 2),
                ("RSS after start", "RSS after start MB", 1),
                ("RSS during the runs", "RSS during the runs MB", 1),
            ):
                found.append(Goal(f"{what}: {ours} of {peer}", (metric, ours), (metric, peer), limit))
        end, tenth = ("RSS at the end MB", ours), ("RSS after a tenth MB", ours)
        found.append(Goal(f"RSS growth: {ours}, at the end of after a tenth", end, tenth, 1.1))
    return found


async def main(options: argparse.Namespace) -> None:
    end_on_signal()
    figures = Figures.load("peers")
    asked = options.only or list(SECTIONS)
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder())
        bench = prepare_bench(figures, options, folder, stack)
        for name in asked:
            figures.begin(name)
            await SECTIONS[name](bench)
            figures.save(goals())
            print(f"\n{name}\n{figures.table(name)}", flush=True)
    print()
    for ratio in figures.save(goals()):
        print(ratio)


def prepare_bench(figures: Figures, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Bench:
    python = find_python(options.python)
    figures.versions.clear()
    figures.absent.clear()
    servers: list[Server] = []
    references: list[Reference] = []
    for name, environment, kind in (
        (CLEW, "clew", ClewServer),
        (CLEW_POSTGRES, "clew", ClewServer),
        (DEV, "langgraph-dev", LangGraphDev),
        (AEGRA, "aegra", AegraServer),
        (MEMORY, "bare", "memory"),
        (SAVER, "bare", "sqlite"),
    ):
        try:
            made = prepare(environment, python)
        except Absent as absent:
            figures.absent[name] = str(absent)
            print(f"absent: {absent}")
            continue
        figures.versions[name] = made.versions
        print(f"{name}: " + ", ".join(f"{package} {version}" for package, version in made.versions.items()))
        if isinstance(kind, str):
            references.append(Reference(name, made, kind))
            stack.callback(references[-1].close)
            continue
        postgres = None
        if name in (CLEW_POSTGRES, AEGRA):
            postgres = stack.enter_context(postgres_server())
            postgres.create_database("bench")
        servers.append(kind(name, made, folder / name.replace(" ", "-"), postgres))
    return Bench(servers, references, figures, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=SECTIONS, help="sections to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement of `cost`")
    parser.add_argument("--turns", type=int, default=500, help="of `thread`")
    parser.add_argument("--runs", type=int, default=10_000, help="of `memory`")
    parser.add_argument("--python", help="the Python of all arms")
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        uvloop.run(main(parser.parse_args()))
