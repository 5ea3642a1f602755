"""Deleting old threads: a cleanup of ours against the packaged savers' adelete_thread, one thread after the other.

    python benchmarks/cleanup.py [--threads 1000] [--rounds 3] [--no-postgres]

Each thread has 20 checkpoints of a growing chat; ours has 40 events besides, a row of its own, and its tombstone to
write. The arms take turns in one run. Then a status is polled, with and without a cleanup beside it, in turns as well.
Medians over the rounds, after one to warm up.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from clew.checkpointer.saver import Checkpointer
from clew.config import load_settings
from clew.server.app import Server, open_app
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.work import Database

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.databases import query
from tests.postgres import postgres_server

CHECKPOINTS = 20
EVENTS = 40
TEXT = "x" * 200
KEY = "a-key-for-the-benchmark"
POLLS_A_SECOND = 200


async def fill_saver(saver: BaseCheckpointSaver[Any], thread_id: str) -> None:
    """A chat of twenty turns, one checkpoint each, with what its task wrote."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    messages: list[AIMessage] = []
    version: Any = None
    for step in range(CHECKPOINTS):
        message = AIMessage(TEXT, id=f"m{step}")
        messages = [*messages, message]
        version = saver.get_next_version(version, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": version}
        config = await saver.aput(
            config, checkpoint, {"source": "loop", "step": step, "parents": {}}, {"messages": version}
        )
        await saver.aput_writes(config, [("messages", [message])], f"task{step}")


class Ours:
    """The app with a database of its own, cleaned up through its HTTP endpoint."""

    def __init__(self, app: Server, http: httpx.AsyncClient) -> None:
        self._app = app
        self._http = http
        self._made = 0

    @property
    def _db(self) -> Database:
        return self._app.stores.db

    async def fill(self, count: int) -> None:
        first = self._made + 1
        await make_threads(self._db, first, count)
        saver = Checkpointer(CheckpointRows(self._db))
        model = f"old-{first}"
        await fill_saver(saver, model)
        # The others have the same checkpoints: copied by the database, so that filling takes seconds.
        for number in range(first + 1, first + count):
            await CheckpointRows(self._db).copy(model, f"old-{number}")
        self._made += count

    async def delete(self, count: int) -> float:
        started = time.perf_counter()
        deleted = 0
        while deleted < count:
            answer = await self._http.post(
                "/api/optimize/cleanup?days_old=30", headers={"X-API-Key": KEY}, timeout=60
            )
            deleted += answer.json()["deleted"]
        seconds = time.perf_counter() - started
        left = await query(self._db, "SELECT count(*) FROM checkpoints")
        assert left[0][0] == 0
        return seconds

    async def poll(self, seconds: float) -> list[float]:
        """Latencies from when each request was due, at a constant rate."""
        await make_threads(self._db, 1, 1, prefix="polled", age=0)
        loop = asyncio.get_running_loop()
        start = loop.time()
        latencies: list[float] = []

        async def one(due: float) -> None:
            answer = await self._http.get("/api/optimize/status/polled-1")
            assert answer.status_code == 200, answer.text
            latencies.append(loop.time() - due)

        async with asyncio.TaskGroup() as tasks:
            for number in range(int(seconds * POLLS_A_SECOND)):
                due = start + number / POLLS_A_SECOND
                await asyncio.sleep(max(0, due - loop.time()))
                tasks.create_task(one(due))
        return latencies


class Packaged:
    """A packaged saver as its documentation opens it."""

    def __init__(self, saver: Any, copy: Any) -> None:
        self._saver = saver
        self._copy = copy

    async def fill(self, count: int) -> None:
        await fill_saver(self._saver, "old-1")
        await self._copy(count)

    async def delete(self, count: int) -> float:
        started = time.perf_counter()
        for number in range(1, count + 1):
            await self._saver.adelete_thread(f"old-{number}")
        return time.perf_counter() - started


NUMBERS = "WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)"


async def make_threads(db: Database, first: int, count: int, prefix: str = "old", age: float = 60) -> None:
    seen = int((time.time() - age * 86400) * 1_000_000)
    await query(
        db,
        "INSERT INTO threads (id, tenant, user_id, graph, name, status, stage, round, round_seq, settings, fsm_state,"
        " stats, redacted, last_seq, ttl, created_at, last_active_at, last_accessed_at, expires_at, fence, recoveries)"
        f" {NUMBERS} SELECT '{prefix}-' || i, 'default', '', 'interview', '', 'completed', 'completed', 1, 1, '{{}}',"
        f" '{{\"pending\": {{}}, \"last_seq\": {EVENTS}}}', '{{}}', '[]', {EVENTS}, 86400000000, {seen}, {seen},"
        f" {seen}, {seen}, 0, 0 FROM n WHERE TRUE ON CONFLICT DO NOTHING",
        first,
        first + count - 1,
    )
    await query(
        db,
        "INSERT INTO events (thread_id, seq, id, round, type, version, content, at)"
        f" {NUMBERS}, s (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM s WHERE seq < {EVENTS})"
        f" SELECT '{prefix}-' || i, s.seq, '{prefix}-' || i || '-' || s.seq, 1, 'assistant_msg', 1, $3, {seen}"
        " FROM n CROSS JOIN s WHERE TRUE ON CONFLICT DO NOTHING",
        first,
        first + count - 1,
        json.dumps({"content": TEXT}),
    )


@asynccontextmanager
async def ours(url: str, folder: Path) -> AsyncIterator[Ours]:
    environ = {"CLEW_DATABASE_URL": url, "CLEANUP_API_KEY": KEY, "CLEW_CLEANUP_BUDGET_SECONDS": "8"}
    async with (
        open_app(load_settings(environ, cwd=folder)) as app,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app.http), base_url="http://127.0.0.1:8124", timeout=60
        ) as http,
    ):
        yield Ours(app, http)


