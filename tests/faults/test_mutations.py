"""B7: rows that were damaged at random are the trouble of their own thread, and told in our words."""

import random
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.retention import selection
from clew.domain.thread import Status
from clew.stores.sql.work import Row, Value, placeholders
from tests.app import House, open_house
from tests.databases import query
from tests.faults.report import Trials
from tests.http_client import client_of

pytestmark = pytest.mark.anyio

TABLES = ("threads", "events", "tool_calls", "checkpoints", "checkpoint_blobs", "checkpoint_writes")
# What says whose a row is, and until when. Changed, it would be another thread's row, or a call that expires now, and
# not a damaged one.
OWN = ("id", "thread_id", "tenant", "user_id", "tool_call_id", "deleted_at", "deadline", "seq")
PATHS = (
    "/api/workflows/{}",
    "/api/workflows/{}/status",
    "/api/workflows/{}/messages",
    "/api/workflows/{}/logs",
    "/api/workflows/{}/state",
    "/api/workflows/{}/tool-calls",
    "/api/threads/{}/events",
)


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    # Nobody looks for work meanwhile: a thread is what its rows say.
    async with open_house(where, tmp_path, CLEW_RUNNER_POLL_SECONDS="60") as house:
        yield house


@pytest.mark.fault("B7")
async def test_damages_stay_where_they_are(house: House, trials: Trials) -> None:
    await damage(house, trials, times=40)


@pytest.mark.fault("B7")
@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_thousand_damages_stay_where_they_are(house: House, trials: Trials) -> None:
    await damage(house, trials, times=1000)


async def damage(house: House, trials: Trials, *, times: int) -> None:
    chance = random.Random(times)
    good, bad, fine = [await house.run("agent", f"tools: send_mail to=ada{n}") for n in range(3)]
    assert {good.status, bad.status, fine.status} == {Status.BLOCKED}
    refused = 0
    async with client_of(house.app.http) as http:
        before = {one.id: [await shown(http, house, path, one.id) for path in PATHS] for one in (good, fine)}
        everything = selection(now=datetime.now(UTC) + timedelta(days=365), days_old=None)
        healthy = {table: await rows_of(house, table, bad.id) for table in TABLES}
        for _ in trials.run(times, seconds=180):
            table = chance.choice([name for name in TABLES if healthy[name][1]])
            columns, rows = healthy[table]
            what = await spoil(house, chance, table, columns, chance.choice(rows))
            for path in PATHS:
                status, answer = await shown(http, house, path, bad.id)
                assert status < 500 or answer["error"]["code"] == "CORRUPT", (what, path, answer)
                refused += status == 500
            for other, answers in before.items():
                assert [await shown(http, house, path, other) for path in PATHS] == answers, what
            listed = (await http.get("/api/workflows")).json()["workflows"]
            assert {good.id, fine.id} <= {one["id"] for one in listed}, what
            usage = (await http.get("/api/threads/usage")).raise_for_status().json()
            assert usage["threads"] == 3, what
            would = await house.app.execution.cleanup.preview(everything)
            assert would.due + would.preserved == 3, what
            await restore(house, table, columns, rows, bad.id)
        assert (await shown(http, house, PATHS[0], bad.id))[0] == 200
    assert refused > times / 20, "too little was damaged to prove anything"


async def shown(http: httpx.AsyncClient, house: House, path: str, thread_id: str) -> tuple[int, Any]:
    house.app.execution.graph_driver.drop(thread_id)  # or its state would come from memory
    answer = await http.get(path.format(thread_id))
    return answer.status_code, answer.json()


async def rows_of(house: House, table: str, thread_id: str) -> tuple[list[str], Sequence[Row]]:
    db = house.app.stores.db
    named = await query(db, *_columns(house, table))
    columns = [name for (name,) in named]
    key = "id" if table == "threads" else "thread_id"
    return columns, [
        tuple(row)
        for row in await query(db, f"SELECT {', '.join(columns)} FROM {table} WHERE {key} = $1", thread_id)
    ]


def _columns(house: House, table: str) -> tuple[str, str]:
    if type(house.app.stores.db).__name__ == "PostgresDatabase":
        return (
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position",
            table,
        )
    return "SELECT name FROM pragma_table_info($1)", table


async def spoil(
    house: House, chance: random.Random, table: str, columns: Sequence[str], row: Row
) -> tuple[str, str, Value]:
    """Change one value of one row; says which and how."""
    given = dict(zip(columns, row, strict=True))
    choices = [name for name, value in given.items() if name not in OWN and value is not None]
    column = chance.choice(choices)
    value = spoiled(chance, given[column])
    where = " AND ".join(f"{name} = ${n}" for n, name in enumerate(_key(given), 2))
    await query(
        house.app.stores.db,
        f"UPDATE {table} SET {column} = $1 WHERE {where}",
        value,
        *(given[name] for name in _key(given)),
    )
    return table, column, value


def _key(given: dict[str, Any]) -> list[str]:
    """Enough columns to name one row of any of the tables."""
    named = ("id", "thread_id", "seq", "tool_call_id", "ns", "channel", "version", "checkpoint_id", "task_id")
    return [name for name in named if given.get(name) is not None]


def spoiled(chance: random.Random, value: Any) -> Value:
    if isinstance(value, int):
        return chance.choice([0, -1, value + 1, -value, 2**31 - 1])
    if isinstance(value, bytes):
        if value and chance.random() < 0.7:
            place = chance.randrange(len(value))
            return value[:place] + bytes([value[place] ^ (1 << chance.randrange(8))]) + value[place + 1 :]
        return chance.choice([b"", value[: len(value) // 2], value + b"\x00", chance.randbytes(20)])
    text = str(value)
    if text and chance.random() < 0.5:
        place = chance.randrange(len(text))
        return text[:place] + chr(chance.randrange(1, 0x2FFF)) + text[place + 1 :]
    return chance.choice(
        ["", "{", "null", "[]", "7", text[: len(text) // 2], text + text, '["__import__", "os"]', '{"lc": 1}']
    )


async def restore(
    house: House, table: str, columns: Sequence[str], rows: Sequence[Row], thread_id: str
) -> None:
    db = house.app.stores.db
    await query(
        db, f"DELETE FROM {table} WHERE {'id' if table == 'threads' else 'thread_id'} = $1", thread_id
    )
    for row in rows:
        await query(
            db,
            f"INSERT INTO {table} ({', '.join(columns)}) /*+ OVERRIDING SYSTEM VALUE */"
            f" VALUES ({placeholders(1, len(columns))})",
            *row,
        )
