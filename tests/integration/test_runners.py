"""What every runner does: the local one beside the API on both databases, and workers on a job queue apart from it."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.errors import ConfigError
from clew.domain.events import Log, Opening, Resolution
from clew.domain.thread import Owner, Status, Thread
from clew.engine.commands import Request
from clew.server.services import ProcessRole
from tests.app import RESTING, House, open_house
from tests.databases import locate, query
from tests.http_client import client_of
from tests.waiting import until

pytestmark = pytest.mark.anyio

RUNNERS = ("local-sqlite", "local-postgres", "workers")


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API, and what runs its threads: itself, or two workers."""

    house: House
    client: httpx.AsyncClient

    async def post(self, path: str, body: object) -> Any:
        answer = await self.client.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def get(self, path: str) -> Any:
        return (await self.client.get(path)).json()

    async def rest(self, thread_id: str) -> Thread:
        async def rested() -> Thread | None:
            thread = await self.house.app.stores.threads.get(thread_id)
            return thread if thread.status in RESTING else None

        found = await until(rested)
        assert isinstance(found, Thread)
        return found

    async def statuses(self, thread_id: str) -> list[str]:
        return [run["status"] for run in reversed(await self.get(f"/threads/{thread_id}/runs"))]


@asynccontextmanager
async def cluster_on(where: str, folder: Path, *, workers: int, **environ: str) -> AsyncGenerator[Cluster]:
    async with AsyncExitStack() as stack:
        role = ProcessRole(has_runner=environ.get("CLEW_RUNNER_KIND") != "workers")
        house = await stack.enter_async_context(open_house(where, folder, role, **environ))
        for _ in range(workers):
            await stack.enter_async_context(open_house(where, folder, ProcessRole(listens=False), **environ))
        client = await stack.enter_async_context(client_of(house.app.http))
        yield Cluster(house, client)


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def where(runner: str, request: pytest.FixtureRequest) -> str:
    return locate("sqlite" if runner == "local-sqlite" else "postgres", request)


@pytest.fixture
async def cluster(runner: str, where: str, tmp_path: Path) -> AsyncGenerator[Cluster]:
    more = {"CLEW_RUNNER_KIND": "workers"} if runner == "workers" else {}
    async with cluster_on(where, tmp_path, workers=2 if more else 0, **more) as cluster:
        yield cluster


async def test_a_thread_runs_to_its_end(cluster: Cluster) -> None:
    thread = await cluster.house.start("two_steps", log=[])
    assert (await cluster.rest(thread.id)).status is Status.COMPLETED


async def test_many_threads_run_once_each(cluster: Cluster, tmp_path: Path) -> None:
    marks = [tmp_path / f"marks-{n}" for n in range(30)]
    threads = [await cluster.house.start("gated", marks=str(mark)) for mark in marks]
    assert {(await cluster.rest(one.id)).status for one in threads} == {Status.BLOCKED}
    assert {mark.read_text() for mark in marks} == {marks[0].read_text()}


async def test_an_approved_thread_goes_on(cluster: Cluster) -> None:
    commands = cluster.house.app.execution.commands
    thread = await cluster.rest((await cluster.house.start("gated", log=[])).id)
    await commands.approve(thread.id, None, approved=True)
    assert (await cluster.rest(thread.id)).status is Status.COMPLETED


