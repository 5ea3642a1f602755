"""A process that commits is killed: nothing it acknowledged is lost, and the next one opens what it left."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.databases import locate
from tests.faults.forkserver import ForkServer, fork_server
from tests.faults.remains import until_gone
from tests.faults.report import Trials
from tests.postgres import PostgresServer

POINTS = ("commit_begun", "commit_written", "commit_done")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with fork_server("tests.faults.commits") as server:
        yield server


class Client:
    """Somebody outside, who writes down what was acknowledged and later asks for it."""

    def __init__(self, forks: ForkServer, where: str, told: Path) -> None:
        self._forks = forks
        self.where = where
        self._told = told
        self.acknowledged = 0
        told.touch()

    def listen(
        self,
        seed: str,
        *,
        failpoint: str = "",
        kill_after: float | None = None,
        pages: int | None = None,
    ) -> None:
        """Let a process commit until it is killed, so many seconds after it had opened the database."""
        ended = self._forks.run(
            "tests.faults.commits:append",
            where=self.where,
            seed=seed,
            failpoint=failpoint,
            kill_after_report=kill_after,
            pages=pages,
        )
        assert ended.was_killed, ended.reports[-1:]
        _opened, *acknowledged = ended.reports
        self.remember(acknowledged)

    def remember(self, acknowledged: list[Any]) -> None:
        with self._told.open("a") as told:
            told.writelines(json.dumps(report) + "\n" for report in acknowledged)
        self.acknowledged += len(acknowledged)

    def check(self) -> int:
        """Raises if anything is missing or damaged; returns how many events there are."""
        until_gone(self.where)
        found = self._forks.run("tests.faults.commits:check", where=self.where, told=str(self._told))
        assert found.code == 0, found.reports
        assert found.reports[-1]["missing"] == 0
        events: int = found.reports[-1]["events"]
        return events


@pytest.mark.fault("A1")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "kills", "within"),
    [
        ("sqlite", 30, 0.12),
        ("postgres", 15, 0.3),
        pytest.param("sqlite", 1000, 0.12, marks=pytest.mark.long),
        pytest.param("postgres", 1000, 0.3, marks=pytest.mark.long),
    ],
)
def test_nothing_acknowledged_is_lost_by_kills_at_random_moments(
    forks: ForkServer,
    tmp_path: Path,
    seed: int,
    trials: Trials,
    request: pytest.FixtureRequest,
    kind: str,
    kills: int,
    within: float,
) -> None:
    chance = random.Random(seed)
    url = locate("postgres", request) if kind == "postgres" else ""
    clients: list[Client] = []
    for trial in trials.run(kills, seconds=600):
        if trial % 40 == 0:  # a young database now and then, so that checking stays cheap
            clients.append(
                Client(forks, url or str(tmp_path / f"{trial}.sqlite"), tmp_path / f"{trial}.told")
            )
        clients[-1].listen(f"{seed} {trial}", kill_after=chance.uniform(0, within))
        clients[-1].check()
    acknowledged = sum(client.acknowledged for client in clients)
    assert acknowledged > trials.made / 2 or trials.made < 5, "most were killed before they did anything"
    trials.note(f"{acknowledged} acknowledged commits, none lost")


@pytest.mark.fault("A2")
@pytest.mark.parametrize("point", POINTS)
def test_nothing_acknowledged_is_lost_by_a_kill_at_a_named_place(
    forks: ForkServer, where: str, tmp_path: Path, seed: int, point: str
) -> None:
    client = Client(forks, where, tmp_path / "told")
    for hit in (1, 2, 5, 13, 34):
        client.listen(f"{seed} {hit}", failpoint=f"{point}:kill@{hit}")
        client.check()


@pytest.mark.fault("A1", "B1")
@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_postgres_itself_is_killed(
    forks: ForkServer, own_postgres: PostgresServer, tmp_path: Path, seed: int
) -> None:
    """As at a power cut, but for what the disk had promised: the server and every client die at once."""
    client = Client(forks, own_postgres.url(), tmp_path / "told")
    chance = random.Random(seed)
    for trial in range(2):
        client.listen(f"{seed} {trial}", kill_after=chance.uniform(0, 0.3))
        own_postgres.kill()
        own_postgres.start()
        client.check()
