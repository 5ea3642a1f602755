"""What a run asks of the database, and what a large database costs: 10,000 threads with 1,000,000 events against 100.

    PYTHONPATH=. python benchmarks/statements.py [--only counts scale] [--rounds 7] [--threads 10000] [--events 100]

`counts` makes runs of two nodes over HTTP in this process, one after another, each in a thread that is there: statements a run
(BEGIN, COMMIT and settings not counted), and write transactions a run before group commit joins some of them. The least of twenty
runs is what a run needs; the mean also has what the process does now and then, such as indexing messages.
`scale` fills two databases of each kind with threads of 100 events, serves each with a process of its own and asks both in turns:
lists, a search for a word, a status, the newest events of a thread; and the start of a process to its first 200.
"""

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import uvloop

from benchmarks.arms.environments import Environment
from benchmarks.arms.figures import Figures, Goal
from benchmarks.arms.servers import ClewServer, end_on_signal, work_folder
from benchmarks.arms.statement_counts import Counts, counting
from clew.config import load_settings
from clew.domain.events import AssistantMessage, Log, Opening
from clew.domain.lifecycle import Change, Stamp, finish, open_thread, record
from clew.domain.thread import Owner, Status
from clew.server.app import Server, open_app
from clew.server.database import new_id, utc_now
from tests.app import open_house
from tests.http_client import client_of
from tests.postgres import PostgresServer, postgres_server

FEW = 100
KINDS = ("SQLite", "Postgres")
ASKED = ("list threads", "search threads", "search words", "status", "tail")
HERE = Path(__file__).parents[1]


async def measure_counts(figures: Figures, options: argparse.Namespace, server: PostgresServer) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = {"SQLite": f"{folder}/counts.db", "Postgres": server.create_database("counts")}
        for kind, where in places.items():
            with pytest.MonkeyPatch.context() as patch, counting(where, patch) as counter:
                async with open_house(where, Path(folder)) as house, client_of(house.app.http) as http:
                    await make_runs(http, await make_threads(http, 5))
                    for _ in range(options.rounds):
                        threads, found = await make_threads(http, 20), list[Counts]()
                        counter.take()
                        for thread_id in threads:
                            await make_runs(http, [thread_id])
                            found.append(counter.take())
                        for metric, values in (
                            ("statements", [each.statements for each in found]),
                            ("write transactions", [each.writes for each in found]),
                        ):
                            figures.add(f"{metric} of a run", kind, min(values))
                            figures.add(f"{metric} a run, background too", kind, statistics.mean(values))
                        figures.add("one", kind, 1.0)


async def make_threads(http: Any, count: int) -> list[str]:
    return [(await http.post("/threads", json={})).json()["thread_id"] for _ in range(count)]


async def make_runs(http: Any, threads: list[str]) -> None:
    for thread_id in threads:
        body = {"assistant_id": "two_steps", "input": {"log": [], "marks": ""}}
        answer = await http.post(f"/threads/{thread_id}/runs/wait", json=body)
        if answer.status_code != 200:
            raise RuntimeError(answer.text)


async def measure_scale(figures: Figures, options: argparse.Namespace, server: PostgresServer) -> None:
    with work_folder() as folder:
        sizes = {"few": FEW, "many": options.threads}
        arms: dict[tuple[str, str], ScaleArm] = {}
        for kind in KINDS:
            for size, threads in sizes.items():
                arm = arms[kind, size] = ScaleArm(
                    f"{kind}-{size}", folder, server if kind == "Postgres" else None
                )
                begun = time.perf_counter()
                await arm.fill(threads, options.events)
                print(f"{kind}: {threads:,} threads, {time.perf_counter() - begun:.0f} s", flush=True)
        for _ in range(options.rounds):
            for (kind, size), arm in arms.items():
                figures.add(f"start s, {size}", kind, await arm.server.start())
                await arm.server.spent_idle()
                arm.server.stop()
        async with running(list(arms.values())):
            for arm in arms.values():
                await arm.ask_all(3)
            for _ in range(options.rounds):
                for (kind, size), arm in arms.items():
                    for name, took in (await arm.ask_all(30)).items():
                        figures.add(f"{name} ms, {size}", kind, statistics.median(took) * 1000)


@asynccontextmanager
async def running(arms: "list[ScaleArm]") -> AsyncIterator[None]:
    try:
        for arm in arms:
            await arm.server.start()
        yield
    finally:
        for arm in arms:
            arm.server.stop()


class OwnServer(ClewServer):
    """Clew of this environment, on a database that was filled."""

    async def spent_idle(self) -> None:
        """Ask once, so that a start that answers before it can do anything is not all that was measured."""
        await self.client.ask("GET", "/api/threads?limit=1")


