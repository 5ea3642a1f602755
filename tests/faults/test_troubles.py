"""Trouble below a server under load: its database, disk, network or clock fails for a while. Nothing is lost, all goes on."""

import errno
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.faults.conftest import PLAYS
from tests.faults.forkserver import PRODUCT, Child, ForkServer, fork_server
from tests.faults.links import Link, linked
from tests.faults.power import EXTEND, READ, SYNC, WRITE, FaultyDisk, faulty_disk
from tests.faults.report import Trials
from tests.faults.sink import Sink, sink
from tests.faults.stage import Server, Stage
from tests.faults.test_random_kills import Crowd, check
from tests.postgres import PostgresServer, postgres_server
from tests.processes import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

PLACES = ("sqlite", "postgres", "postgres, workers")
ON_POSTGRES = PLACES[1:]
SOCKET = ".s.PGSQL.5432"
# What a client may be told while there is trouble: it was done, it was done before, or to come back later.
FINE = {200, 409, 503, 507}
# Deadlines of a deployment that would rather answer 503 than wait.
SHORT = {"CLEW_DATABASE_ACQUIRE_SECONDS": "2", "CLEW_DATABASE_STATEMENT_SECONDS": "4"}


@dataclass(frozen=True, slots=True)
class Ground:
    """Where servers run, and what can be broken there."""

    place: str
    stage: Stage
    disk: FaultyDisk
    postgres: PostgresServer | None = None
    link: Link | None = None

    @property
    def server(self) -> PostgresServer:
        assert self.postgres is not None
        return self.postgres


@pytest.fixture(scope="module")
def world() -> Iterator[Sink]:
    with sink() as there:
        yield there


@pytest.fixture(scope="module")
def disk() -> Iterator[FaultyDisk]:
    with faulty_disk("/on-the-disk/") as disk:
        yield disk


@pytest.fixture(scope="module")
def faulty_forks(disk: FaultyDisk) -> Iterator[ForkServer]:
    """Its children have the disk below them, and the clock it has."""
    modules = (*PRODUCT, *PLAYS, "tests.graphs")
    with fork_server(*modules, LANGGRAPH_STRICT_MSGPACK="true", **disk.environ) as server:
        yield server


@pytest.fixture(params=PLACES)
def ground(
    request: pytest.FixtureRequest, disk: FaultyDisk, faulty_forks: ForkServer, tmp_path: Path
) -> Iterator[Ground]:
    place = str(request.param)
    if place == "sqlite":
        folder = tmp_path.resolve() / "on-the-disk"
        folder.mkdir()
        yield Ground(place, Stage(faulty_forks, str(folder / "clew.sqlite"), tmp_path / "stage"), disk)
        disk.switches.heal()
        return
    with ExitStack() as stack:
        below = stack.enter_context(faulty_disk("/data/"))
        postgres = stack.enter_context(postgres_server(environ=below.environ))
        postgres.create_database("trouble")
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clew-link-", dir="/tmp")))
        link = stack.enter_context(linked(path / SOCKET, postgres.folder / SOCKET))
        environ = {**SHORT, "CLEW_RUNNER_KIND": "workers" if "workers" in place else "local"}
        url = f"postgresql://postgres@/trouble?host={path}"
        stage = Stage(faulty_forks, url, tmp_path / "stage", environ)
        yield Ground(place, stage, below, postgres, link)
        disk.switches.heal()


Trouble = Callable[[Ground, random.Random], None]


def go_through(
    ground: Ground,
    world: Sink,
    seed: int,
    trials: Trials,
    trouble: Callable[[Server, list[Child]], None],
    *,
    wanted: int = 1000,
    seconds: float = 120,
    pause: tuple[float, float] = (0.2, 2.0),
    back_within: float = 2.0,
    may_fail: bool = False,
) -> None:
    """Trouble again and again while clients are at work; then all of it is looked at."""
    chance = random.Random(seed)
    crowd = Crowd(world, prefix=f"{seed}-{ground.place.replace(', ', '-')}-{time.monotonic_ns()}")
    took: list[float] = []
    with ExitStack() as stack:
        server = stack.enter_context(ground.stage.serving())
        has_workers = "workers" in ground.place
        workers = [stack.enter_context(ground.stage.working()) for _ in range(2 if has_workers else 0)]

        def again_and_again() -> None:
            for _ in trials.run(wanted, seconds=seconds):
                time.sleep(min(chance.uniform(*pause), trials.seconds(pause[1])))  # the moment is the fault
                trouble(server, workers)
                took.append(crowd.back_after(server))

        crowd.talk_through(server, again_and_again)
        for client in crowd.everybody:
            client.carry_on(server)
        assert set(server.answers) <= FINE, server.answers
    for client in crowd.everybody:
        check(client)
    trials.note(
        f"{len(crowd.everybody)} threads, {crowd.told} events heard; back at most {max(took):.2f} s after the cause ended"
    )
    assert may_fail or sum(client.resumed for client in crowd.everybody) == 0, "a run failed because of it"
    assert max(took) <= back_within, took


