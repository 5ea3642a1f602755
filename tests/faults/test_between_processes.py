"""Two servers on one database: what a run in one of them streams reaches the clients of the other, and so does a stop."""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance import run_graphs
from tests.acceptance.sdk import Clients, SdkServer, clients_of
from tests.acceptance.sdk_runs import Door
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.serving import sse
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# Nothing here waits for a lease or for a look into the queue.
CALM = {"CLEW_RUNNER_LEASE_SECONDS": "600", "CLEW_VERBOSE": "true"}


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path, run_graphs, **CALM) as stage:
        yield stage


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    folder = tmp_path / "door"
    folder.mkdir()
    door = Door(folder)
    yield door
    door.open()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Door]:
    """Until it is opened, the server of our clients runs nothing else."""
    folder = tmp_path / "busy"
    folder.mkdir()
    door = Door(folder)
    yield door
    door.open()


@asynccontextmanager
async def two(stage: Stage, busy: Door) -> AsyncGenerator[tuple[Clients, Clients, SdkServer, SdkServer]]:
    """`here` is for our clients, and `there` runs what they order."""
    with stage.serving(CLEW_RUNNER_CONCURRENCY="1") as here:
        async with clients_of(here) as ours:
            await ours.ann.runs.create(None, "waiter", input=busy.input("busy"))
            await busy.entered("busy")
            with stage.serving() as there:
                async with clients_of(there) as theirs:
                    yield ours, theirs, here, there


class Told:
    """What a stream tells, as it comes."""

    def __init__(self, stream: AsyncIterator[Any]) -> None:
        self.parts: list[Any] = []
        self._task = asyncio.create_task(self._read(stream))

    async def _read(self, stream: AsyncIterator[Any]) -> None:
        async for part in stream:
            self.parts.append(part)

    def of(self, name: str) -> list[Any]:
        return [part.data for part in self.parts if part.event == name]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_readers_of_a_thread_get_the_parts_of_a_run_elsewhere(
    stage: Stage, door: Door, busy: Door
) -> None:
    async with two(stage, busy) as (ours, theirs, *_):
        thread = (await ours.ann.threads.create())["thread_id"]
        told = Told(await ours.ann.threads.join_stream(thread))
        # In the server that runs it a client reads as well, and nothing is kept for its sake.
        near = Told(await theirs.ann.threads.join_stream(thread))
        run = await theirs.ann.runs.create(
            thread, "walk", input=door.input(), stream_mode=["values", "custom"]
        )
        await until(lambda: {"waits": "first"} in told.of("custom"))
        door.open()
        await until(lambda: {"status": "run_done", "run_id": run["run_id"]} in told.of("metadata"))
        await until(lambda: len(near.parts) >= len(told.parts))
        assert [(part.event, part.id) for part in near.parts] == [
            (part.event, part.id) for part in told.parts
        ]
        parts = [part for part in told.parts if part.event in ("values", "custom")]
        await told.close()
        await near.close()
    assert told.of("custom") == [{"heard": "x"}, {"waits": "first"}]
    assert [data["words"][-1] for data in told.of("values")] == ["x", "first", "first done", "second"]
    numbers = [int(part.id) for part in parts]
    assert numbers == sorted(set(numbers))


async def test_a_client_that_joins_late_follows_a_run_elsewhere(stage: Stage, door: Door, busy: Door) -> None:
    async with two(stage, busy) as (ours, theirs, *_):
        thread = (await theirs.ann.threads.create())["thread_id"]
        run = await theirs.ann.runs.create(thread, "walk", input=door.input())
        await door.entered("first")
        told = Told(ours.ann.runs.join_stream(thread, run["run_id"]))
        await until(lambda: told.of("metadata"))
        await until(lambda: is_announced(stage, thread))
        door.open()
        await until(lambda: told.of("end"))
        await told.close()
    assert [data["words"][-1] for data in told.of("values")][-2:] == ["first done", "second"]


def is_announced(stage: Stage, thread: str) -> bool:
    return bool(stage.sql(f"SELECT 1 FROM stream_readers WHERE thread_id = '{thread}'"))


@pytest.mark.fault("A5")
async def test_every_part_arrives_once_through_a_kill(stage: Stage, door: Door, busy: Door) -> None:
    async with two(stage, busy) as (ours, theirs, _, there):
        thread = (await ours.ann.threads.create())["thread_id"]
        told = Told(await ours.ann.threads.join_stream(thread))
        await until(lambda: is_announced(stage, thread))
        await theirs.ann.runs.create(
            thread, "walk", input=door.input(), stream_mode=["updates", "values", "custom"]
        )
        await door.entered("first")
        await until(lambda: {"heard": "x"} in told.of("custom"))
        there.server.signal(signal.SIGKILL)
        busy.open()
        door.open()
        await until(lambda: any("status" in data for data in told.of("metadata")))
        await told.close()
    numbers = [int(part.id) for part in told.parts if part.id and part.event != "metadata"]
    assert numbers == sorted(set(numbers))
    # The first node was done when the server was killed: it told its parts once.
    assert told.of("custom").count({"heard": "x"}) == 1
    assert told.of("updates") == [
        {"first": {"words": ["first"]}},
        {"wait": {"words": ["first done"]}},
        {"second": {"words": ["second"]}},
    ]
    words = [tuple(data["words"]) for data in told.of("values")]
    assert [len(each) for each in dict.fromkeys(words)] == [1, 2, 3, 4]


