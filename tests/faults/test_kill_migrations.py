"""A process that makes or upgrades a database is killed: the next one opens it, and finds what a fresh one has."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from math import inf
from pathlib import Path

import pytest

from tests.databases import later_migrations
from tests.faults.forkserver import ForkServer, fork_server
from tests.faults.report import Trials

JOB = "tests.faults.commits:migrated"
NEWEST = len(later_migrations("sqlite"))


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with fork_server("tests.faults.commits") as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def new(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes as many empty databases as are asked for."""
    if request.param == "sqlite":
        numbers = count()
        return lambda: str(tmp_path / f"{next(numbers)}.sqlite")
    new_url: Callable[[str], str] = request.getfixturevalue("new_postgres_url")
    return lambda: new_url("template1")


def opened(forks: ForkServer, where: str) -> str:
    ended = forks.run(JOB, where=where)
    assert ended.code == 0, ended.reports
    schema: str = ended.reports[-1]
    return schema


def killed_at(
    forks: ForkServer,
    new: Callable[[], str],
    hits: Iterable[int],
    *,
    older: int = 0,
    point: str = "migration_mid",
) -> int:
    """Kill the opening of a database at each of these steps, until one is past its end; return that one."""
    fresh = opened(forks, new())
    for hit in hits:
        where = new()
        if older:
            assert forks.run(JOB, where=where, versions=older).code == 0
        ended = forks.run(JOB, where=where, failpoint=f"{point}:kill@{hit}")
        assert opened(forks, where) == fresh
        if not ended.was_killed:
            assert ended.code == 0, ended.reports
            return hit
    raise AssertionError("the last of the steps is past the end")


@pytest.mark.fault("U3")
@pytest.mark.parametrize("older", range(1, NEWEST), ids=lambda n: f"from {n}")
def test_killed_at_every_step_of_an_upgrade(forks: ForkServer, new: Callable[[], str], older: int) -> None:
    past = killed_at(forks, new, count(1), older=older)
    assert past > NEWEST - older, "each migration has at least one step"


@pytest.mark.fault("A9")
def test_killed_at_some_steps_of_a_first_start(forks: ForkServer, new: Callable[[], str]) -> None:
    assert killed_at(forks, new, (1, 2, 3, 20, 80, 1000)) > NEWEST


@pytest.mark.fault("A9")
@pytest.mark.long
def test_killed_at_every_step_of_a_first_start(forks: ForkServer, new: Callable[[], str]) -> None:
    assert killed_at(forks, new, count(1)) > NEWEST


@pytest.mark.fault("A9")
@pytest.mark.parametrize("point", ["commit_begun", "commit_written", "commit_done"])
def test_killed_around_every_transaction_of_a_first_start(
    forks: ForkServer, new: Callable[[], str], point: str
) -> None:
    assert killed_at(forks, new, count(1), point=point) > NEWEST


@pytest.mark.fault("A9")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("wanted", [15, pytest.param(150, marks=pytest.mark.long)])
@pytest.mark.parametrize("older", [0, 1], ids=["empty", "old"])
def test_killed_at_any_moment_of_a_first_start(
    forks: ForkServer, tmp_path: Path, seed: int, older: int, trials: Trials, wanted: int
) -> None:
    chance = random.Random(seed)
    fresh = opened(forks, str(tmp_path / "fresh.sqlite"))
    setup = inf
    killed = 0
    for trial in trials.run(wanted, seconds=120):
        where = str(tmp_path / f"{trial}.sqlite")
        if older:
            assert forks.run(JOB, where=where, versions=older).code == 0
        began = time.monotonic()
        kill_after = chance.uniform(0, 1.2 * setup) if trial else None
        ended = forks.run(JOB, where=where, kill_after=kill_after)
        if ended.was_killed:
            killed += 1
        else:
            # The quickest so far: one that waited for the processor says little about when the others begin to write.
            assert ended.code == 0, ended.reports
            setup = min(setup, time.monotonic() - began)
        assert opened(forks, where) == fresh
    assert killed > trials.made / 5 - 2
    trials.note(f"{killed} of {trials.made} starts were killed, all opened afterwards")
