"""An API process and workers on a job queue: runs survive their workers, and their streams and stops cross processes."""

import asyncio
import math
import signal
import statistics
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import run_graphs
from tests.acceptance.sdk import Clients, clients_of
from tests.acceptance.sdk_runs import Door
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.faults.report import Trials
from tests.faults.test_between_processes import Told, is_announced
from tests.processes import Server
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# Nothing here waits for a lease.
CALM = {"CLEW_RUNNER_LEASE_SECONDS": "600", "CLEW_RUNNER_KIND": "workers"}
STEPS = 40


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with stage_on("postgres", request, tmp_path, run_graphs, **CALM) as stage:
        yield stage


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    folder = tmp_path / "door"
    folder.mkdir()
    door = Door(folder)
    yield door
    door.open()


def steps_of(marks: Path) -> list[tuple[int, float, bool]]:
    """The process, the time, and whether it was alone, of each step of a run."""
    if not marks.exists():
        return []
    found = [line.split() for line in marks.read_text().splitlines()]
    return [(int(pid), float(at), is_alone == "True") for pid, at, is_alone in found if is_alone]


def is_over(marks: Path) -> bool:
    return len(steps_of(marks)) >= STEPS


class Workers:
    """Three of them; one that is killed is replaced."""

    def __init__(self, stage: Stage, stack: ExitStack) -> None:
        self._stage = stage
        self._stack = stack
        self.alive: list[Server] = []
        self.killed: dict[int, float] = {}

    async def start(self) -> None:
        worker = self._stage.working("--concurrency", "40")
        self.alive.append(await asyncio.to_thread(self._stack.enter_context, worker))

    def has_the_next_one_begun(self, marks: Collection[Path]) -> bool:
        """Whether the one that is killed next runs something."""
        busy = self.alive[0].process.pid
        return any((steps := steps_of(mark)) and steps[-1][0] == busy for mark in marks)

    async def kill(self) -> None:
        worker = self.alive.pop(0)
        self.killed[worker.process.pid] = time.time()
        worker.signal(signal.SIGKILL)
        await self.start()


async def order(clients: Clients, marks: list[Path], seconds: float = 0.05) -> list[dict[str, Any]]:
    """In threads that stay when their runs have ended."""
    runs = []
    for mark in marks:
        thread = await clients.ann.threads.create()
        given = {"left": STEPS, "seconds": seconds, "marks": str(mark)}
        runs.append(await clients.ann.runs.create(thread["thread_id"], "steady", input=given))
    return runs


async def are_successful(clients: Clients, runs: list[dict[str, Any]]) -> None:
    for run in runs:
        await clients.ann.runs.join(run["thread_id"], run["run_id"])
        assert (await clients.ann.runs.get(run["thread_id"], run["run_id"]))["status"] == "success"


def taken_up(workers: Workers, marks: list[Path]) -> list[float]:
    """How long after the kill of its worker each run went on elsewhere."""
    took = []
    for mark in marks:
        steps = steps_of(mark)
        assert all(is_alone for *_, is_alone in steps)
        for (pid, _, _), (after, at, _) in pairwise(steps):
            if pid != after:
                took.append(at - workers.killed[pid])
    return took


@pytest.mark.fault("A1", on="postgres, workers")
async def test_runs_go_on_while_workers_are_killed(stage: Stage, tmp_path: Path) -> None:
    await let_die(stage, tmp_path, rounds=30, kills=2)


@pytest.mark.fault("A1", on="postgres, workers")
@pytest.mark.long
@pytest.mark.timeout(900)
async def test_500_runs_go_on_while_workers_are_killed_one_after_another(
    stage: Stage, tmp_path: Path, trials: Trials
) -> None:
    # So many at once, and so slow, that a small machine has time left for what is measured.
    took = await let_die(stage, tmp_path, rounds=trials.scaled(500), kills=math.inf, at_once=24, seconds=0.1)
    took.sort()
    p95 = took[int(len(took) * 0.95)]
    print(  # noqa: T201 - the figures of this test
        f"taken up: n {len(took)}, p50 {statistics.median(took):.2f} s, p95 {p95:.2f} s, max {took[-1]:.2f} s"
    )
    assert p95 <= 2.0


