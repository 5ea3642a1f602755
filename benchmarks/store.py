"""How fast acknowledged commits and tail reads are on SQLite, against the obvious way and against the disk itself.

Three arms, interleaved in one run so that a slow minute of the machine hits all of them:

* clew: `Store.commit`, the writer thread with group commit
* plain: the same statements with the same arguments on one aiosqlite connection with the same pragmas, a transaction
  for each commit, one after another (several connections would only wait for each other's lock)
* disk: how often a second one page of a file can be written and made durable, as a WAL does that has its size

Every caller appends messages of 200 characters to a thread of its own and waits for each to be durable. A ratio is the
median of the ratios of neighbours in time, not the ratio of two medians.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiosqlite

from clew.domain.events import Opening, UserMessage
from clew.domain.lifecycle import Change, Stamp, open_thread, record
from clew.domain.thread import Owner
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Many, Statement, Update, Work
from clew.stores.sqlite import numbered, open_sqlite

CALLERS = (1, 16, 64)
LENGTHS = (1_000, 10_000, 100_000)
TAIL = 20
GOAL_AT_64 = 8.0
GOAL_FLAT = 1.5
PAGE = os.urandom(4096)
WAL_PAGES = 1000
MOST = 30_000  # commits a second; more than any arm reaches

Commit = Callable[[Change], Awaitable[None]]
_ids = itertools.count()


def stamp() -> Stamp:
    return Stamp(datetime.now(UTC), lambda: f"{next(_ids):032x}")


@dataclass
class Arm:
    """What one way of doing it measured, one figure a repetition."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def times(self, other: "Arm") -> float:
        """How much faster than another one that ran beside it."""
        return statistics.median(mine / its for mine, its in zip(self.rates, other.rates, strict=True))

    def quantile(self, share: float) -> float:
        return sorted(self.waits)[int(share * (len(self.waits) - 1))]


def conversation(length: int) -> Iterator[Change]:
    """A thread's changes, one message each. Made beforehand: the store is measured, not who decides what to store."""
    change = open_thread(f"t{next(_ids)}", Opening(owner=Owner(), graph="chat"), "hello", stamp=stamp())
    yield change
    for _ in range(length):
        change = record(change.thread, [UserMessage(content="x" * 200)], stamp=stamp())
        yield change


async def load(commit: Commit, callers: int, seconds: float, arm: Arm) -> None:
    """Let so many callers commit for so long."""
    conversations = [list(conversation(int(MOST * seconds / callers))) for _ in range(callers)]
    done = 0

    async def caller(changes: Iterable[Change]) -> None:
        nonlocal done
        for change in changes:
            before = time.perf_counter()
            if before > end:
                break
            await commit(change)
            arm.waits.append(time.perf_counter() - before)
            done += 1

    for first, *_ in conversations:
        await commit(first)
    start, start_cpu = time.perf_counter(), time.process_time()
    end = start + seconds
    await asyncio.gather(*(caller(changes[1:]) for changes in conversations))
    arm.rates.append(done / (time.perf_counter() - start))
    arm.cpu.append((time.process_time() - start_cpu) / done)


@asynccontextmanager
async def clew(folder: Path) -> AsyncIterator[Commit]:
    async with open_sqlite(folder / "clew.sqlite") as db:
        yield ThreadRows(db).commit


@asynccontextmanager
async def plain(folder: Path) -> AsyncIterator[Commit]:
    path = folder / "plain.sqlite"
    async with open_sqlite(path):
        pass  # for the tables
    async with aiosqlite.connect(path, isolation_level=None, cached_statements=512) as connection:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "journal_size_limit = 67108864"):
            await connection.execute(f"PRAGMA {pragma}")
        lock = asyncio.Lock()
        statements: Callable[[Any, Change], Work[None]] = ThreadRows.commit.__wrapped__  # type: ignore[attr-defined]

        async def commit(change: Change) -> None:
            async with lock:
                await connection.execute("BEGIN IMMEDIATE")
                await drive(connection, statements(None, change))
                await connection.execute("COMMIT")

        yield commit