async def test_tokens_of_a_run_elsewhere_arrive(stage: Stage, busy: Door) -> None:
    async with two(stage, busy) as (_, theirs, here, _):
        thread = (await theirs.ann.threads.create())["thread_id"]
        headers = {"X-API-Key": here.keys["ann"]}
        async with (
            httpx.AsyncClient(base_url=here.server.address, headers=headers, timeout=60) as http,
            http.stream("GET", f"/api/workflows/{thread}/events") as answer,
        ):
            assert answer.status_code == 200
            await theirs.ann.runs.create(
                thread, "talk_slowly", input={"messages": [{"role": "user", "content": "hello"}]}
            )
            tokens = ""
            async with asyncio.timeout(60):
                async for event in sse(answer):
                    if event.type == "llm_token":
                        tokens += event.data["data"]["token"]
                    if event.type == "assistant_msg":
                        break
    assert "good" in tokens


async def test_a_stop_reaches_a_run_elsewhere_within_a_second(stage: Stage, door: Door, busy: Door) -> None:
    took: list[float] = []
    async with two(stage, busy) as (ours, theirs, *_):
        for number in range(6):
            word = f"stop-{number}"
            run = await theirs.ann.runs.create(None, "told_of_its_end", input=door.input(word))
            await door.entered(word)
            begun = time.monotonic()
            await ours.ann.runs.cancel(run["thread_id"], run["run_id"])
            await until(partial(door.has, f"cancelled {word}"))
            took.append(time.monotonic() - begun)
    assert max(took) < 1.0, took


async def test_a_reader_that_lags_gets_every_part(stage: Stage, busy: Door) -> None:
    async with two(stage, busy) as (ours, theirs, here, _):
        thread = (await ours.ann.threads.create())["thread_id"]
        headers = {"X-API-Key": here.keys["ann"]}
        async with (
            httpx.AsyncClient(base_url=here.server.address, headers=headers, timeout=60) as http,
            http.stream("GET", f"/threads/{thread}/stream") as answer,
        ):
            await until(lambda: is_announced(stage, thread))
            # Much more than the sockets between the two hold, before a byte of it is read.
            run = await theirs.ann.runs.create(thread, "flood", input={"words": ["x"]}, stream_mode="custom")
            await theirs.ann.runs.join(thread, run["run_id"])
            heard: list[int] = []
            async with asyncio.timeout(60):
                async for event in sse(answer):
                    if event.type == "custom":
                        heard.append(event.data["number"])
                    if event.type == "metadata" and "status" in event.data:
                        break
    assert heard == list(range(run_graphs.FLOOD))


def set_ahead(stage: Stage) -> None:
    """Set the database's clock an hour ahead of this machine's."""
    ahead = "(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT + 3600000000"
    stage.sql(f"CREATE OR REPLACE FUNCTION clew_now() RETURNS BIGINT LANGUAGE SQL VOLATILE RETURN {ahead}")


@pytest.mark.fault("D2")
@pytest.mark.parametrize("stage", ["postgres"], indirect=True)
async def test_events_are_dated_by_the_clock_of_the_database(stage: Stage, door: Door) -> None:
    """So `?since=` finds what any server wrote: to these two, whose machine is right, the database's is an hour ahead."""
    door.open()
    set_ahead(stage)
    with stage.serving() as one, stage.serving() as other:
        async with clients_of(one) as ours, clients_of(other) as theirs:
            for clients in (ours, theirs):
                thread = await clients.ann.threads.create()
                await clients.ann.runs.wait(thread["thread_id"], "waiter", input=door.input())
    rows = stage.sql("SELECT at FROM events")
    assert len(rows) > 2
    assert all(3500 < at / 1_000_000 - time.time() < 3601 for (at,) in rows), rows


@pytest.mark.fault("D2")
@pytest.mark.parametrize("stage", ["postgres"], indirect=True)
async def test_queued_runs_are_dated_by_the_same_clock(stage: Stage, door: Door) -> None:
    """A run that was withdrawn from the queue is listed after the one that had begun before it."""
    set_ahead(stage)
    with stage.serving() as served:
        async with clients_of(served) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            first, second = [
                await clients.ann.runs.create(thread, "waiter", input=door.input(word)) for word in "ab"
            ]
            await clients.ann.runs.cancel(thread, second["run_id"])
            newest = await clients.ann.runs.list(thread)
    assert [run["run_id"] for run in newest] == [second["run_id"], first["run_id"]]


@pytest.mark.parametrize("stage", ["postgres"], indirect=True)
@pytest.mark.parametrize(("kind", "beside"), [("local", 3), ("workers", 6)])
async def test_a_server_stays_within_its_budget_of_connections(
    stage: Stage, door: Door, kind: str, beside: int
) -> None:
    """docs/howto/deploy.md: its pool, three beside it (heartbeat, notifications, the lock that shows it lives), and three
    of the job queue."""
    pool, most = 3, 0
    name = stage.environ["CLEW_DATABASE_URL"].partition("?")[0].rpartition("/")[2]
    with stage.serving(
        CLEW_DATABASE_POOL_MAX=str(pool), CLEW_RUNNER_KIND=kind, CLEW_RUNNER_CONCURRENCY="30"
    ) as server:
        async with clients_of(server) as clients:
            words = [f"w{number}" for number in range(20)]
            await asyncio.gather(
                *(clients.ann.runs.create(None, "waiter", input=door.input(word)) for word in words)
            )
            ending = asyncio.create_task(door.entered(*words))
            while not ending.done():
                ((count,),) = stage.sql(
                    f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name LIKE 'clew%'"
                )
                most = max(most, count)
                await asyncio.sleep(0.02)  # a sample now and then
            await ending
    assert pool < most <= pool + beside
