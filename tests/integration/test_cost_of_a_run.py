"""What a run asks of the database: counts, so that they hold on any machine and growth is seen at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.engine import recorder, stream_parts
from clew.stores.sql.work import Database, Work
from tests.app import open_house
from tests.http_client import client_of

pytestmark = pytest.mark.anyio

# For a run of two nodes in a thread that is there, by a client that waits for its end. Raise one of these only for
# something that a run cannot do without.
MOST_WRITES = 5
MOST_READS = 11
MOST_STATEMENTS = 31
# What a SQLite server asks twenty times a second, whether runs are under way or not.
BY_THE_CLOCK = ("PRAGMA data_version",)


@dataclass(slots=True)
class Asked:
    """The units of work that a database was given, and their statements. A commit that several share is one of each."""

    writes: int = 0
    reads: int = 0
    statements: list[str] = field(default_factory=list)

    def through(self, work: Work[Any], kind: str) -> Work[Any]:
        step = next(work, None)
        if step is not None and step.sql not in BY_THE_CLOCK:
            setattr(self, kind, getattr(self, kind) + 1)
        try:
            while step is not None:
                if step.sql not in BY_THE_CLOCK:
                    self.statements.append(step.sql)
                step = work.send((yield step))
        except StopIteration as done:
            return done.value

    def counted(self, method: Callable[..., Any], kind: str) -> Callable[..., Any]:
        async def run(db: Database, work: Callable[[], Work[Any]]) -> Any:
            return await method(db, lambda: self.through(work(), kind))

        return run


def counting(monkeypatch: pytest.MonkeyPatch, db: Database) -> Asked:
    asked, kind = Asked(), type(db)
    for name, what in (("write", "writes"), ("read", "reads"), ("glance", "reads")):
        monkeypatch.setattr(kind, name, asked.counted(getattr(kind, name), what))
    if hasattr(kind, "fetch"):  # of Postgres, which commits plain changes in one statement
        fetch = kind.fetch

        async def counted_fetch(self: Any, sql: str, *args: Any) -> Any:
            asked.writes += 1
            asked.statements.append(sql)
            return await fetch(self, sql, *args)

        monkeypatch.setattr(kind, "fetch", counted_fetch)
    return asked


async def run_of(client: httpx.AsyncClient, thread_id: str) -> None:
    answer = await client.post(
        f"/threads/{thread_id}/runs/wait", json={"assistant_id": "two_steps", "input": {"log": []}}
    )
    assert answer.json()["log"], answer.text


async def test_a_run_asks_no_more_of_the_database(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = {"CLEW_RUNNER_POLL_SECONDS": "60"}
    # What is written or looked at if a run takes long: here none does, however busy the machine is.
    monkeypatch.setattr(recorder, "SOON", 60)
    monkeypatch.setattr(stream_parts, "SOON", 60)
    async with open_house(where, tmp_path, **quiet) as house, client_of(house.app.http) as client:
        threads = [(await client.post("/threads", json={})).json()["thread_id"] for _ in range(8)]
        await run_of(client, threads.pop())
        asked = counting(monkeypatch, house.app.stores.db)
        runs: list[Asked] = []
        for thread_id in threads:
            before = Asked(asked.writes, asked.reads, [*asked.statements])
            await run_of(client, thread_id)
            runs.append(
                Asked(
                    asked.writes - before.writes,
                    asked.reads - before.reads,
                    asked.statements[len(before.statements) :],
                )
            )
    # What the server does now and then may fall into one of them.
    least = min(runs, key=lambda run: len(run.statements))
    assert least.writes <= MOST_WRITES, least.statements
    assert least.reads <= MOST_READS, least.statements
    assert len(least.statements) <= MOST_STATEMENTS, least.statements