async def drive(connection: aiosqlite.Connection, work: Work[None]) -> None:
    rows: Any = None
    while True:
        try:
            step = work.send(rows)
        except StopIteration:
            return
        if isinstance(step, Many):
            await connection.executemany(numbered(step.sql), step.rows)
        elif isinstance(step, Update):
            cursor = await connection.execute(numbered(step.sql), step.args)
            rows = ((cursor.rowcount,),)
        elif isinstance(step, Statement):
            rows = await connection.execute_fetchall(numbered(step.sql), step.args)


def disk(folder: Path, seconds: float, arm: Arm) -> None:
    file = os.open(folder / "disk", os.O_CREAT | os.O_WRONLY)
    os.write(file, PAGE * WAL_PAGES)
    os.fsync(file)
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        os.pwrite(file, PAGE, done % WAL_PAGES * len(PAGE))
        os.fdatasync(file)
        done += 1
    arm.rates.append(done / (time.perf_counter() - start))
    os.close(file)


async def measure_commits(folder: Path, seconds: float, repeat: int) -> None:
    ours, theirs, disks = ({callers: Arm() for callers in CALLERS} for _ in range(3))
    async with clew(folder) as commit, plain(folder) as plain_commit:
        for repetition in range(repeat):
            for callers in CALLERS:
                arms = [(commit, ours[callers]), (plain_commit, theirs[callers])]
                for way, arm in arms if repetition % 2 else arms[::-1]:
                    await load(way, callers, seconds, arm)
                disk(folder, seconds / 2, disks[callers])
    print(f"Acknowledged commits a second, median of {repeat} times {seconds:g} s\n")
    print(
        "callers     clew    plain     disk   clew/plain   clew/disk   CPU us: clew  plain   p99 ms: clew   plain"
    )
    for callers in CALLERS:
        mine, its = ours[callers], theirs[callers]
        print(
            f"{callers:7} {mine.rate:8,.0f} {its.rate:8,.0f} {disks[callers].rate:8,.0f}"
            f" {mine.times(its):11.1f}x {mine.times(disks[callers]):10.2f}x"
            f" {statistics.median(mine.cpu) * 1e6:14.0f} {statistics.median(its.cpu) * 1e6:6.0f}"
            f" {mine.quantile(0.99) * 1e3:14.1f} {its.quantile(0.99) * 1e3:7.1f}"
        )
    ratio = ours[64].times(theirs[64])
    print(
        f"\nGroup commit at 64 callers: {ratio:.1f} times plain (goal {GOAL_AT_64:g}): {verdict(ratio >= GOAL_AT_64)}\n"
    )


async def measure_tails(folder: Path, repeat: int) -> None:
    async with open_sqlite(folder / "tails.sqlite") as db:
        store = ThreadRows(db)
        for length in LENGTHS:
            await fill(store, f"t{length}", length)
        seconds: dict[int, list[float]] = {length: [] for length in LENGTHS}
        for _ in range(20 * repeat):
            for length in LENGTHS:
                before = time.perf_counter()
                tail = await store.read(f"t{length}", newest=True, limit=TAIL)
                seconds[length].append(time.perf_counter() - before)
                assert [event.seq for event in tail] == list(range(length - TAIL + 1, length + 1))
    medians = {length: statistics.median(seconds[length]) for length in LENGTHS}
    print(f"Reading the newest {TAIL} events of a thread, median of {20 * repeat}\n")
    print(" events   microseconds   ratio")
    for length in LENGTHS:
        print(f"{length:7,} {medians[length] * 1e6:14.0f} {medians[length] / medians[LENGTHS[0]]:6.2f}x")
    worst = max(medians.values()) / min(medians.values())
    print(f"\nFlat within {worst:.2f} times (goal {GOAL_FLAT:g}): {verdict(worst <= GOAL_FLAT)}")


async def fill(store: ThreadRows, thread_id: str, length: int) -> None:
    change = open_thread(thread_id, Opening(owner=Owner(), graph="chat"), None, stamp=stamp())
    await store.commit(change)
    while (left := length - change.thread.last_seq) > 0:
        messages = [UserMessage(content="x" * 200)] * min(left, 1000)
        change = record(change.thread, messages, stamp=stamp())
        await store.commit(change)


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=0.2, help="how long each arm runs in each repetition"
    )
    parser.add_argument("--repeat", type=int, default=25)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=given.folder) as folder:
        asyncio.run(measure_commits(Path(folder), given.seconds, given.repeat))
        asyncio.run(measure_tails(Path(folder), given.repeat))


if __name__ == "__main__":
    main()
