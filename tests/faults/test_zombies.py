"""Processes that are frozen, blocked, killed again and again, or told to end: others go on, and nothing is done twice."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest

from tests.databases import SHARED, locate
from tests.faults.forkserver import Child, ForkServer, fork_server


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with fork_server("tests.faults.crowds", "tests.graphs", "clew.execution") as server:
        yield server


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


class Crowd:
    """Processes that work on one database until they are told to stop."""

    def __init__(self, forks: ForkServer, where: str, folder: Path) -> None:
        self._forks, self._where, self._folder = forks, where, folder
        self._children: list[Child] = []
        self._count = 0

    def begin(self, *starts: list[Any]) -> Child:
        self._count += 1
        child = self._forks.spawn(
            "tests.faults.crowds:work",
            reports=self._folder / f"reports-{self._count}",
            where=self._where,
            folder=str(self._folder),
            stop=str(self._folder / "stop"),
            starts=list(starts),
        )
        self._children.append(child)
        until(lambda: "open" in child.reports)
        return child

    def next_death_or(self, condition: Callable[[], bool]) -> bool:
        """Wait for the newest process to die; False if the condition came first."""
        child = self._children[-1]
        until(lambda: _has_died(child.pid) or condition())
        if not _has_died(child.pid):
            return False
        assert self._children.pop().wait().was_killed
        return True

    def end(self) -> None:
        (self._folder / "stop").touch()
        for child in self._children:
            child.signal(SIGCONT)
            assert child.wait().code == 0, child.reports

    def look(self) -> dict[str, dict[str, Any]]:
        ended = self._forks.run("tests.faults.crowds:look", where=self._where, folder=str(self._folder))
        assert ended.code == 0, ended.reports
        return {seen["id"]: seen for seen in ended.reports}

    def left(self, name: str) -> list[str]:
        marks = self._folder / f"{name}.marks"
        return marks.read_text().split() if marks.exists() else []


def _has_died(pid: int) -> bool:
    return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()


@pytest.fixture
def crowd(forks: ForkServer, where: str, tmp_path: Path) -> Crowd:
    return Crowd(forks, where, tmp_path)


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.accept("001-34")
def test_a_frozen_process_wakes_up_and_writes_nothing(crowd: Crowd) -> None:
    """Frozen past its lease in the middle of a node, which another process then takes over."""
    zombie = crowd.begin(["napping", "two_naps", None])
    until(lambda: "nap" in crowd.left("napping"))
    zombie.signal(SIGSTOP)
    crowd.begin()
    until(lambda: crowd.left("napping").count("second_nap") == 1)
    zombie.signal(SIGCONT)
    until(lambda: crowd.look()["napping"]["status"] == "completed")
    before = crowd.look()["napping"]
    time.sleep(
        1.5
    )  # as long as the zombie's own nodes would take: nothing to wait for, something to rule out
    crowd.end()
    after = crowd.look()["napping"]
    assert after == before
    assert after["dense"]
    assert after["types"].count("round_finished") == 1
    assert crowd.left("napping").count("second_nap") == 1, "the zombie went on to the next node"


def test_a_blocked_event_loop_keeps_its_lease(crowd: Crowd) -> None:
    """A node sleeps for two leases without giving way, while another process looks for work."""
    crowd.begin(["blocked", "blocking", None])
    crowd.begin()
    until(lambda: crowd.look()["blocked"]["status"] == "completed")
    crowd.end()
    assert crowd.left("blocked") == ["blocks"]


@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
def test_a_thread_that_kills_its_process_is_parked_and_the_others_live(
    forks: ForkServer, where: str, tmp_path: Path
) -> None:
    crowd = Crowd(forks, where, tmp_path)
    deaths = 0
    crowd.begin(["deadly", "deadly", None])
    while crowd.next_death_or(lambda: crowd.look()["deadly"]["status"] == "failed"):
        deaths += 1
        assert deaths < 10, "it kills process after process"
        crowd.begin(*([["meek", "stubborn", None]] if deaths == 3 else []))
    crowd.end()
    found = crowd.look()
    assert found["deadly"]["status"] == "failed"
    assert "recoveries" in found["deadly"]["reason"]
    assert deaths == 6, "run once, and recovered five times"
    assert found["meek"]["status"] == "completed"
