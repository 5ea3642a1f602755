"""Runs in workers of both kinds go on when a worker stands still, Postgres restarts, or connections are cut."""

import asyncio
import random
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.acceptance import run_graphs
from tests.acceptance.sdk import Clients, clients_of
from tests.acceptance.sdk_stage import Stage, stage_at
from tests.faults.test_workers import STEPS, is_over, order, steps_of
from tests.postgres import PostgresServer
from tests.processes import Server
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

KINDS = [pytest.param("local", marks=pytest.mark.long), "workers"]
RUNS = 8


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API process and two workers on a Postgres of their own."""

    server: PostgresServer
    url: str
    clients: Clients
    workers: list[Server]

    async def completes(
        self, folder: Path, runs: int, trouble: Callable[[list[Path]], Awaitable[None]]
    ) -> None:
        marks = [folder / f"run-{number}" for number in range(runs)]
        ordered = await order(self.clients, marks)
        await until(lambda: any(steps_of(mark) for mark in marks))
        await trouble(marks)
        for run in ordered:
            await until(lambda run=run: self._is_successful(run), seconds=120)  # type: ignore[misc]

    async def _is_successful(self, run: dict[str, Any]) -> bool:
        with suppress(Exception):  # the API answers 503 while the database is away
            found = await self.clients.ann.runs.get(run["thread_id"], run["run_id"])
            assert found["status"] in ("pending", "running", "success"), found
            return bool(found["status"] == "success")
        return False


@asynccontextmanager
async def cluster_of(
    kind: str, server: PostgresServer, folder: Path, **environ: str
) -> AsyncGenerator[Cluster]:
    url = server.create_database("workers")
    place = folder / "stage"
    place.mkdir()
    stage: Stage = stage_at(url, place, run_graphs, CLEW_RUNNER_KIND=kind, **environ)
    with ExitStack() as stack:
        api = await asyncio.to_thread(stack.enter_context, stage.serving("--no-runner"))
        workers = [
            await asyncio.to_thread(stack.enter_context, stage.working("--concurrency", "8"))
            for _ in range(2)
        ]
        async with clients_of(api) as clients:
            yield Cluster(server, url, clients, workers)


@pytest.mark.fault("B1")
@pytest.mark.parametrize("kind", KINDS)
async def test_postgres_restarts_under_workers(
    kind: str, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    async with cluster_of(kind, own_postgres, tmp_path, CLEW_RUNNER_LEASE_SECONDS="5") as cluster:

        async def restart(_: list[Path]) -> None:
            await asyncio.to_thread(own_postgres.restart, "immediate")

        await cluster.completes(tmp_path, RUNS, restart)
        # And the workers are there for what comes next.
        (tmp_path / "next").mkdir()
        await cluster.completes(tmp_path / "next", 2, lambda _: asyncio.sleep(0))


@pytest.mark.fault("B1")
@pytest.mark.parametrize("kind", KINDS)
async def test_connections_of_workers_are_cut_at_random(
    kind: str, own_postgres: PostgresServer, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    async with cluster_of(kind, own_postgres, tmp_path, CLEW_RUNNER_LEASE_SECONDS="5") as cluster:

        async def cut(marks: list[Path]) -> None:
            for _ in range(15):
                await asyncio.to_thread(_cut_one, cluster.url, dice)
                await asyncio.sleep(dice.uniform(0.05, 0.3))
                if all(map(is_over, marks)):
                    return

        await cluster.completes(tmp_path, RUNS, cut)


def _cut_one(url: str, dice: random.Random) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY pid"
        ).fetchall()
        if rows:
            connection.execute("SELECT pg_terminate_backend(%s)", (dice.choice(rows)[0],))


@pytest.mark.fault("A11")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_that_stands_still_loses_its_runs(
    kind: str, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    async with cluster_of(kind, own_postgres, tmp_path, CLEW_RUNNER_LEASE_SECONDS="2") as cluster:
        frozen: list[Server] = []

        async def freeze(marks: list[Path]) -> None:
            pid = steps_of(next(mark for mark in marks if steps_of(mark)))[-1][0]
            frozen.extend(worker for worker in cluster.workers if worker.process.pid == pid)
            frozen[0].signal(signal.SIGSTOP)

        try:
            await cluster.completes(tmp_path, RUNS, freeze)
        finally:
            frozen[0].signal(signal.SIGCONT)
        # What it still does in its runs is refused, and it takes new ones.
        (tmp_path / "next").mkdir()
        await cluster.completes(tmp_path / "next", 2, lambda _: asyncio.sleep(0))
    for number in range(RUNS):
        assert STEPS <= len(steps_of(tmp_path / f"run-{number}")) <= STEPS + 2
