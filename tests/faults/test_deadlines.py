"""A process that stands still while the deadline of an approval passes: the call expires, and only once."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.databases import locate
from tests.faults.forkserver import Child, ForkServer
from tests.faults.report import Trials
from tests.faults.sink import Sink, sink
from tests.faults.stage import Client, Server, Stage
from tests.processes import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

AT_ONCE = 4
# A transaction that its client has forgotten is ended after twice the two deadlines together.
SHORT = {"CLEW_DATABASE_ACQUIRE_SECONDS": "1", "CLEW_DATABASE_STATEMENT_SECONDS": "1"}
PLACES = ("sqlite", "postgres", "postgres, workers")


@pytest.fixture(scope="module")
def world() -> Iterator[Sink]:
    with sink() as there:
        yield there


@pytest.fixture(params=PLACES)
def stage(request: pytest.FixtureRequest, forks: ForkServer, tmp_path: Path) -> Stage:
    kind = "workers" if "workers" in request.param else "local"
    where = locate("sqlite" if request.param == "sqlite" else "postgres", request)
    return Stage(forks, where, tmp_path / "stage", {"CLEW_RUNNER_KIND": kind, **SHORT})


@pytest.mark.fault("D4")
def test_it_expires_once_after_the_process_wakes_up(
    stage: Stage, world: Sink, seed: int, trials: Trials
) -> None:
    """On Postgres another server is there, which expires it meanwhile."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        frozen = stack.enter_context(stage.serving())
        shared = stage.where.startswith("postgres")
        other = stack.enter_context(stage.serving()) if shared else frozen
        for trial in trials.run(100, seconds=90):
            clients = [
                Client(f"{seed}-{trial}-{n}", world, "acting", (prompt(world, f"{seed}-{trial}-{n}"),), False)
                for n in range(AT_ONCE)
            ]
            for client in clients:
                client.say(frozen)
            time.sleep(chance.uniform(0, 0.3))  # the moment is the fault
            freeze(frozen.child)
            if shared:
                for client in clients:
                    until(lambda client=client: is_over(other, client))  # type: ignore[misc]
            else:
                time.sleep(0.4)  # past every deadline
            frozen.child.signal(signal.SIGCONT)
            for client in clients:
                client.carry_on(frozen)
                asked, answered = client.logged("suspension"), client.logged("resolution")
                assert asked == answered
                assert len(asked) == 1
                assert client.thread["status"] == "completed", client.thread
                assert not [what for what, _ in world.received(client.name) if what == "effect_if_quick"]


def prompt(world: Sink, name: str) -> str:
    return f"tools: effect_if_quick at={world.place(name)}"


def freeze(child: Child) -> None:
    child.signal(signal.SIGSTOP)
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)


def is_over(server: Server, client: Client) -> bool:
    return bool(server.get(f"/api/threads/{client.thread_id}")["status"] == "completed")
