"""Load for as long as `--soak` says: memory, descriptors, WAL and tables of a process stay as they were after its first minutes."""

import sqlite3
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import pytest

from clew.stores.sql.purge import PURGED
from tests.databases import locate
from tests.faults.forkserver import ForkServer
from tests.faults.report import Trials
from tests.faults.sink import Sink, sink
from tests.faults.stage import CLEANUP_KEY, Client, Server, Stage

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * 3600)]

AT_ONCE = 4
MEGABYTE = 1 << 20
WAL = 64 * MEGABYTE  # what SQLite keeps of it, by `journal_size_limit`
PLACES = ("sqlite", "postgres", "postgres, workers")
# A tool, and no question: neither waits for a person.
TOOLS = ("effect", "effect_once")


@pytest.fixture(scope="module")
def world() -> Iterator[Sink]:
    with sink() as there:
        yield there


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes have, together, and the database."""

    at: float
    memory: int
    descriptors: int
    threads: int
    wal: int


@dataclass(slots=True)
class Soak:
    """Clients that start, follow and delete workflows, one after another."""

    stage: Stage
    world: Sink
    server: Server
    pids: list[int]
    is_over: threading.Event = field(default_factory=threading.Event)
    done: int = 0
    samples: list[Sample] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, name: str) -> None:
        number = 0
        while not self.is_over.is_set():
            number += 1
            tool = TOOLS[number % len(TOOLS)]
            place = f"{name}-{number}"
            client = Client(place, self.world, "acting", (f"tools: {tool} at={self.world.place(place)}",))
            client.listen(self.server)
            client.carry_on(self.server)
            assert client.thread["status"] == "completed"
            assert len(self.world.received(place)) >= 1
            answer = self.server.ask("DELETE", f"/api/workflows/{client.thread_id}")
            assert answer.status_code == 200, answer.text
            with self.lock:
                self.done += 1

    def sample(self) -> None:
        processes = [psutil.Process(pid) for pid in self.pids]
        wal = Path(f"{self.stage.where}-wal")
        self.samples.append(
            Sample(
                at=time.monotonic(),
                memory=sum(process.memory_info().rss for process in processes),
                descriptors=sum(process.num_fds() for process in processes),
                threads=sum(process.num_threads() for process in processes),
                wal=wal.stat().st_size if wal.exists() else 0,
            )
        )


def rows_left(where: str) -> dict[str, int]:
    """Tables of threads in which something of a deleted one is left."""
    tables = [*PURGED, "threads"]
    if where.startswith("postgres"):
        with psycopg.connect(where) as connection:
            counts = {
                table: connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
                for table in tables
            }
    else:
        with closing(sqlite3.connect(where)) as file:
            counts = {table: file.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables}
    return {table: count[0] for table, count in counts.items() if count is not None and count[0]}


@pytest.mark.fault("B11")
@pytest.mark.parametrize("place", PLACES)
def test_nothing_grows(
    place: str,
    request: pytest.FixtureRequest,
    forks: ForkServer,
    world: Sink,
    tmp_path: Path,
    trials: Trials,
    soak_seconds: float,
) -> None:
    where = locate("sqlite" if place == "sqlite" else "postgres", request)
    kind = "workers" if "workers" in place else "local"
    stage = Stage(forks, where, tmp_path / "stage", {"CLEW_RUNNER_KIND": kind})
    with ExitStack() as stack:
        server = stack.enter_context(stage.serving())
        worker = [stack.enter_context(stage.working())] if kind == "workers" else []
        soak = Soak(stage, world, server, [server.child.pid, *(one.pid for one in worker)])
        threads = [threading.Thread(target=soak.work, args=(f"{place}-{n}",)) for n in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        while time.monotonic() - begun < soak_seconds and all(thread.is_alive() for thread in threads):
            soak.sample()
            time.sleep(min(5.0, soak_seconds / 40))  # a sample now and then
        assert all(thread.is_alive() for thread in threads), "a client met an error"
        soak.is_over.set()
        for thread in threads:
            thread.join()
        cleaned = server.ask("POST", "/api/optimize/cleanup", headers={"X-API-Key": CLEANUP_KEY})
        assert cleaned.status_code == 200
        left = rows_left(where)
    trials.made = soak.done
    first, last = halves(soak.samples)
    grown = {name: mean(last, name) - mean(first, name) for name in ("memory", "descriptors", "threads")}
    trials.note(
        f"{soak_seconds / 60:.0f} minutes, {soak.done} workflows: memory {mean(last, 'memory') / MEGABYTE:.0f} MiB"
        f" ({grown['memory'] / MEGABYTE:+.1f} from the third quarter to the last),"
        f" descriptors {mean(last, 'descriptors'):.0f} ({grown['descriptors']:+.1f}),"
        f" WAL at most {max(one.wal for one in soak.samples) / MEGABYTE:.1f} MiB"
    )
    assert left == {}
    assert max(one.wal for one in soak.samples) <= WAL
    assert grown["descriptors"] <= 5
    assert grown["threads"] <= 5
    # A quarter in which each workflow left a kilobyte behind would be seen.
    assert grown["memory"] <= max(0.03 * mean(first, "memory"), 1024 * soak.done / 4)


def halves(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """The third quarter and the last: what is kept on purpose is full by then."""
    quarter = max(1, len(samples) // 4)
    return samples[-2 * quarter : -quarter], samples[-quarter:]


def mean(samples: list[Sample], name: str) -> float:
    return float(statistics.mean(getattr(sample, name) for sample in samples))
