"""What the processes under test do to a store: open it, append to threads and say what was acknowledged, check it."""

import asyncio
import hashlib
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clew import failpoints
from clew.domain.errors import Corrupt, NotFound, Unavailable
from clew.domain.events import Log, Opening, rebuild
from clew.domain.lifecycle import (
    Change,
    Stamp,
    expire,
    finish,
    next_round,
    open_thread,
    record,
    resolve,
    stop,
)
from clew.domain.thread import Status
from clew.domain.tool_calls import CallStatus, fold_calls
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.sql import migrate
from clew.stores.sql.tool_calls import CallRows
from clew.stores.sql.work import Database
from tests.databases import later_migrations, open_database, open_store, query, schema_of
from tests.faults.power import READ, Switches
from tests.samples import ANN, NOW, asks, opened, said, suspend, waits

Report = Callable[[Any], None]
CONVERSATIONS = 8


def append(report: Report, *, where: str, seed: str, failpoint: str = "", pages: int | None = None) -> None:
    """Commit to several threads at once, and report each commit once it was acknowledged, until the test kills it.

    `pages`: after so many pages in its WAL, SQLite copies them into the file; unless given, rarely.
    """

    async def main() -> None:
        async with open_database(where) as db, asyncio.TaskGroup() as tasks:
            if pages is not None:
                await query(db, f"PRAGMA wal_autocheckpoint = {pages}")
            failpoints.install(failpoint)
            report("opened")
            for n in range(CONVERSATIONS):
                tasks.create_task(_converse(report, db, f"t{n}", random.Random(f"{seed} {n}")))

    asyncio.run(main())


def endure(
    report: Report, *, where: str, seed: str, control: str, fault: dict[str, int], commits: int
) -> None:
    """Commit so often to several threads while calls fail, each as often as it needs; report what was acknowledged.

    A commit that failed is an outage or a full disk to us, whatever the system call was. But SQLite calls a file damaged
    when the system answers EIO to a read.
    """

    async def converse(db: Database, thread_id: str, chance: random.Random) -> None:
        store, calls = open_store(db), CallRows(db)
        outages = (Unavailable, Corrupt) if fault["kinds"] == READ else Unavailable
        done = 0
        while done < commits:
            tag = f"{chance.getrandbits(64):016x}"
            try:
                change = await _next(store, calls, thread_id, chance, Tagged(tag).stamp)
                await store.commit(change)
            except outages:
                await asyncio.sleep(0.002)
                continue
            report([thread_id, change.read_at + 1, change.thread.last_seq, tag])
            done += 1

    async def main() -> None:
        async with asyncio.timeout(30), open_database(where) as db:
            Switches(Path(control)).fail(**fault)
            async with asyncio.TaskGroup() as tasks:
                for n in range(CONVERSATIONS):
                    tasks.create_task(converse(db, f"t{n}", random.Random(f"{seed} {n}")))

    asyncio.run(main())


async def _converse(report: Report, db: Database, thread_id: str, chance: random.Random) -> None:
    store, calls = open_store(db), CallRows(db)
    while True:
        tag = f"{chance.getrandbits(64):016x}"
        change = await _next(store, calls, thread_id, chance, Tagged(tag).stamp)
        await store.commit(change)
        report([thread_id, change.read_at + 1, change.thread.last_seq, tag])


class Tagged:
    """Ids by which the acknowledged events of one commit are known again."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._count = 0

    @property
    def stamp(self) -> Stamp:
        return Stamp(NOW, self._new_id)

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._tag}-{self._count}"


async def _next(store: Store, calls: Calls, thread_id: str, chance: random.Random, stamp: Stamp) -> Change:
    """Whatever may come next in the life of this thread."""
    try:
        thread = await store.get(thread_id)
    except NotFound:
        return open_thread(thread_id, Opening(owner=ANN, graph="chat"), "hello", stamp=stamp)
    if thread.status is Status.BLOCKED:
        call = await calls.get(thread_id, chance.choice(sorted(thread.pending)))
        return (
            expire(thread, call, stamp=stamp)
            if chance.random() < 0.3
            else resolve(thread, call, True, stamp=stamp)
        )
    if thread.status.is_terminal:
        return next_round(thread, "again", stamp=stamp)
    match chance.randrange(8):
        case 0:
            return suspend(thread, [waits(f"q{thread.last_seq}", deadline=NOW), waits("q")], stamp=stamp)
        case 1:
            return finish(thread, Status.COMPLETED, stamp=stamp)
        case 2:
            return stop(thread, await calls.find(thread_id, status=[CallStatus.PENDING]), stamp=stamp)
        case 3 | 4:
            return record(
                thread, [said("x" * chance.randrange(2000)), asks(f"c{thread.last_seq}")], stamp=stamp
            )
        case _:
            return record(thread, [Log(message="working")] * chance.randrange(1, 4), stamp=stamp)


def check(report: Report, *, where: str, told: str) -> None:
    """Compare the database with what a client wrote down: one JSON line a commit it was told of."""

    commits = [json.loads(line) for line in Path(told).read_text().splitlines()]

    async def main() -> None:
        async with open_database(where) as db:
            logs = {}
            for n in range(CONVERSATIONS):
                with suppress(NotFound):
                    logs[f"t{n}"] = await _checked(db, f"t{n}")
            missing = 0
            for thread_id, first, last, tag in commits:
                ids = logs.get(thread_id, [])[first - 1 : last]
                missing += len(ids) != last - first + 1 or not all(tag in event_id for event_id in ids)
            if not where.startswith("postgres"):
                rows = await query(db, "PRAGMA integrity_check")
                assert [tuple(row) for row in rows] == [("ok",)], rows
            report({"events": sum(map(len, logs.values())), "missing": missing})

    asyncio.run(main())


async def _checked(db: Database, thread_id: str) -> list[str]:
    """The ids of a thread's events, in order, after everything derived from them was found right."""
    store = open_store(db)
    thread = await store.get(thread_id)
    log = await store.read(thread_id)
    assert [event.seq for event in log] == list(range(1, thread.last_seq + 1)), f"{thread_id}: holes"
    assert rebuild(log) == thread, f"{thread_id}: its row is not what its log tells"
    rows = {call.id: call for call in await CallRows(db).find(thread_id)}
    assert rows == fold_calls({}, log), f"{thread_id}: its calls are not what its log tells"
    return [event.id for event in log]


def migrated(report: Report, *, where: str, failpoint: str = "", versions: int | None = None) -> None:
    """Open a database, made and brought to so many versions (unless given: all) as needed; report its schema."""

    async def main() -> None:
        # This process ends with its job, so the module stays changed.
        vars(migrate)["migrations"] = lambda dialect: later_migrations(dialect)[:versions]
        failpoints.install(failpoint)
        async with open_database(where) as db:
            failpoints.install("")
            schema = "\n".join(await schema_of(db))
            report(hashlib.sha256(schema.encode()).hexdigest())
            await open_store(db).commit(opened(f"t{random.random()}"))

    asyncio.run(main())
