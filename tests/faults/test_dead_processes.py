"""A killed server's runs are recovered long before its leases run out."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.conftest import Api, api_serving
from tests.faults.report import Trials
from tests.processes import filled, until

pytestmark = pytest.mark.timeout(120)

# Nothing here waits for so long.
LEASE = {"CLEW_RUNNER_LEASE_SECONDS": "600"}
RUNS = 6


def killed_in_the_middle(api: Api, marks: Callable[[int], Path]) -> list[str]:
    """Kill the server once each of its runs has begun."""
    runs = [api.start("walking", log=[], marks=str(marks(number))) for number in range(RUNS)]
    for number in range(RUNS):
        until(filled(marks(number)))
    api.server.signal(signal.SIGKILL)
    api.server.wait()
    return runs


@pytest.mark.fault("A1")
def test_another_server_recovers_the_runs_of_a_killed_one(postgres_url: str, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with ExitStack() as stack:
        one, other = (
            Api(stack.enter_context(api_serving(tmp_path / name, CLEW_DATABASE_URL=postgres_url, **LEASE)))
            for name in ("one", "other")
        )
        runs = killed_in_the_middle(one, lambda number: tmp_path / f"marks-{number}")
        assert [other.rest(run)["status"] for run in runs] == ["completed"] * RUNS
        for run in runs:
            assert len(other.state(run)["log"]) == 40
    assert "a process died" in other.server.log
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        locks = (
            "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        # Postgres notices a moment later that the other one is gone, too.
        until(lambda: connection.execute(locks).fetchone() is None)


@pytest.mark.fault("A1")
def test_a_restarted_server_recovers_its_own_runs_on_sqlite(tmp_path: Path) -> None:
    with api_serving(tmp_path, **LEASE) as server:
        runs = killed_in_the_middle(Api(server), lambda number: tmp_path / f"marks-{number}")
    with api_serving(tmp_path, **LEASE) as server:
        api = Api(server)
        assert [api.rest(run)["status"] for run in runs] == ["completed"] * RUNS


@pytest.mark.fault("A1")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_restarted_server_goes_on_within_two_seconds_of_being_up_on_sqlite(
    tmp_path: Path, trials: Trials
) -> None:
    took: list[float] = []
    for trial in trials.run(30):
        marks = [tmp_path / f"marks-{trial}-{number}" for number in range(RUNS)]
        with api_serving(tmp_path, **LEASE) as server:
            killed_in_the_middle(Api(server), marks.__getitem__)
        with api_serving(tmp_path, **LEASE):
            up, left = time.monotonic(), {mark: mark.stat().st_size for mark in marks}
            for mark, size in left.items():
                until(lambda mark=mark, size=size: mark.stat().st_size > size)  # type: ignore[misc]
                took.append(time.monotonic() - up)
    took.sort()
    p95 = took[int(len(took) * 0.95)]
    print(f"went on: n {len(took)}, p50 {took[len(took) // 2]:.2f} s, p95 {p95:.2f} s, max {took[-1]:.2f} s")  # noqa: T201 - the figures of this test
    assert p95 <= 2.0