async def let_die(
    stage: Stage, folder: Path, *, rounds: int, kills: float, at_once: int = 30, seconds: float = 0.05
) -> list[float]:
    (folder / "marks").mkdir()
    marks = [folder / "marks" / str(number) for number in range(rounds)]
    active: set[Path] = set()
    limit = asyncio.Semaphore(at_once)
    with ExitStack() as stack:
        workers = Workers(stage, stack)
        api = await asyncio.to_thread(stack.enter_context, stage.serving("--no-runner"))
        await asyncio.gather(*(workers.start() for _ in range(3)))
        async with clients_of(api) as clients:

            async def run(mark: Path) -> None:
                async with limit:
                    active.add(mark)
                    await are_successful(clients, await order(clients, [mark], seconds))
                    active.remove(mark)

            running = asyncio.gather(*map(run, marks))
            while len(workers.killed) < kills and not running.done():
                await until(lambda: running.done() or workers.has_the_next_one_begun(active))
                await workers.kill()
            await running
    for mark in marks:
        # A step that was cut short is taken again, and no other.
        assert STEPS <= len(steps_of(mark)) <= STEPS + len(workers.killed)
    took = taken_up(workers, marks)
    assert took
    return took


@pytest.mark.fault("A5", "E3", on="postgres, workers")
async def test_every_part_arrives_once_through_the_kill_of_a_worker(stage: Stage, door: Door) -> None:
    with stage.serving("--no-runner") as api, ExitStack() as stack:
        worker = stack.enter_context(stage.working())
        async with clients_of(api) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            told = Told(await clients.ann.threads.join_stream(thread))
            await until(lambda: is_announced(stage, thread))
            modes = ["updates", "values", "custom"]
            await clients.ann.runs.create(thread, "walk", input=door.input(), stream_mode=modes)
            await door.entered("first")
            worker.signal(signal.SIGKILL)
            stack.enter_context(stage.working())
            door.open()
            await until(lambda: any("status" in data for data in told.of("metadata")))
            await told.close()
    numbers = [int(part.id) for part in told.parts if part.id and part.event != "metadata"]
    assert numbers == sorted(set(numbers))
    assert told.of("custom").count({"heard": "x"}) == 1
    assert told.of("updates") == [
        {"first": {"words": ["first"]}},
        {"wait": {"words": ["first done"]}},
        {"second": {"words": ["second"]}},
    ]
    words = [tuple(data["words"]) for data in told.of("values")]
    assert [len(each) for each in dict.fromkeys(words)] == [1, 2, 3, 4]


async def test_a_stop_reaches_a_worker_within_a_second(stage: Stage, door: Door) -> None:
    took: list[float] = []
    with stage.serving("--no-runner") as api, stage.working():
        async with clients_of(api) as clients:
            for number in range(6):
                word = f"stop-{number}"
                run = await clients.ann.runs.create(None, "told_of_its_end", input=door.input(word))
                await door.entered(word)
                begun = time.monotonic()
                await clients.ann.runs.cancel(run["thread_id"], run["run_id"])
                await until(partial(door.has, f"cancelled {word}"))
                took.append(time.monotonic() - begun)
    assert max(took) < 1.0, took


@pytest.mark.fault("A8", on="postgres, workers")
async def test_a_worker_that_is_told_to_end_hands_its_runs_over(stage: Stage, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with stage.serving("--no-runner") as api, stage.working() as one, stage.working() as two:
        async with clients_of(api) as clients:
            (run,) = await order(clients, [marks])
            await until(lambda: len(steps_of(marks)) > 3)
            worker, other = (one, two) if steps_of(marks)[0][0] == one.process.pid else (two, one)
            worker.signal(signal.SIGTERM)
            assert (await asyncio.to_thread(worker.wait))[0] == 0
            await are_successful(clients, [run])
        assert "run handed over" in worker.log
        assert "run ended" in other.log
    assert len(steps_of(marks)) == STEPS
    assert steps_of(marks)[-1][0] == other.process.pid
    assert all(is_alone for *_, is_alone in steps_of(marks))
