"""Processes that are frozen, blocked, killed again and again, or told to end: others go on, and nothing is done twice."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGCONT, SIGKILL
from typing import Any

import psutil
import pytest

from clew.stores.sql.work import Rows
from tests.databases import SHARED, locate, open_database, query
from tests.faults.forkserver import Child, ForkServer
from tests.faults.standstills import let_go_on
from tests.processes import until

# On a busy machine a short one is lost by those who only wait for the processor too, and then a node runs twice, as it
# may. Where somebody is to lose it, it is taken away.
LEASE = 60
WORKERS = pytest.param("postgres, workers", marks=pytest.mark.long)


class Crowd:
    """Processes that work on one database until they are told to stop."""

    def __init__(self, forks: ForkServer, where: str, folder: Path, kind: str = "local") -> None:
        self._forks, self._where, self._folder, self._kind = forks, where, folder, kind
        self._children: list[Child] = []
        self._count = 0

    def begin(self, *starts: list[Any], lease: float = LEASE) -> Child:
        self._count += 1
        child = self._forks.spawn(
            "tests.faults.crowds:work",
            reports=self._folder / f"reports-{self._count}",
            where=self._where,
            folder=str(self._folder),
            stop=str(self._folder / "stop"),
            lease=lease,
            kind=self._kind,
            starts=list(starts),
        )
        self._children.append(child)
        until(lambda: "open" in child.reports or not child.is_alive)
        return child

    def next_death_or(self, condition: Callable[[], bool]) -> bool:
        """Wait for the newest process to die; False if the condition came first."""
        child = self._children[-1]
        until(lambda: not child.is_alive or condition())
        if child.is_alive:
            return False
        assert self._children.pop().wait().was_killed, child.reports
        return True

    def end(self) -> None:
        (self._folder / "stop").touch()
        while self._children:
            child = self._children.pop()
            assert child.wait().code == 0, child.reports

    def kill(self) -> None:
        """Whatever a test that failed has left."""
        while self._children:
            child = self._children.pop()
            child.signal(SIGKILL)
            child.wait()

    def leave(self, name: str, graph: str) -> None:
        """A thread that whoever comes next may run."""
        ended = self._forks.run(
            "tests.faults.crowds:leave",
            where=self._where,
            folder=str(self._folder),
            thread_id=name,
            graph=graph,
        )
        assert ended.code == 0, ended.reports

    def look(self) -> dict[str, dict[str, Any]]:
        ended = self._forks.run("tests.faults.crowds:look", where=self._where, folder=str(self._folder))
        assert ended.code == 0, ended.reports
        return {seen["id"]: seen for seen in ended.reports}

    def column(self, column: str, name: str) -> Any:
        """Of the thread's row."""
        ((value,),) = self._query(f"SELECT {column} FROM threads WHERE id = '{name}'")
        return value

    def end_leases(self) -> None:
        """As if nobody had been heard of for longer than that."""
        self._query("UPDATE threads SET lease_until = 0 WHERE lease_until IS NOT NULL")

    def _query(self, sql: str) -> Rows:
        async def ask() -> Rows:
            async with open_database(self._where) as db:
                return await query(db, sql)

        return asyncio.run(ask())

    def marks(self, name: str) -> Path:
        return self._folder / f"{name}.marks"

    def left(self, name: str) -> list[str]:
        return self.marks(name).read_text().split() if self.marks(name).exists() else []


@pytest.fixture(params=[*SHARED, WORKERS])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def where(place: str, request: pytest.FixtureRequest) -> str:
    return locate(place.partition(",")[0], request)


@pytest.fixture
def crowd(forks: ForkServer, place: str, where: str, tmp_path: Path) -> Iterator[Crowd]:
    crowd = Crowd(forks, where, tmp_path, "workers" if "workers" in place else "local")
    yield crowd
    crowd.kill()


@pytest.mark.fault("A11")
@pytest.mark.accept("001-34")
def test_a_frozen_process_wakes_up_and_writes_nothing(crowd: Crowd) -> None:
    """Frozen past its lease in the middle of a node, which another process then takes over."""
    zombie = crowd.begin(["frozen", "freezing", None])
    until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED)
    crowd.end_leases()
    crowd.begin()
    until(lambda: crowd.column("stage", "frozen") == "lingers")
    before = crowd.look()["frozen"]
    zombie.signal(SIGCONT)
    until(lambda: "idle" in zombie.reports)
    assert crowd.look()["frozen"] == before
    let_go_on(crowd.marks("frozen"))
    until(lambda: crowd.column("status", "frozen") == "completed")
    crowd.end()
    after = crowd.look()["frozen"]
    assert after["dense"]
    assert after["types"].count("round_finished") == 1
    assert crowd.left("frozen") == ["freezes", "freezes", "lingers"], "the zombie went on to the next node"


@pytest.mark.fault("A12")
def test_a_blocked_event_loop_keeps_its_lease(crowd: Crowd) -> None:
    """A node gives way to nobody, and the lease of its thread is renewed all the same, again and again."""
    crowd.begin(["blocked", "standing_still", None], lease=1)
    until(lambda: crowd.left("blocked") == ["blocks"])
    seen: set[int] = set()

    def is_renewed() -> bool:
        seen.add(crowd.column("lease_until", "blocked"))
        return len(seen) == 4

    until(is_renewed)
    let_go_on(crowd.marks("blocked"))
    until(lambda: crowd.column("status", "blocked") == "completed")
    crowd.end()


@pytest.mark.fault("A7")
@pytest.mark.parametrize("place", ["sqlite", WORKERS], indirect=True)
def test_a_thread_that_kills_its_process_is_parked_and_the_others_live(crowd: Crowd) -> None:
    deaths = 0
    crowd.begin(["deadly", "deadly", None])
    while crowd.next_death_or(lambda: crowd.column("status", "deadly") == "failed"):
        deaths += 1
        assert deaths < 10, "it kills process after process"
        if deaths == 3:
            crowd.leave("meek", "stubborn")
        crowd.end_leases()
        crowd.begin()
    until(lambda: crowd.column("status", "meek") == "completed")
    crowd.end()
    found = crowd.look()["deadly"]
    assert found["status"] == "failed"
    assert "recoveries" in found["reason"]
    assert deaths == 6, "run once, and recovered five times"


@pytest.mark.fault("A7")
@pytest.mark.parametrize("place", ["sqlite", WORKERS], indirect=True)
def test_who_is_at_work_beside_a_thread_that_kills_its_process_lives(crowd: Crowd) -> None:
    deaths = 0
    crowd.begin(["first", "lingering", None], ["second", "lingering", None], ["deadly", "deadly", None])
    while crowd.next_death_or(lambda: crowd.column("status", "deadly") == "failed"):
        deaths += 1
        assert deaths < 10, "it kills process after process"
        if deaths == 4:
            # From now on one of them runs at a time, and each that is no killer comes to its end.
            for name in ("first", "second"):
                let_go_on(crowd.marks(name))
        crowd.end_leases()
        crowd.begin()
    for name in ("first", "second"):
        until(lambda name=name: crowd.column("status", name) != "running")  # type: ignore[misc]
    crowd.end()
    found = crowd.look()
    assert (found["first"]["status"], found["second"]["status"]) == ("completed", "completed")
    assert deaths == 6, "run once, and recovered five times"
