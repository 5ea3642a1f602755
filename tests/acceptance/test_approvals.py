"""Seed 001, the execution bridge: a real server, asked over HTTP, killed where the seed says so."""

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.acceptance.chatting import model_serving
from tests.acceptance.conftest import Api, api_serving
from tests.processes import SECONDS, filled, until


@dataclass(slots=True)
class Listener:
    """A socket on which nothing happens, and what was heard there by what time."""

    connection: ClientConnection
    opened: float
    heard: list[tuple[float, Any]] = field(default_factory=list)

    def listen(self) -> None:
        for text in self.connection:
            self.heard.append((time.monotonic(), json.loads(text)))

    def of_type(self, name: str) -> list[float]:
        return [at for at, message in self.heard if message["type"] == name]


@pytest.fixture(scope="module", autouse=True)
def idle(api: Api) -> Iterator[Listener]:
    """Opened before all else, so that its half minute is over when the rest of this module is."""
    opened = time.monotonic()
    address = f"ws://127.0.0.1:{api.server.port}/ws/events?workflow_id=nobody"
    with connect(address, open_timeout=SECONDS, proxy=None) as connection:
        listener = Listener(connection, opened)
        thread = Thread(target=listener.listen)
        thread.start()
        yield listener
    thread.join()


@pytest.mark.accept("001-12", "001-14", "001-18")
def test_each_node_is_seen_to_start_and_complete_once(api: Api) -> None:
    thread = api.run("two_steps", log=["in"])
    stages = [
        (e["type"], e["content"]["stage"])
        for e in api.events(thread["id"], "stage_changed", "stage_completed")
    ]
    assert stages == [
        ("stage_changed", "architect"),
        ("stage_completed", "architect"),
        ("stage_changed", "developer"),
        ("stage_completed", "developer"),
    ]
    (first, *_) = api.content(thread["id"], "stage_completed")
    assert first["output"] == {"log": ["plan"]}
    seqs = [event["seq"] for event in api.events(thread["id"])]
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.accept("001-12")
def test_only_nodes_that_are_stages_are_seen(api: Api) -> None:
    thread = api.run("staged", log=[])
    assert thread["pending"]  # the gate stops before a node that is no stage, all the same
    api.ask("POST", f"/api/workflows/{thread['id']}/approve")
    thread = api.rest(thread["id"], "completed")
    assert api.state(thread["id"])["log"] == ["plan", "approved=True", "code"]
    events = api.events(thread["id"], "stage_changed", "stage_completed")
    assert [(event["type"], event["content"]["stage"]) for event in events] == [
        ("stage_changed", "developer"),
        ("stage_completed", "developer"),
    ]