class ScaleArm:
    def __init__(self, name: str, folder: Path, postgres: PostgresServer | None) -> None:
        environment = Environment(HERE / ".venv", {})
        self._name, self._postgres = name, postgres
        self._ids: list[str] = []
        self._folder = folder / name
        self.server = _Placed(name, environment, self._folder, postgres)
        self._url = self.server.url

    async def fill(self, threads: int, events: int) -> None:
        if self._postgres is not None:
            self._postgres.create_database(self._name)
        settings = load_settings({"CLEW_DATABASE_URL": self._url}, cwd=self._folder)
        async with open_app(settings) as app:
            self._ids = [new_id() for _ in range(threads)]
            for first in range(0, threads, 128):
                await asyncio.gather(
                    *(fill_one(app, each, events) for each in self._ids[first : first + 128])
                )
        if self._postgres is not None:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")  # as autovacuum would within a minute

    def _indexed(self) -> int:
        """Threads whose messages can be found."""
        count = "SELECT count(*) FROM search_positions"
        if self._postgres is None:
            with closing(sqlite3.connect(self._folder / "clew.db")) as file:
                return int(file.execute(count).fetchone()[0])
        with psycopg.connect(self._url) as connection:
            found = connection.execute(count).fetchone()
            return int(found[0]) if found else 0

    async def ask_all(self, count: int) -> dict[str, list[float]]:
        self.server.client.hang_up()
        ids = [self._ids[n * 7919 % len(self._ids)] for n in range(count)]
        ask = self.server.client.ask
        calls: dict[str, Callable[[str], Awaitable[bytes]]] = {
            "list threads": lambda _: ask("GET", "/api/threads?limit=50"),
            "search threads": lambda _: ask("POST", "/threads/search", b'{"limit": 50, "status": "idle"}'),
            "search words": lambda each: ask("GET", f"/api/threads/search?q={word_of(each)}"),
            "status": lambda each: ask("GET", f"/api/workflows/{each}/status"),
            "tail": lambda each: ask("GET", f"/api/threads/{each}/events?limit=20"),
        }
        found: dict[str, list[float]] = {}
        for name, call in calls.items():
            answer = await call(ids[0])  # pays for the connection
            if self._ids[0].encode() not in answer and name == "search words":
                raise RuntimeError(f"{name} found {answer[:300]!r}")
            for each in ids:
                begun = time.perf_counter()
                await call(each)
                found.setdefault(name, []).append(time.perf_counter() - begun)
        return found


class _Placed(OwnServer):
    @property
    def url(self) -> str:
        if self._postgres is None:
            return f"sqlite:///{self._folder}/clew.db"
        return self._postgres.url(self.name)

    def variables(self, port: int) -> dict[str, str]:  # noqa: ARG002 - another kind needs it
        return {"CLEW_DATABASE_URL": self.url}


async def fill_one(app: Server, thread_id: str, events: int) -> None:
    """A thread that has ended, with so many events, one of them a message with a word of its own."""
    opened = open_thread(
        thread_id, Opening(owner=Owner(), graph="chat", ttl=timedelta(days=30)), "hello", stamp=stamp()
    )
    said = AssistantMessage(content=f"the word of this thread is {word_of(thread_id)}")
    logs = [Log(message=f"step {n}") for n in range(events - len(opened.events) - 2)]
    noted = record(opened.thread, [said, *logs], stamp=stamp())
    ended = finish(noted.thread, Status.COMPLETED, stamp=stamp())
    # In one commit: a runner would take up a thread that it sees running.
    await app.stores.threads.commit(Change(ended.thread, opened.events + noted.events + ended.events))


def word_of(thread_id: str) -> str:
    return "w" + thread_id.replace("-", "")[-12:]


def stamp() -> Stamp:
    return Stamp(utc_now(), new_id)


def goals() -> list[Goal]:
    found = [
        Goal(
            f"write transactions of a run of two nodes, {kind}",
            ("write transactions of a run", kind),
            ("one", kind),
            5,
        )
        for kind in KINDS
    ]
    for kind in KINDS:
        for name in (*(f"{each} ms" for each in ASKED), "start s"):
            many, few = (f"{name}, many", kind), (f"{name}, few", kind)
            found.append(Goal(f"10,000 threads of 100, {kind}: {name.rpartition(' ')[0]}", many, few, 2))
    return found


async def main(options: argparse.Namespace) -> None:
    end_on_signal()
    figures = Figures.load("statements")
    sections = {"counts": measure_counts, "scale": measure_scale}
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server())
        for name in options.only or sections:
            figures.begin(name)
            await sections[name](figures, options, server)
            figures.save(goals())
            print(f"\n{name}\n{figures.table(name)}", flush=True)
    print()
    for ratio in figures.save(goals()):
        print(ratio)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=("counts", "scale"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=100, help="of each thread")
    uvloop.run(main(parser.parse_args()))