@pytest.mark.fault("B1")
@pytest.mark.parametrize("ground", ON_POSTGRES, indirect=True)
def test_postgres_restarts(ground: Ground, world: Sink, seed: int, trials: Trials) -> None:
    """Every 5 to 40 s, in each of the ways there are, away for up to 2 s."""
    chance = random.Random(seed)

    def restart(*_: object) -> None:
        how = chance.choice(["fast", "immediate", "kill"])
        ground.server.kill() if how == "kill" else ground.server.stop(how)  # type: ignore[arg-type]
        time.sleep(chance.uniform(0, 2))  # away
        ground.server.start()

    go_through(
        ground,
        world,
        seed,
        trials,
        restart,
        seconds=600 if "workers" in ground.place else 300,
        pause=(5, 40),
        back_within=5,
    )


@pytest.mark.fault("B2")
@pytest.mark.parametrize("ground", ON_POSTGRES, indirect=True)
@pytest.mark.parametrize("fault", ["slow", "cut", "silent", "frozen"])
def test_the_network_to_postgres(ground: Ground, world: Sink, seed: int, trials: Trials, fault: str) -> None:
    """Slow, cut, silent; and a server that stands still."""
    chance, link = random.Random(seed), ground.link
    assert link is not None

    def disturb(*_: object) -> None:
        seconds = chance.uniform(0.1, 8)
        match fault:
            case "slow":
                link.delay = chance.uniform(0.005, 0.2)
            case "cut":
                link.cut()
                seconds = 0
            case "silent":
                link.is_silent = True
            case _:
                ground.server.freeze()
        time.sleep(seconds)  # it lasts
        link.delay, link.is_silent = 0.0, False
        if fault == "frozen":
            ground.server.thaw()

    go_through(ground, world, seed, trials, disturb, seconds=40, back_within=5)


@pytest.mark.fault("B5")
@pytest.mark.parametrize("ground", PLACES, indirect=True)
def test_a_full_disk(ground: Ground, world: Sink, seed: int, trials: Trials) -> None:
    chance = random.Random(seed)
    failed = 0

    def fill(*_: object) -> None:
        nonlocal failed
        ground.disk.switches.fail(EXTEND, errno.ENOSPC)
        time.sleep(chance.uniform(0.1, 1.5))  # it lasts
        failed += ground.disk.switches.failed
        ground.disk.switches.heal()

    go_through(ground, world, seed, trials, fill, wanted=100, seconds=120, back_within=5)
    assert failed > 0
    trials.note(f"{failed} calls failed")


@pytest.mark.fault("B6")
@pytest.mark.parametrize("ground", PLACES, indirect=True)
@pytest.mark.parametrize("kind", ["read", "write", "sync"])
def test_input_and_output_errors(ground: Ground, world: Sink, seed: int, trials: Trials, kind: str) -> None:
    chance = random.Random(seed)
    kinds = {"read": READ, "write": WRITE, "sync": SYNC}[kind]
    failed = 0

    def fail(*_: object) -> None:
        nonlocal failed
        times = chance.choice([1, 1, 3, 50])
        ground.disk.switches.fail(kinds, errno.EIO, after=chance.randrange(50), times=times)
        time.sleep(chance.uniform(0.1, 1.0))  # it lasts
        failed += ground.disk.switches.failed
        ground.disk.switches.heal()

    # To SQLite a read that fails with EIO is a damaged file, and that is no outage.
    is_damage = kind == "read" and ground.place == "sqlite"
    go_through(ground, world, seed, trials, fail, wanted=70, seconds=60, back_within=5, may_fail=is_damage)
    trials.note(f"{failed} calls failed ({kind})")


@pytest.mark.fault("D1")
@pytest.mark.parametrize("ground", PLACES, indirect=True)
def test_the_clock_jumps(ground: Ground, world: Sink, disk: FaultyDisk, seed: int, trials: Trials) -> None:
    """Of all processes of Clew, while they run: minutes, hours, a month, forwards and back."""
    chance = random.Random(seed)
    jumps = (0, 60, -60, 3600, -3600, 86_400, -86_400, 30 * 86_400)

    def jump(*_: object) -> None:
        disk.switches.set_clock(chance.choice(jumps))

    try:
        go_through(ground, world, seed, trials, jump, wanted=100, seconds=60, pause=(0.1, 0.8))
    finally:
        disk.switches.set_clock(0)


@pytest.mark.fault("A11")
@pytest.mark.parametrize("ground", PLACES, indirect=True)
def test_processes_stand_still(ground: Ground, world: Sink, seed: int, trials: Trials) -> None:
    """For longer than the lease of half a second, and go on: the server itself, or one of its workers."""
    chance = random.Random(seed)

    def freeze(server: Server, workers: list[Child]) -> None:
        pid = chance.choice([server.child, *workers]).pid
        process = psutil.Process(pid)
        process.send_signal(signal.SIGSTOP)
        until(lambda: process.status() == psutil.STATUS_STOPPED)
        time.sleep(chance.uniform(0.1, 2))  # it stands still
        process.send_signal(signal.SIGCONT)

    go_through(ground, world, seed, trials, freeze, wanted=200, seconds=120)
