"""Our checkpointer against LangGraph's packaged ones and against no checkpointer at all, on a chat that grows.

    python benchmarks/checkpoints.py [--turns 1000 3000] [--packaged-turns 1000] [--no-postgres] [--durability sync]

A turn is a user message and an answer of 200 characters each. All arms take their turns one after the other, so that
whatever else the machine does meets them alike; what is printed are medians. Without a checkpointer the whole chat is
handed in again with every turn: that is what a graph of this size costs by itself. The packaged savers grow by the
square of the turns (gigabytes at 3,000), so they stop at --packaged-turns.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import uvloop
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from clew import create_checkpointer

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.postgres import postgres_server

THREAD = "4f1f9d0e-5b0e-4b52-9b0a-6f5a3c1d2e7f"
WINDOW = 50  # the turns before a mark whose times count
WORDS = [f"{random.Random(n).getrandbits(28):x}" for n in range(2000)]


def text() -> str:
    return " ".join(random.choices(WORDS, k=40))[:200]


async def answer(state: MessagesState) -> dict[str, Any]:  # noqa: ARG001 - every answer is the same
    return {"messages": [AIMessage(text())]}


def compiled(saver: BaseCheckpointSaver[Any] | None) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


@asynccontextmanager
async def open_saver(kind: str, where: str) -> AsyncGenerator[BaseCheckpointSaver[Any]]:
    """A saver on a database of its own; `where` is a file or a DSN."""
    match kind:
        case "clew sqlite":
            async with create_checkpointer(f"sqlite:///{where}") as ours:
                yield ours
        case "clew postgres":
            async with create_checkpointer(where) as ours:
                yield ours
        case "packaged sqlite":
            async with AsyncSqliteSaver.from_conn_string(where) as packaged:
                await packaged.setup()
                yield packaged
        case "packaged postgres":
            options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            async with AsyncConnectionPool(where, max_size=10, kwargs=options, open=False) as pool:
                saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
                await saver.setup()
                yield saver
        case _:
            raise ValueError(kind)


@dataclass
class Arm:
    name: str
    graph: Any
    where: str = ""
    durability: str | None = None
    chat: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    async def turn(self) -> None:
        said = [HumanMessage(text())]
        started, busy = time.perf_counter(), time.process_time()
        if self.durability is None:
            self.chat = (await self.graph.ainvoke({"messages": self.chat + said}))["messages"]
        else:
            await self.graph.ainvoke({"messages": said}, on(THREAD), durability=self.durability)
        self.times.append(time.perf_counter() - started)
        self.cpu.append(time.process_time() - busy)

    async def read(self) -> float:
        started = time.perf_counter()
        state = await self.graph.aget_state(on(THREAD))
        elapsed = time.perf_counter() - started
        assert len(state.values["messages"]) == 2 * len(self.times)
        return elapsed

    def bytes_on_disk(self) -> int:
        if not self.where.startswith("postgres"):
            with closing(sqlite3.connect(self.where)) as file:
                # What is on its way into the file counts as in it.
                file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return Path(self.where).stat().st_size
        with psycopg.connect(self.where) as connection:
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
                " WHERE relkind = 'r' AND relname LIKE 'checkpoint%'"
            ).fetchone()
        assert row is not None
        return int(row[0])


def on(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


async def read_cold(kind: str, where: str) -> None:
    """In a process of its own: open, warm the interpreter up on an empty thread, read the long one."""
    async with open_saver(kind, where) as saver:
        graph = compiled(saver)
        await graph.aget_state(on("nobody"))
        started = time.perf_counter()
        state = await graph.aget_state(on(THREAD))
        print(json.dumps([time.perf_counter() - started, len(state.values["messages"])]))


def cold(arm: Arm, rounds: int = 3) -> float:
    command = [sys.executable, __file__, "--read-cold", arm.name, arm.where]
    seconds: list[float] = []
    for _ in range(rounds):
        elapsed, count = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert count == 2 * len(arm.times)
        seconds.append(elapsed)
    return statistics.median(seconds)


async def grow(arms: Sequence[Arm], marks: Sequence[int], packaged_turns: int) -> None:
    """Let every chat grow to the last mark, and measure at each."""
    order = list(arms)
    results: dict[int, dict[str, dict[str, float]]] = {}
    for turn in range(1, max(marks) + 1):
        random.shuffle(order)
        for arm in order:
            if turn <= packaged_turns or "packaged" not in arm.name:
                await arm.turn()
        if turn % 100 == 0:
            print(f"\r{turn} turns", end="", file=sys.stderr, flush=True)
        if turn not in marks:
            continue
        found = results[turn] = {}
        for arm in arms:
            if len(arm.times) < turn:
                continue
            found[arm.name] = {
                "turn ms": statistics.median(arm.times[-WINDOW:]) * 1e3,
                "turn cpu ms": statistics.median(arm.cpu[-WINDOW:]) * 1e3,
            }
            if arm.durability is not None:
                warm = [await arm.read() for _ in range(30)]
                found[arm.name] |= {
                    "MB": arm.bytes_on_disk() / 1e6,
                    "warm ms": statistics.median(warm) * 1e3,
                    "cold ms": cold(arm) * 1e3,
                }
    print(file=sys.stderr)
    for turns, found in results.items():
        print(f"\n{turns} turns")
        table(found)
        if turns >= 1000:
            judge(found)


async def together(arms: Sequence[Arm], threads: int, history: int) -> None:
    """Many threads at once, each with this many turns behind it: how many turns a second."""
    rates: dict[str, list[float]] = defaultdict(list)
    turns, rounds = (10, 5) if not history else (3, 3)

    async def prepare(arm: Arm, thread_id: str) -> None:
        chat = [message for _ in range(history) for message in (HumanMessage(text()), AIMessage(text()))]
        if chat:
            await arm.graph.aupdate_state(on(thread_id), {"messages": chat}, as_node="answer")
            await arm.graph.aget_state(on(thread_id))

    async def talk(arm: Arm, thread_id: str) -> None:
        for _ in range(turns):
            await arm.graph.ainvoke(
                {"messages": [HumanMessage(text())]}, on(thread_id), durability=arm.durability
            )

    names = [f"{history}-{number}" for number in range(threads)]
    for arm in arms:
        for name in names:
            await prepare(arm, name)
    for _ in range(rounds):
        for arm in arms:
            started = time.perf_counter()
            await asyncio.gather(*(talk(arm, name) for name in names))
            rates[arm.name].append(threads * turns / (time.perf_counter() - started))
    print(f"\n{threads} threads at once, {history} turns behind each")
    found = {name: {"turns/s": statistics.median(rate)} for name, rate in rates.items()}
    table(found)
    for database in ("sqlite", "postgres"):
        if f"clew {database}" in found:
            ratio = found[f"clew {database}"]["turns/s"] / found[f"packaged {database}"]["turns/s"]
            what = f"{database}: turns/s, times the packaged one"
            goal(what, ratio, at_least=3 if history >= 1000 else None)


def table(found: dict[str, dict[str, float]]) -> None:
    columns = list(dict.fromkeys(column for values in found.values() for column in values))
    print(f"{'':20}" + "".join(f"{column:>12}" for column in columns))
    for name, values in found.items():
        cells = (f"{values[column]:12.2f}" if column in values else f"{'-':>12}" for column in columns)
        print(f"{name:20}" + "".join(cells))


def judge(found: dict[str, dict[str, float]]) -> None:
    """The goals are for a thousand turns; before, the fixed costs count for more."""
    alone, biggest = found["no checkpointer"], found.get("packaged sqlite")
    for database in ("sqlite", "postgres"):
        ours, packaged = found.get(f"clew {database}"), found.get(f"packaged {database}")
        if ours is None:
            continue
        # A commit on Postgres is several round trips, each about as long as a small turn.
        most = 1.5 if database == "sqlite" else None
        goal(f"{database}: turn, times no checkpointer", ours["turn ms"] / alone["turn ms"], at_most=most)
        goal(f"{database}: its CPU, times no checkpointer", ours["turn cpu ms"] / alone["turn cpu ms"])
        if packaged is None or biggest is None:
            continue
        goal(f"{database}: turn, of the packaged one", ours["turn ms"] / packaged["turn ms"], at_most=1 / 6)
        goal(f"{database}: bytes, of packaged SQLite", ours["MB"] / biggest["MB"], at_most=1 / 200)
        goal(f"{database}: cold read, of the packaged one", ours["cold ms"] / packaged["cold ms"], at_most=1)
        goal(
            f"{database}: warm read, of the packaged one",
            ours["warm ms"] / packaged["warm ms"],
            at_most=1 / 50,
        )


def goal(what: str, ratio: float, *, at_most: float | None = None, at_least: float | None = None) -> None:
    if at_most is None and at_least is None:
        print(f"       {what}: {_ratio(ratio)}")
        return
    met = (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
    wanted = f"<= {_ratio(at_most)}" if at_most is not None else f">= {_ratio(at_least or 0)}"
    print(f"  {'ok  ' if met else 'MISS'} {what}: {_ratio(ratio)} (goal {wanted})")


def _ratio(value: float) -> str:
    return f"1/{1 / value:.1f}" if value < 0.5 else f"{value:.2f}"


async def run(options: argparse.Namespace, folder: Path, postgres: Any) -> None:
    async with AsyncExitStack() as stack:
        arms = [Arm("no checkpointer", compiled(None))]
        for kind in ("clew sqlite", "packaged sqlite", "clew postgres", "packaged postgres"):
            name = kind.replace(" ", "_")
            if kind.endswith("postgres") and postgres is None:
                continue
            where = postgres.create_database(name) if kind.endswith("postgres") else f"{folder}/{name}.db"
            saver = await stack.enter_async_context(open_saver(kind, where))
            arms.append(Arm(kind, compiled(saver), where, options.durability))
        await grow(arms, sorted(options.turns), options.packaged_turns)
        for history in options.histories:
            await together(arms[1:], options.threads, history)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--packaged-turns", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--histories", type=int, nargs="*", default=[0, 1000])
    parser.add_argument("--durability", choices=["sync", "async", "exit"], default="sync")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--read-cold", nargs=2, metavar=("ARM", "WHERE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read_cold:
        uvloop.run(read_cold(*options.read_cold))
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        nullcontext(None) if options.no_postgres else postgres_server() as postgres,
    ):
        # The loop our server runs on, for every arm.
        uvloop.run(run(options, Path(folder), postgres))


if __name__ == "__main__":
    main()
