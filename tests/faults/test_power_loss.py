"""The power goes while a process commits: what it acknowledged is there, whichever of the other writes the disk has kept."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.forkserver import ForkServer, fork_server
from tests.faults.power import LOSSES, FaultyDisk, Loss, faulty_disk
from tests.faults.report import Trials
from tests.faults.test_kill_commits import Client
from tests.postgres import PostgresServer, postgres_server

UNDER = "/on-the-disk/"


@pytest.fixture(scope="module")
def disk() -> Iterator[FaultyDisk]:
    with faulty_disk(UNDER) as disk:
        yield disk


@pytest.fixture(scope="module")
def forks(disk: FaultyDisk) -> Iterator[ForkServer]:
    with fork_server("tests.faults.commits", "tests.faults.test_power_loss", **disk.environ) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / UNDER.strip("/")
    place.mkdir()
    return place


def scribble(report: Callable[[Any], None], *, path: str) -> None:
    """Some of it is synced."""
    with Path(path).open("wb", buffering=0) as file:
        file.write(b"kept " * 1000)
        os.fsync(file)
        file.write(b"lost " * 1000)
        os.pwrite(file.fileno(), b"LOST", 0)
        file.truncate(7000)
        report("written")


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_not_synced_is_lost(forks: ForkServer, disk: FaultyDisk, place: Path, loss: Loss) -> None:
    path = place / "file"
    disk.switches.remember()
    assert forks.run("tests.faults.test_power_loss:scribble", path=str(path)).reports == ["written"]
    assert path.read_bytes()[:10] == b"LOST kept "
    assert disk.lose_power(place, random.Random(2), loss) > 0
    text = path.read_bytes()
    assert text[512:5000] == (b"kept " * 1000)[512:]
    if loss == "all":
        assert text == b"kept " * 1000


@pytest.mark.fault("A6", on="sqlite")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wanted", [3, pytest.param(300, marks=pytest.mark.long)])
def test_a_sqlite_file_survives(
    forks: ForkServer,
    disk: FaultyDisk,
    place: Path,
    tmp_path: Path,
    seed: int,
    trials: Trials,
    loss: Loss,
    wanted: int,
) -> None:
    chance = random.Random(seed)
    undone = acknowledged = 0
    client = None
    for trial in trials.run(wanted, seconds=420):
        if client is None or trial % 30 == 0:  # a young database now and then, so that checking stays cheap
            client = Client(forks, str(place / f"{trial}.sqlite"), tmp_path / f"{trial}.told")
        disk.switches.remember()
        client.listen(
            f"{seed} {trial}", kill_after=chance.uniform(0.01, 0.15), pages=chance.choice([1, 10, 1000])
        )
        undone += disk.lose_power(place, chance, loss)
        for shared in place.glob("*-shm"):
            shared.unlink()
        acknowledged += client.acknowledged
        client.check()
    # A few may all be killed too early on a busy machine.
    assert acknowledged > 0 or trials.made < 20
    assert undone > 0 or trials.made < 20, "every write was synced: nothing was tried"
    trials.note(f"{loss} of {undone} writes without a sync undone")


@pytest.fixture(scope="module")
def postgres_on_disk() -> Iterator[tuple[PostgresServer, FaultyDisk]]:
    with faulty_disk("/data/") as disk, postgres_server(environ=disk.environ) as server:
        yield server, disk


@pytest.fixture(scope="module")
def clean_forks() -> Iterator[ForkServer]:
    with fork_server("tests.faults.commits") as server:
        yield server


@pytest.mark.fault("A6", on="postgres")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_postgres_database_survives(
    clean_forks: ForkServer,
    postgres_on_disk: tuple[PostgresServer, FaultyDisk],
    tmp_path: Path,
    seed: int,
    trials: Trials,
    loss: Loss,
) -> None:
    """Its server loses the power with all its processes; ours are killed at the same moment."""
    postgres, disk = postgres_on_disk
    chance = random.Random(seed)
    undone = 0
    client = Client(clean_forks, postgres.create_database(f"power_{loss}"), tmp_path / "told")
    for trial in trials.run(100, seconds=420):
        disk.switches.remember()
        client.listen(f"{seed} {trial}", kill_after=chance.uniform(0.05, 0.4))
        postgres.kill()
        undone += disk.lose_power(postgres.data, chance, loss)
        postgres.start()
        client.check()
    assert client.acknowledged > trials.made or trials.made < 20
    assert undone > 0 or trials.made < 20, "every write was synced: nothing was tried"
    trials.note(f"{loss} of {undone} writes without a sync undone")