@asynccontextmanager
async def packaged_sqlite(path: Path) -> AsyncIterator[Packaged]:
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()

        async def copy(count: int) -> None:
            for table, columns in (
                (
                    "checkpoints",
                    "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
                ),
                ("writes", "checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value"),
            ):
                await saver.conn.execute(
                    f"INSERT INTO {table} (thread_id, {columns})"
                    " WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
                    f" SELECT 'old-' || i, {columns} FROM n, {table} WHERE thread_id = 'old-1'",
                    (count,),
                )
            await saver.conn.commit()

        yield Packaged(saver, copy)


@asynccontextmanager
async def packaged_postgres(url: str) -> AsyncIterator[Packaged]:
    async with AsyncConnectionPool(
        url,
        min_size=1,
        max_size=10,
        kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
    ) as pool:
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
        await saver.setup()

        async def copy(count: int) -> None:
            async with pool.connection() as connection:
                for table, columns in (
                    (
                        "checkpoints",
                        "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
                    ),
                    ("checkpoint_blobs", "checkpoint_ns, channel, version, type, blob"),
                    (
                        "checkpoint_writes",
                        "checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob",
                    ),
                ):
                    await connection.execute(
                        f"INSERT INTO {table} (thread_id, {columns}) SELECT 'old-' || i, {columns}"
                        f" FROM generate_series(2, {count}) AS i, {table} WHERE thread_id = 'old-1'"
                    )

        yield Packaged(saver, copy)


async def compare(name: str, mine: Ours, theirs: Packaged, *, threads: int, rounds: int) -> None:
    # As `clew serve` does; both arms are in this process.
    gc.collect()
    gc.freeze()
    ours_took: list[float] = []
    theirs_took: list[float] = []
    for _ in range(1 + rounds):
        await mine.fill(threads)
        ours_took.append(await mine.delete(threads))
        await theirs.fill(threads)
        theirs_took.append(await theirs.delete(threads))
    # The first round of both is to warm up: connections, plans, pages.
    del ours_took[0], theirs_took[0]
    a, b = statistics.median(ours_took), statistics.median(theirs_took)
    print(
        f"{name:<9} {threads} threads: ours {a:6.2f} s, packaged {b:6.2f} s, {b / a:5.1f} times faster"
        f"   (ours {_spread(ours_took)}, packaged {_spread(theirs_took)})"
    )

    quiet: list[float] = []
    busy: list[float] = []
    for _ in range(rounds):
        await mine.poll(0.5)
        quiet += await mine.poll(3)
        await mine.fill(threads)
        polling = asyncio.create_task(mine.poll(3))
        await mine.delete(threads)
        # Only what was asked for while it ran.
        busy += (await polling)[: max(20, int(ours_took[-1] * POLLS_A_SECOND))]
    print(
        f"{name:<9} status poll at {POLLS_A_SECOND}/s: p50 {_ms(quiet, 50)} and p99 {_ms(quiet, 99)} ms alone,"
        f" p50 {_ms(busy, 50)} and p99 {_ms(busy, 99)} ms during a cleanup,"
        f" {_at(busy, 99) / _at(quiet, 99):.1f} times ({len(busy)} polls)"
    )


def _spread(took: list[float]) -> str:
    return f"{min(took):.2f} to {max(took):.2f}"


def _at(latencies: list[float], percent: int) -> float:
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _ms(latencies: list[float], percent: int) -> str:
    return f"{_at(latencies, percent) * 1000:.1f}"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-postgres", action="store_true")
    given = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {CHECKPOINTS} checkpoints and {EVENTS} events a thread")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clew-bench-")))
        mine = await stack.enter_async_context(ours(f"sqlite:///{folder}/ours.db", folder))
        theirs = await stack.enter_async_context(packaged_sqlite(folder / "packaged.db"))
        await compare("SQLite", mine, theirs, threads=given.threads, rounds=given.rounds)
        if given.no_postgres:
            return
        server = stack.enter_context(postgres_server())
        mine = await stack.enter_async_context(ours(server.create_database("ours"), folder))
        theirs = await stack.enter_async_context(packaged_postgres(server.create_database("packaged")))
        await compare("Postgres", mine, theirs, threads=given.threads, rounds=given.rounds)


if __name__ == "__main__":
    asyncio.run(main())
