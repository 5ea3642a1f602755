"""A server that is frozen at any moment, in the middle of whatever it does: another one takes over every run it had."""

import random
import signal
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.conftest import Api, api_serving
from tests.faults.report import Trials
from tests.processes import Server, until

RUNS = 12
# A transaction that its client has forgotten is ended after twice the two deadlines together.
SHORT = {
    "CLEW_RUNNER_LEASE_SECONDS": "3",
    "CLEW_DATABASE_ACQUIRE_SECONDS": "1",
    "CLEW_DATABASE_STATEMENT_SECONDS": "1",
}
TIMES = [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]


def freeze(server: Server) -> None:
    server.signal(signal.SIGSTOP)
    until(server.process.is_stopped)


def statuses(url: str) -> Counter[str]:
    with psycopg.connect(url) as connection:
        return Counter(status for (status,) in connection.execute("SELECT status FROM threads"))


@pytest.mark.fault("A11")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("times", TIMES)
def test_every_run_is_taken_over_while_it_is_frozen(
    postgres_url: str, tmp_path: Path, trials: Trials, times: int, seed: int
) -> None:
    chance = random.Random(seed)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with api_serving(tmp_path / "other", CLEW_DATABASE_URL=postgres_url, **SHORT):
        for _ in trials.run(times, seconds=240):
            with api_serving(tmp_path / "one", CLEW_DATABASE_URL=postgres_url, **SHORT) as one:
                for _ in range(RUNS):
                    Api(one).start("walking", log=[], marks=str(tmp_path / "marks"))
                time.sleep(chance.uniform(0, 0.5))  # the moment is the fault
                freeze(one)
                until(lambda: set(statuses(postgres_url)) == {"completed"}, seconds=120)
    assert statuses(postgres_url) == {"completed": RUNS * trials.made}
