"""Killed at random, again and again, with threads of every kind under way: nothing anybody was told is lost, nothing is stuck."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event

import pytest

from tests.databases import SHARED, locate
from tests.faults.forkserver import ForkServer
from tests.faults.report import Trials
from tests.faults.sink import Sink, sink
from tests.faults.stage import Client, Gone, Server, Stage
from tests.processes import until

AT_ONCE = 6
TOOLS = ("effect", "effect_once", "effect_approved")


@pytest.fixture(scope="module")
def world() -> Iterator[Sink]:
    with sink() as there:
        yield there


@pytest.fixture(params=SHARED)
def stage(request: pytest.FixtureRequest, forks: ForkServer, tmp_path: Path) -> Stage:
    return Stage(forks, locate(request.param, request), tmp_path / "stage")


@pytest.mark.fault("A1", "A3", "A5", "A7")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("wanted", [8, pytest.param(1000, marks=pytest.mark.long)])
def test_a_server_is_killed(stage: Stage, world: Sink, seed: int, trials: Trials, wanted: int) -> None:
    chance = random.Random(seed)
    crowd = Crowd(world, prefix=f"{seed}-{stage.where[:8]}")
    for trial in trials.run(wanted, seconds=600):
        # Now and then while it still takes up what the one before it left; else once it has begun something new.
        early = f"commit_done:kill@{chance.randrange(1, 20)}" if trial % 5 == 4 else ""
        with suppress(Gone), stage.serving(early, from_start=True) as server:
            crowd.talk_until_it_dies(server, chance.randrange(24), chance.uniform(0, 0.1))
    with stage.serving() as server:
        crowd.come_to_an_end(server, trials)


@pytest.mark.fault("A1", "A3", "A5", on="postgres, workers")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stage", ["postgres"], indirect=True)
def test_workers_are_killed(stage: Stage, world: Sink, seed: int, trials: Trials) -> None:
    """One of two, and then it is replaced; a server of the API beside them, which is killed now and then, too."""
    chance = random.Random(seed)
    stage = replace(stage, environ={"CLEW_RUNNER_KIND": "workers"})
    crowd = Crowd(world, prefix=f"{seed}-workers")
    numbers = trials.run(1000, seconds=600)
    with ExitStack() as stack:
        workers = [stack.enter_context(stage.working()) for _ in range(2)]

        def kill_workers() -> None:
            for _, number in zip(range(chance.randrange(1, 20)), numbers, strict=False):
                enough = crowd.told + chance.randrange(24)
                until(lambda enough=enough: crowd.told >= enough)  # type: ignore[misc]
                time.sleep(chance.uniform(0, 0.2))  # not to wait for anything: this is when chance kills it
                workers[number % 2].signal(signal.SIGKILL)
                workers[number % 2] = stack.enter_context(stage.working())

        while (before := trials.made) == 0 or before < trials.scaled(1000):
            with stage.serving(runs=False) as server:
                crowd.talk_through(server, kill_workers)
                server.kill()
            if trials.made == before:
                break
        with stage.serving(runs=False) as server:
            crowd.come_to_an_end(server, trials)


def check(client: Client) -> None:
    calls, results = client.logged("tool_call"), client.logged("tool_result")
    (tool,) = [tool for tool in TOOLS if client.name.endswith(f"-{tool}")]
    keys = [key for what, key in client.sink.received(client.name) if what == tool]
    assert len(calls) == 1, (client.name, calls)
    assert set(keys) <= set(calls), (client.name, "done under another key")
    assert tool == "effect" or len(keys) <= 1, (client.name, "done twice")
    if client.thread["status"] == "completed":
        assert results == calls, client.thread
        assert keys, (client.name, "said to be done, and was not")
    else:
        # Parked: what must not be repeated waits for a person.
        assert tool != "effect", client.thread
        assert [call["kind"] for call in client.thread["pending"].values()] == ["in_doubt"], client.thread


class Crowd:
    """Clients that start threads as fast as they end, and come back to those they were cut off from."""

    def __init__(self, world: Sink, prefix: str) -> None:
        self._world = world
        self._prefix = prefix
        self._numbers = count()
        self._cut_off: SimpleQueue[Client] = SimpleQueue()
        self._is_over = Event()
        self.everybody: list[Client] = []

    def talk_until_it_dies(self, server: Server, events: int, seconds: float) -> None:
        """It is killed so many seconds after so many events: counted in time alone, a slow one would die too early."""
        enough = self.told + events
        with ThreadPoolExecutor(AT_ONCE) as pool:
            talks: list[Future[None]] = [pool.submit(self._talk, server) for _ in range(AT_ONCE)]
            try:
                until(lambda: self.told >= enough or all(talk.done() for talk in talks))
                time.sleep(seconds)  # not to wait for anything: this is when chance kills it
            finally:
                server.kill()
            for talk in talks:
                talk.result()

    def talk_through(self, server: Server, trouble: Callable[[], object]) -> None:
        """It stays alive; who is cut off comes back to it."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            talks = [pool.submit(self._talk_on, server) for _ in range(AT_ONCE)]
            try:
                trouble()
            finally:
                self._is_over.set()
            for talk in talks:
                talk.result()
        self._is_over.clear()

    def _talk_on(self, server: Server) -> None:
        while not self._is_over.is_set():
            client = self._next()
            try:
                client.listen(server)
            except Gone:
                self._cut_off.put(client)
                time.sleep(0.02)  # as a client would

    def back_after(self, server: Server) -> float:
        """Seconds until it takes something new."""
        client = self._new()
        begun = time.monotonic()
        client.say(server)
        self._cut_off.put(client)
        return time.monotonic() - begun

    def come_to_an_end(self, server: Server, trials: Trials) -> None:
        """Everybody looks at what became of it."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda client: client.carry_on(server), self.everybody))
        trials.note(f"{len(self.everybody)} threads, {self.told} events heard and none lost")
        assert self.told > 5 * trials.made or trials.made < 5, "the kills came before anything happened"
        for client in self.everybody:
            check(client)

    @property
    def told(self) -> int:
        return sum(len(client.heard) for client in self.everybody)

    def _talk(self, server: Server) -> None:
        while True:
            client = self._next()
            try:
                client.listen(server)
            except Gone:
                self._cut_off.put(client)
                return

    def _next(self) -> Client:
        try:
            return self._cut_off.get_nowait()
        except Empty:
            return self._new()

    def _new(self) -> Client:
        number = next(self._numbers)
        tool = TOOLS[number % len(TOOLS)]
        name = f"{self._prefix}-{number}-{tool}"
        client = Client(name, self._world, "acting", (f"tools: {tool} at={self._world.place(name)}",))
        self.everybody.append(client)
        return client
