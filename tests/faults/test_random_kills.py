"""Killed at random, again and again, with threads of every kind under way: nothing anybody was told is lost, nothing is stuck."""

import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from tests.databases import SHARED, locate
from tests.faults.forkserver import ForkServer
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
@pytest.mark.timeout(300)
def test_eight_kills(stage: Stage, world: Sink, seed: int) -> None:
    kill_and_check(stage, world, seed, kills=8)


@pytest.mark.fault("A1", "A3", "A5", "A7")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_kills(stage: Stage, world: Sink, seed: int) -> None:
    kill_and_check(stage, world, seed, kills=1000)


def kill_and_check(stage: Stage, world: Sink, seed: int, *, kills: int) -> None:
    chance = random.Random(seed)
    crowd = Crowd(world, prefix=f"{seed}-{stage.where[:8]}")
    for trial in range(kills):
        # Now and then while it still takes up what the one before it left; else once it has begun something new.
        early = f"commit_done:kill@{chance.randrange(1, 20)}" if trial % 5 == 4 else ""
        with suppress(Gone), stage.serving(early, from_start=True) as server:
            crowd.talk_until_it_dies(server, chance.randrange(24), chance.uniform(0, 0.1))
    with stage.serving() as server, ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda client: client.carry_on(server), crowd.everybody))
    sys.stdout.write(
        f"{kills} kills, {len(crowd.everybody)} threads, {crowd.told} events heard and none lost:"
        f" fewer than {3 / kills:.1%} of kills lose one (95 %)\n"
    )
    assert crowd.told > 5 * kills, "the kills came before anything happened"
    for client in crowd.everybody:
        check(client)


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
            number = next(self._numbers)
            tool = TOOLS[number % len(TOOLS)]
            name = f"{self._prefix}-{number}-{tool}"
            client = Client(name, self._world, "acting", (f"tools: {tool} at={self._world.place(name)}",))
            self.everybody.append(client)
            return client