@pytest.mark.accept("001-19", "001-20", "001-23")
def test_what_a_retry_cures_is_retried_from_the_last_checkpoint(api: Api, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    thread = api.run("flaky", log=["in"], marks=str(marks))
    assert thread["status"] == "completed"
    assert marks.read_text().split() == ["architect", "tried", "tried", "tried"]
    assert api.state(thread["id"])["log"] == ["in", "plan", "worked at try 3"]
    waits = [log["message"].rpartition(" in ")[2] for log in api.content(thread["id"], "log")]
    seconds = [float(wait.removesuffix(" s")) for wait in waits]
    assert all(later >= earlier for earlier, later in pairwise(seconds))
    assert 0.5 <= seconds[0] <= 1.0
    assert 1.0 <= seconds[1] <= 2.0
    # Each wait was waited: the next event is that much later.
    log = api.events(thread["id"])
    told = [number for number, event in enumerate(log) if event["type"] == "log"]
    for number, wait in zip(told, seconds, strict=True):
        said, tried = (datetime.fromisoformat(log[n]["at"]) for n in (number, number + 1))
        assert (tried - said).total_seconds() >= wait - 0.1  # what is said is rounded


@pytest.mark.accept("001-19", "001-37")
def test_what_no_retry_cures_fails_at_once_and_once(api: Api, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    thread = api.run("broken", log=[], marks=str(marks))
    assert thread["status"] == "failed"
    assert marks.read_text().split() == ["tried"]
    (finished,) = api.content(thread["id"], "round_finished")
    assert finished["status"] == "failed"
    assert "no such issue" in finished["reason"]
    assert len(api.events(thread["id"], "round_started")) == 1


@pytest.mark.accept("001-22")
def test_after_the_last_retry_it_says_how_often_and_why(api: Api, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    thread = api.rest(api.start("always_overloaded", marks=str(marks)), "failed")
    assert marks.read_text().split() == ["tried"] * 4  # three retries by default
    assert "4 attempts" in thread["failureReason"]
    assert "llm_overload" in thread["failureReason"]


@pytest.mark.accept("001-24")
def test_a_yes_of_an_earlier_round_does_not_open_the_gate(api: Api) -> None:
    thread = api.run("gated", log=[])
    api.ask("POST", f"/api/workflows/{thread['id']}/approve")
    thread = api.rest(thread["id"], "completed")
    body = {"prompt": "again", "input": {"log": ["more"]}}
    api.ask("POST", f"/api/workflows/start?id={thread['id']}", json=body)
    thread = api.rest(thread["id"], "blocked", after=thread["lastSeq"])
    assert api.state(thread["id"])["human_approved"] is None


@pytest.mark.accept("001-26")
def test_a_graph_that_never_ends_is_ended(api: Api) -> None:
    thread = api.rest(api.start("endless", log=[]), "failed")
    assert "GraphRecursionError" in thread["failureReason"]


@pytest.mark.accept("001-32")
def test_types_of_the_graphs_own_come_back_after_a_restart(tmp_path: Path) -> None:
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.run("typed", log=[])
        server.signal(signal.SIGKILL)
    with api_serving(tmp_path) as server:
        api = Api(server)
        api.ask("POST", f"/api/workflows/{thread['id']}/approve")
        thread = api.rest(thread["id"], "completed", "failed", after=thread["lastSeq"])
        assert (thread["status"], api.state(thread["id"])["log"]) == ("completed", ["Plan: 3 steps"])


@pytest.mark.accept("001-36")
def test_a_slow_node_keeps_nobody_waiting(api: Api, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    slow = api.start("slow", marks=str(marks))
    until(filled(marks))
    assert api.run("two_steps", log=[])["status"] == "completed"
    api.ask("POST", f"/api/workflows/{slow}/stop")
    assert api.rest(slow)["status"] == "stopped"


@pytest.mark.accept("001-38")
def test_no_secret_and_no_profile_reaches_the_checkpoints(tmp_path: Path) -> None:
    secret = "sk-canary-4711-4711-4711"
    with (
        model_serving() as model,
        api_serving(
            tmp_path,
            OPENAI_API_KEY=secret,
            CRON_SECRET=secret,
            CLEANUP_API_KEY=secret,
            CLEW_MODELS_OPENAI_BASE_URL=model.url,
        ) as server,
    ):
        api = Api(server)
        assert api.run("agent", "tools: look_up word=clew")["status"] == "completed"
        api.rest(api.ask("POST", "/api/workflows/start", json={"prompt": "hello"})["id"])
        assert model.requests  # by whom the key was shown
        server.signal(signal.SIGTERM)
        server.wait()
    database = b"".join(file.read_bytes() for file in (tmp_path / ".clew").iterdir() if file.is_file())
    assert b"tools: look_up word=clew" in database
    for name in (
        "clew.domain.profile",
        "clew.domain.retry",
        "clew.config",
        "clew.apps.drivers",
        "langchain_openai",
    ):
        assert name.encode() not in database, name
    for kept in (database, server.stdout.read_bytes(), server.stderr.read_bytes()):
        assert secret.encode() not in kept


@pytest.mark.accept("001-15")
def test_a_socket_is_asked_twice_a_minute_whether_it_lives(idle: Listener) -> None:
    until(lambda: bool(idle.of_type("ping")), 60)
    (first, *_) = idle.of_type("ping")
    assert first - idle.opened >= 29.9
    idle.connection.send(json.dumps({"type": "pong"}))
    idle.connection.send(json.dumps({"type": "ping"}))  # it is still listened to
    until(lambda: bool(idle.of_type("pong")))
    assert len(idle.of_type("pong")) == 1, "an answer to ours, and none to what was one itself"
    assert {message["type"] for _, message in idle.heard} == {"error", "ping", "pong"}
