"""A run that wants more memory than its process may have fails alone: the process lives, and other runs end."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.databases import locate
from tests.faults.forkserver import Child, ForkServer
from tests.faults.hungry import GRAPHS, MEGABYTE
from tests.faults.report import Trials
from tests.faults.stage import Gone, Server, Stage
from tests.processes import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

PLACES = ("sqlite", "postgres", "postgres, workers")
# Beside what it has when it is at rest.
ROOM = 512 * MEGABYTE


@pytest.fixture(params=PLACES)
def stage(request: pytest.FixtureRequest, forks: ForkServer, tmp_path: Path) -> Stage:
    kind = "workers" if "workers" in request.param else "local"
    where = locate("sqlite" if request.param == "sqlite" else "postgres", request)
    return Stage(forks, where, tmp_path / "stage", {"CLEW_RUNNER_KIND": kind}, GRAPHS)


def run(server: Server, graph: str) -> str:
    """How it ended."""
    thread = begin(server, graph)
    until(lambda: has_ended(server, thread))
    return str(asked(server, "GET", f"/api/threads/{thread}").json()["status"])


def begin(server: Server, graph: str) -> str:
    body = {"graph": graph, "input": {"log": []}}
    answer = asked(server, "POST", "/api/workflows/start", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def asked(server: Server, method: str, path: str, **more: Any) -> httpx.Response:
    """At the moment when nothing is left, a connection may find no memory either."""
    for _ in range(50):
        with suppress(Gone):
            return server.ask(method, path, **more)
    raise AssertionError("it takes no connection any more")


@contextmanager
def limited(child: Child) -> Iterator[None]:
    """It may take so much more address space than it has."""
    process = psutil.Process(child.pid)
    process.rlimit(resource.RLIMIT_AS, (process.memory_info().vms + ROOM, resource.RLIM_INFINITY))
    yield
    if child.is_alive:
        process.rlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.fault("A10")
def test_a_node_without_memory_fails_alone(stage: Stage, trials: Trials) -> None:
    with stage.serving() as server:
        assert run(server, "modest") == "completed"
        for _ in trials.run(25, seconds=120):
            with limited(server.child):
                assert run(server, "greedy") == "failed"
                assert asked(server, "GET", "/health").status_code == 200
                assert run(server, "modest") == "completed"
            assert server.child.is_alive
        assert set(server.answers) <= {200, 503}, server.answers


@pytest.mark.fault("A10")
def test_a_state_for_which_there_is_no_memory_fails_its_thread_alone(stage: Stage, trials: Trials) -> None:
    """The library that packs it may end the process, as the system would. Then the thread is parked as any that does so."""
    for _ in trials.run(3, seconds=60):
        thread = ""
        for _death in range(8):
            with stage.serving() as server, suppress(Gone, AssertionError), limited(server.child):
                thread = thread or begin(server, "huge")
                until(lambda: has_ended(server, thread) or not server.child.is_alive)  # noqa: B023 - called now
                if server.child.is_alive:
                    break
        with stage.serving() as server:
            assert server.get(f"/api/threads/{thread}")["status"] == "failed"
            assert run(server, "modest") == "completed"


def has_ended(server: Server, thread: str) -> bool:
    return asked(server, "GET", f"/api/threads/{thread}").json()["status"] in ("completed", "failed")
