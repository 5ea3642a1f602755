"""System calls that fail under SQLite at any moment: callers hear of an outage, and what was acknowledged is there."""

import errno
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.forkserver import ForkServer, fork_server
from tests.faults.power import EXTEND, READ, SYNC, TRUNCATE, WRITE, FaultyDisk, faulty_disk
from tests.faults.report import Trials
from tests.faults.test_kill_commits import Client

UNDER = "/on-the-disk/"
KINDS = {"read": READ, "write": WRITE, "sync": SYNC, "truncate": TRUNCATE}
COMMITS = 6


@pytest.fixture(scope="module")
def disk() -> Iterator[FaultyDisk]:
    with faulty_disk(UNDER) as disk:
        yield disk


@pytest.fixture(scope="module")
def forks(disk: FaultyDisk) -> Iterator[ForkServer]:
    with fork_server("tests.faults.commits", **disk.environ) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / UNDER.strip("/")
    place.mkdir()
    return place


def commits_in_spite(forks: ForkServer, disk: FaultyDisk, client: Client, seed: str, **fault: int) -> int:
    """All of them were acknowledged in the end; how many calls had failed until then."""
    ended = forks.run(
        "tests.faults.commits:endure",
        where=client.where,
        seed=seed,
        control=disk.control,
        fault=fault,
        commits=COMMITS,
    )
    failed = disk.switches.failed
    disk.switches.heal()
    assert ended.code == 0, ended.reports[-1:]
    client.remember(ended.reports)
    client.check()
    return failed


@pytest.mark.fault("B6", on="sqlite")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("places", [(1, 5), pytest.param(range(1, 201), marks=pytest.mark.long)], ids=len)
def test_the_nth_call_fails(
    forks: ForkServer,
    disk: FaultyDisk,
    place: Path,
    tmp_path: Path,
    trials: Trials,
    kind: str,
    places: tuple[int, ...],
) -> None:
    """Once, or three times one after another."""
    failed = 0
    client = Client(forks, str(place / "0.sqlite"), tmp_path / "0.told")
    for trial in trials.run(len(places), seconds=300):
        if trial % 20 == 19:  # a young database now and then
            client = Client(forks, str(place / f"{trial}.sqlite"), tmp_path / f"{trial}.told")
        failed += commits_in_spite(
            *(forks, disk, client, str(trial)),
            kinds=KINDS[kind],
            code=errno.EIO,
            after=places[trial] - 1,
            times=1 + 2 * (trial % 2),
        )
    assert failed > 0 or kind == "truncate", "nothing ever failed"


@pytest.mark.fault("B5", on="sqlite")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("wanted", [3, pytest.param(100, marks=pytest.mark.long)])
def test_the_disk_is_full_for_a_while(
    forks: ForkServer, disk: FaultyDisk, place: Path, tmp_path: Path, seed: int, trials: Trials, wanted: int
) -> None:
    chance = random.Random(seed)
    failed = 0
    client = Client(forks, str(place / "0.sqlite"), tmp_path / "0.told")
    for trial in trials.run(wanted, seconds=120):
        if trial % 20 == 19:  # a young database now and then
            client = Client(forks, str(place / f"{trial}.sqlite"), tmp_path / f"{trial}.told")
        failed += commits_in_spite(
            *(forks, disk, client, f"{seed} {trial}"),
            kinds=EXTEND,
            code=errno.ENOSPC,
            after=chance.randrange(20),
            times=chance.randrange(1, 60),
        )
    assert failed > 0


@pytest.mark.fault("B6", on="sqlite")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "at", [2, 8, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 1, 4, 16, 40, 90))]
)
def test_a_start_on_a_failing_disk_is_refused_in_our_words(
    forks: ForkServer, disk: FaultyDisk, place: Path, kind: str, at: int
) -> None:
    """Or it succeeds, if no call of the kind was the one to fail; the next start does. A schema of which a page cannot be
    read is damaged, to SQLite."""
    where = str(place / "clew.sqlite")
    disk.switches.fail(KINDS[kind], errno.EIO, after=at, times=1)
    first = forks.run("tests.faults.commits:migrated", where=where)
    has_failed = disk.switches.failed > 0
    disk.switches.heal()
    if has_failed and first.code:
        (told,) = first.reports
        assert told["failed"].startswith(("ConfigError: ", "Unavailable: ", "Corrupt: ")), told
        assert "Traceback" not in json.dumps(told)
    second = forks.run("tests.faults.commits:migrated", where=where)
    assert second.code == 0, second.reports