async def test_a_stopped_run_ends_and_the_thread_runs_anew(cluster: Cluster, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    thread = await cluster.house.start("slow", marks=str(marks))
    await until(marks.exists)
    await cluster.house.app.execution.commands.stop(thread.id, None)
    assert (await cluster.rest(thread.id)).status is Status.STOPPED


async def test_a_question_expires(cluster: Cluster) -> None:
    house = cluster.house
    opening = Opening(owner=Owner(), graph="gated")
    thread = await cluster.rest(
        (await house.app.execution.commands.start(opening, Request(graph_input={"log": []}))).id
    )
    await query(house.app.stores.db, "UPDATE tool_calls SET deadline = 1 WHERE thread_id = $1", thread.id)
    await until(lambda: _is_expired(house, thread))


async def _is_expired(house: House, thread: Thread) -> bool:
    return bool(await house.bodies(thread, Resolution))


async def test_what_fails_in_passing_is_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    thread = await cluster.house.start("flaky", marks=str(tmp_path / "marks"))
    assert (await cluster.rest(thread.id)).status is Status.COMPLETED
    retries = [log for log in await cluster.house.bodies(thread, Log) if log.attempt]
    assert len(retries) == 2


@pytest.mark.parametrize(
    ("strategy", "first", "shown"),
    [
        ("enqueue", "success", ["success", "success"]),
        ("interrupt", "interrupted", ["interrupted", "success"]),
        ("rollback", None, ["success"]),
    ],
)
async def test_a_second_run_of_a_thread(
    cluster: Cluster, tmp_path: Path, strategy: str, first: str | None, shown: list[str]
) -> None:
    marks = tmp_path / "marks"
    thread_id = (await cluster.post("/threads", {}))["thread_id"]
    order = {"assistant_id": "walking", "input": {"log": ["x"] * 30, "marks": str(marks)}}
    await cluster.post(f"/threads/{thread_id}/runs", order)
    await until(marks.exists)
    second = {"assistant_id": "two_steps", "input": {"log": []}, "multitask_strategy": strategy}
    await cluster.post(f"/threads/{thread_id}/runs", second)

    async def over() -> bool:
        return await cluster.statuses(thread_id) == shown

    await until(over)


async def test_a_run_is_refused_while_another_runs(cluster: Cluster, tmp_path: Path) -> None:
    thread_id = (await cluster.post("/threads", {}))["thread_id"]
    order = {"assistant_id": "slow", "input": {"marks": str(tmp_path / "marks")}}
    run = await cluster.post(f"/threads/{thread_id}/runs", order)
    again = await cluster.client.post(
        f"/threads/{thread_id}/runs", json={**order, "multitask_strategy": "reject"}
    )
    assert again.status_code == 409
    await cluster.post(f"/threads/{thread_id}/runs/{run['run_id']}/cancel", {})
    await cluster.rest(thread_id)


async def test_a_run_starts_later_and_by_a_schedule(cluster: Cluster) -> None:
    thread_id = (await cluster.post("/threads", {}))["thread_id"]
    order = {"assistant_id": "two_steps", "input": {"log": []}, "after_seconds": 1}
    await cluster.post(f"/threads/{thread_id}/runs", order)
    cron = {"assistant_id": "two_steps", "input": {"log": []}, "schedule": "0 0 1 1 *"}
    await cluster.post(f"/threads/{thread_id}/runs/crons", cron)
    await query(
        cluster.house.app.stores.db, "UPDATE crons SET next_at = clew_now() - 1, counted_at = clew_now() - 1"
    )

    async def over() -> bool:
        return await cluster.statuses(thread_id) == ["success", "success"]

    await until(over)


@pytest.mark.parametrize(
    ("waiting", "seconds"),
    [(12, 0.2), pytest.param(1000, 1.0, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
async def test_a_tenant_with_many_waiting_runs_delays_another_by_one_round(
    runner: str, where: str, tmp_path: Path, waiting: int, seconds: float
) -> None:
    marks = tmp_path / "marks"
    processes = 2 if runner == "workers" else 1
    environ = {"CLEW_RUNNER_KIND": runner.partition("-")[0], "CLEW_RUNNER_CONCURRENCY": "1"}

    def begun() -> list[str]:
        return marks.read_text().split() if marks.exists() else []

    async with cluster_on(
        where, tmp_path, workers=processes if runner == "workers" else 0, **environ
    ) as cluster:

        async def start(tenant: str) -> None:
            given = {"name": tenant, "seconds": seconds, "marks": str(marks)}
            opening = Opening(owner=Owner(tenant=tenant), graph="napping")
            await cluster.house.app.execution.commands.start(opening, Request(graph_input=given))

        await asyncio.gather(*(start("many") for _ in range(waiting)))
        await until(lambda: len(begun()) > processes)
        await start("single")
        before, ordered = len(begun()), time.monotonic()
        await until(lambda: "single" in begun())
        print(f"waited {time.monotonic() - ordered:.2f} s")  # noqa: T201 - the figure of this test
        assert begun().index("single") - before <= 1, "of another tenant one round may have begun just then"


async def test_workers_run_only_the_graphs_they_are_for(postgres_url: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:

        async def opened(*graphs: str) -> House:
            role = ProcessRole(listens=False, graphs=graphs)
            house = open_house(postgres_url, tmp_path, role, CLEW_RUNNER_KIND="workers")
            return await stack.enter_async_context(house)

        await opened("two_steps")
        house = await opened("gated", "walking")
        gated = await house.start("gated", log=[])
        left = await house.start("asking", log=[])
        steps = await house.start("two_steps", log=[])
        both = [await _rested(house, one) for one in (gated, steps)]
        assert [one.status for one in both] == [Status.BLOCKED, Status.COMPLETED]
        assert (await house.app.stores.threads.get(left.id)).status is Status.RUNNING
        await opened("asking")
        assert (await _rested(house, left)).status is Status.BLOCKED


async def _rested(house: House, thread: Thread) -> Thread:
    async def rested() -> Thread | None:
        now = await house.app.stores.threads.get(thread.id)
        return now if now.status in RESTING else None

    found = await until(rested)
    assert isinstance(found, Thread)
    return found


async def test_one_process_is_api_and_worker(postgres_url: str, tmp_path: Path) -> None:
    async with open_house(postgres_url, tmp_path, CLEW_RUNNER_KIND="workers") as house:
        assert (await house.run("two_steps", log=[])).status is Status.COMPLETED


async def test_threads_of_a_local_runner_are_taken_over_by_workers(postgres_url: str, tmp_path: Path) -> None:
    """Nobody enqueued them: the sweep does."""
    async with open_house(postgres_url, tmp_path, ProcessRole(has_runner=False)) as house:
        thread = await house.start("two_steps", log=[])
        async with open_house(postgres_url, tmp_path, ProcessRole(listens=False), CLEW_RUNNER_KIND="workers"):
            assert (await _rested(house, thread)).status is Status.COMPLETED


async def test_a_graph_that_is_not_there_is_named(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--graphs: no graph 'nope'; there are"):
        async with open_house(postgres_url, tmp_path, ProcessRole(graphs=("nope",))):
            pass


@pytest.mark.parametrize("lost", ["job", "worker's answer"])
async def test_a_lost_job_loses_no_round(postgres_url: str, tmp_path: Path, lost: str) -> None:
    async with cluster_on(postgres_url, tmp_path, workers=0, CLEW_RUNNER_KIND="workers") as cluster:
        db = cluster.house.app.stores.db
        thread = await cluster.house.start("two_steps", log=[])
        if lost == "job":
            await query(db, "DELETE FROM procrastinate_jobs")
        else:
            await query(db, "SELECT procrastinate_fetch_job_v2(NULL, NULL)")
        async with open_house(postgres_url, tmp_path, ProcessRole(listens=False), CLEW_RUNNER_KIND="workers"):
            assert (await cluster.rest(thread.id)).status is Status.COMPLETED
            await until(lambda: _has_no_jobs(cluster))


async def _has_no_jobs(cluster: Cluster) -> bool:
    return not await query(cluster.house.app.stores.db, "SELECT 1 FROM procrastinate_jobs")
