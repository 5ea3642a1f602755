"""Killed at random, again and again, with threads of every kind under way: nothing acknowledged is lost, nothing is stuck."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import SHARED, locate
from tests.faults.forkserver import ForkServer, fork_server


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with fork_server("tests.faults.plays", "tests.graphs", "clew.execution") as server:
        yield server


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


def test_fifty_kills(forks: ForkServer, where: str, tmp_path: Path) -> None:
    kill_and_check(forks, where, tmp_path, kills=50)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_kills(forks: ForkServer, where: str, tmp_path: Path) -> None:
    kill_and_check(forks, where, tmp_path, kills=1000)


def kill_and_check(forks: ForkServer, where: str, folder: Path, *, kills: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}; no failure in {kills} kills bounds the rate to {3 / kills:.1%}")  # noqa: T201 - to replay it
    chance = random.Random(seed)
    acknowledged: list[str] = []
    for trial in range(kills):
        ended = forks.run(
            "tests.faults.plays:soak",
            where=where,
            folder=str(folder),
            trial=trial,
            # Now and then while it still takes up what the one before it left; else once it has begun something new.
            **(
                {"kill_after": chance.uniform(0.1, 0.7)}
                if trial % 5 == 4
                else {"kill_after_report": chance.uniform(0, 0.4)}
            ),
        )
        assert ended.was_killed, ended.reports
        acknowledged += ended.reports
    ended = forks.run("tests.faults.plays:settle", where=where, folder=str(folder), timeout=110)
    assert ended.code == 0, ended.reports[-3:]
    found = {thread["id"]: thread for thread in ended.reports}

    assert len(acknowledged) > kills  # or the kills came before anything happened
    assert set(acknowledged) <= set(found)
    for name, thread in found.items():
        marks = folder / f"{name}.marks"
        done = marks.read_text().count(" 7\n") if marks.exists() else 0
        assert thread["dense"], thread
        assert len(thread["calls"]) == len(set(thread["calls"])) <= 1, thread
        if thread["status"] == "completed":
            assert thread["results"] == thread["calls"], thread
            assert done == 1 or (name.startswith("effect-") and done >= 1), (thread, done)
        else:
            # Parked: what must not be repeated waits for a person, and a thread that was killed too often says so.
            assert thread["pending"] == ["in_doubt"] or "recoveries" in (thread["reason"] or ""), thread
            assert name.startswith("effect-") or done <= 1, (thread, done)
