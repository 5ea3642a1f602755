"""SIGTERM with runs under way: they are handed over to another process, and nobody waits for a lease."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.acceptance.conftest import Api, api_serving
from tests.databases import SHARED, locate
from tests.processes import Server, begin_upload, filled, until

# A lease does not run out within the time of a test, and nobody looks for work by himself.
PATIENT = {
    "CLEW_RUNNER_LEASE_SECONDS": "600",
    "CLEW_RUNNER_POLL_SECONDS": "60",
    "CLEW_RUNNER_CONCURRENCY": "64",
}
RUNS = 25


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest) -> str:
    where = locate(request.param, request)
    return where if request.param == "postgres" else f"sqlite:///{where}"


@contextmanager
def two(folder: Path, url: str, **first: str) -> Iterator[tuple[Server, Server]]:
    """The first one has begun before the second is there, so all that is started is the first one's."""
    for name in ("one", "other"):
        (folder / name).mkdir()
    with (
        api_serving(folder / "one", CLEW_DATABASE_URL=url, **PATIENT | first) as one,
        api_serving(folder / "other", CLEW_DATABASE_URL=url, **PATIENT) as other,
    ):
        yield one, other


def rows(url: str, sql: str) -> list[tuple[object, ...]]:
    if url.startswith("postgres"):
        with psycopg.connect(url) as server:
            return server.execute(sql.encode()).fetchall()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        return file.execute(sql).fetchall()


@pytest.mark.fault("A8")
def test_runs_are_handed_over_at_their_next_step(tmp_path: Path, url: str) -> None:
    with two(tmp_path, url, CLEW_SHUTDOWN_SECONDS="60") as (one, other):
        marks, go = [tmp_path / f"marks-{n}" for n in range(RUNS)], tmp_path / "go"
        walks = [Api(one).start("strolling", log=[], marks=str(each), go=str(go)) for each in marks]
        until(lambda: all(filled(each)() for each in marks))
        one.signal(signal.SIGTERM)
        assert one.wait()[0] == 0
        assert one.log.count("run handed over") == RUNS
        go.touch()
        for walk, each in zip(walks, marks, strict=True):
            assert Api(other).rest(walk)["status"] == "completed"
            # The step in which it was handed over is not taken twice: it ended at a checkpoint.
            steps = each.read_text().splitlines()
            assert steps == [f"step {n}" for n in range(len(steps))]


@pytest.mark.fault("A8")
def test_what_does_not_end_in_time_is_left_to_others_and_no_crash_is_counted(
    tmp_path: Path, url: str
) -> None:
    with two(tmp_path, url, CLEW_SHUTDOWN_SECONDS="1") as (one, other):
        marks = tmp_path / "marks"
        for graph in ("slow", "slow", "blocking"):
            Api(one).start(graph, marks=str(marks))
        until(lambda: marks.exists() and len(marks.read_text().split()) == 3)
        one.signal(signal.SIGTERM)
        until(lambda: len(marks.read_text().split()) == 6)
        assert one.wait()[0] == 0
        assert "Traceback" not in one.log
        assert rows(url, "SELECT status, recoveries FROM threads") == [("running", 0)] * 3
        other.signal(signal.SIGKILL)


def test_the_handing_over_waits_for_no_client(tmp_path: Path, url: str) -> None:
    with two(tmp_path, url, CLEW_SHUTDOWN_SECONDS="60") as (one, other):
        marks, go = tmp_path / "marks", tmp_path / "go"
        walk = Api(one).start("strolling", log=[], marks=str(marks), go=str(go))
        until(filled(marks))
        hanging = begin_upload(one)
        one.signal(signal.SIGTERM)
        until(lambda: "run handed over" in one.log)
        go.touch()
        assert Api(other).rest(walk)["status"] == "completed"
        assert one.process.poll() is None
        hanging.close()
        assert one.wait()[0] == 0


def test_an_open_stream_is_ended_with_a_word(tmp_path: Path) -> None:
    with api_serving(tmp_path) as server:
        slow = Api(server).start("slow", marks=str(tmp_path / "marks"))
        path = f"{server.address}/api/workflows/{slow}/events"
        with httpx.stream("GET", path, timeout=30) as stream:
            lines = stream.iter_lines()
            assert any("stage_changed" in line for line in lines)
            server.signal(signal.SIGTERM)
            assert ": reconnect with the last id" in list(
                lines
            )  # and the answer is whole: no error is raised
        server.signal(signal.SIGTERM)
