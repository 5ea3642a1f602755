"""Seed 001 from outside: the gate, its answers, cancels, retries and events of a running `clew serve`."""

import asyncio
import json
import re
import signal
import socket as network
import sqlite3
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import httpx
import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from websockets.sync.client import ClientConnection, connect

from tests.acceptance.chatting import UNUSED
from tests.acceptance.conftest import Api, all_graphs_yaml
from tests.chains import chain
from tests.graphs import Notes, architect, human_approval_node, mark
from tests.processes import ROOT, SECONDS, clew, filled, one_line, serving, until

PROFILES = """
profiles:
  picky: {driver: offline, retry: {max_retries: 3, base_delay: 0.1, retryable_errors: [rate_limit]}}
  lenient: {driver: offline, retry: {max_retries: 1, base_delay: 0.1, retryable_errors: [llm_overload]}}
  quick: {driver: offline, retry: {max_retries: 1, base_delay: 0.1}}
  command: {driver: offline, retry: {max_retries: 1, base_delay: 0.1, retryable_errors: [cli_timeout]}}
  once: {driver: offline, retry: {max_retries: 0, base_delay: 0.1}}
  capped: {driver: offline, retry: {max_retries: 2, base_delay: 4.0, max_delay: 1.0}}
"""
GATE = "human_approval_node"


class Errand(Notes, total=False):
    go: str  # a file the developer waits for


def may_go(state: Errand) -> bool:
    return Path(state["go"]).exists()


async def patient_developer(state: Errand) -> Notes:
    """Done when it may go, whoever tries to cancel it meanwhile."""
    mark(state, "developer")
    while not may_go(state):
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            mark(state, "cancelled")
    mark(state, "done")
    return {"log": ["code"]}


def patient() -> Any:
    """A gate, and behind it a developer who takes as long as a test wants."""
    graph = StateGraph(Errand)
    graph.add_node("architect", architect)
    graph.add_node(GATE, human_approval_node)
    graph.add_node("developer", patient_developer)
    graph.add_edge(START, "architect")
    graph.add_edge("architect", GATE)
    graph.add_edge(GATE, "developer")
    graph.add_edge("developer", END)
    return graph.compile(interrupt_before=[GATE])


def unprepared_developer(state: Errand) -> Notes:
    mark(state, "developer")
    Path(state["go"]).read_text()
    return {"log": ["code"]}


def mendable() -> Any:
    """Fails after its first step, until the file is there."""
    return chain(Errand, architect, ("developer", unprepared_developer))


class Review(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    rounds: int
    done: int
    whole: bool


def _said(state: Review, who: str) -> list[AnyMessage]:
    """One more, or if that is wanted the whole list with it."""
    before = state["messages"] if state["whole"] else []
    return [*before, AIMessage(f"{who} {state.get('done', 0)} " + "x" * 500)]


def reviewing() -> Any:
    """Developer and reviewer, who send each other the work for as many rounds as they are given."""
    graph = StateGraph(Review)
    graph.add_node("developer", lambda state: {"messages": _said(state, "developer")})
    graph.add_node(
        "reviewer",
        lambda state: {"messages": _said(state, "reviewer"), "done": state.get("done", 0) + 1},
    )
    graph.add_edge(START, "developer")
    graph.add_edge("developer", "reviewer")
    graph.add_conditional_edges(
        "reviewer", lambda state: "developer" if state["done"] < state["rounds"] else END
    )
    return graph


@dataclass(slots=True)
class Live(Api):
    """The same client, with a socket and the words this seed has."""

    @property
    def folder(self) -> Path:
        return self.server.stdout.parent

    @contextmanager
    def socket(self, query: str = "") -> Iterator["Socket"]:
        address = f"ws://127.0.0.1:{self.server.port}/ws/events{query}"
        with connect(address, max_size=2**24, open_timeout=SECONDS, proxy=None) as connection:
            yield Socket(connection)

    def approve(self, workflow: str, status: int = 200) -> Any:
        return self.ask("POST", f"/workflows/{workflow}/approve", status)

    def refused(self, path: str, status: int, **more: Any) -> str:
        return str(self.ask("POST", path, status, **more)["error"]["code"])

    def gated(self, graph: str = "gated", **state: Any) -> str:
        """A workflow that stands before the gate."""
        thread = self.run(graph, log=[], **state)
        assert thread["status"] == "blocked"
        return str(thread["id"])

    def query(self, sql: str, *values: Any) -> list[Any]:
        """What is in the database, past the server."""
        database = sqlite3.connect(self.folder / ".clew" / "clew.db", timeout=SECONDS)
        try:
            return database.execute(sql, values).fetchall()
        finally:
            database.close()

    def open_sockets(self) -> int:
        metrics = httpx.get(f"{self.server.address}/metrics", timeout=SECONDS, verify=UNUSED).text
        found = re.search(r'^clew_streams\{kind="ws"\} (\S+)', metrics, re.MULTILINE)
        return int(float(found[1])) if found else 0


@dataclass(slots=True)
class Socket:
    connection: ClientConnection

    def say(self, type: str, **more: Any) -> None:
        self.connection.send(json.dumps({"type": type, **more}))

    def next(self) -> Any:
        deadline = time.monotonic() + SECONDS
        while True:
            message = json.loads(self.connection.recv(timeout=deadline - time.monotonic()))
            if message != {"type": "ping"}:
                return message
            self.say("pong")

    def settle(self) -> None:
        """Until the server has taken in what was said, and we what it had to say before."""
        self.say("ping")
        while self.next() != {"type": "pong"}:
            pass

    def until(self, event_type: str, workflow: str) -> list[Any]:
        """Every payload up to that event of that workflow."""
        seen: list[Any] = []
        while not seen or (seen[-1]["event_type"], seen[-1]["workflow_id"]) != (event_type, workflow):
            message = self.next()
            assert message["type"] == "event", message
            seen.append(message["payload"])
        return seen


@contextmanager
def live_serving(folder: Path, **environ: str) -> Iterator[Live]:
    own = "".join(f"  {name}: {__name__}:{name}\n" for name in ("patient", "mendable", "reviewing"))
    (folder / "clew.yaml").write_text(all_graphs_yaml() + own + PROFILES)
    settings: dict[str, Any] = {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CLEW_RUNNER_LEASE_SECONDS": "1",
        "CLEW_RUNNER_POLL_SECONDS": "0.1",
        # Two of them share a file, and one may be halted by the machine while it writes.
        "CLEW_DATABASE_BUSY_SECONDS": str(SECONDS),
        **environ,
    }
    with serving(folder, **settings) as server:
        yield Live(server)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_serving(tmp_path_factory.mktemp("live")) as live:
        yield live


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


def left(marks: Path) -> list[str]:
    return marks.read_text().split() if marks.exists() else []


def of(workflow: str, payloads: list[Any]) -> list[Any]:
    return [payload for payload in payloads if payload["workflow_id"] == workflow]


def types(payloads: list[Any]) -> list[str]:
    return [payload["event_type"] for payload in payloads]


def frozen(server: Live, other: Live) -> bool:
    """Stop a process, but not while it has the database to itself: the other could not go on."""
    server.server.signal(signal.SIGSTOP)
    until(server.server.process.is_stopped)  # every thread of it stands still
    database = sqlite3.connect(other.folder / ".clew" / "clew.db", timeout=0, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")
    except sqlite3.OperationalError:
        server.server.signal(signal.SIGCONT)
        return False
    finally:
        database.close()
    return True


class TestGate:
    @pytest.mark.accept("001-4", "001-5")
    def test_a_run_that_stops_at_the_gate_waits_and_is_not_over(self, live: Live) -> None:
        with live.socket() as socket:
            socket.settle()
            workflow = live.start("gated", log=["in"])
            seen = of(workflow, socket.until("approval_required", workflow))
        assert types(seen) == [
            *("workflow_started", "user_msg", "stage_changed", "stage_completed", "approval_required"),
        ]
        thread = live.rest(workflow)
        assert thread["status"] == "blocked"
        state = live.ask("GET", f"/api/workflows/{workflow}/state")
        assert (state["values"]["log"], state["next"]) == (["in", "plan"], [GATE])
        whole = live.ask("GET", f"/api/workflows/{workflow}")
        assert (whole["status"], list(whole["pending"])) == ("blocked", list(thread["pending"]))
        assert live.events(workflow, "round_finished") == []

    @pytest.mark.accept("001-6", "001-8")
    def test_a_yes_is_answered_at_once_and_goes_on_behind_the_gate(
        self, live: Live, marks: Path, go: Path
    ) -> None:
        workflow = live.gated("patient", marks=str(marks), go=str(go))
        # The developer cannot end before this answer has come: nobody has let him go.
        assert live.approve(workflow) == {"status": "approved", "workflow_id": workflow}
        assert live.thread(workflow)["status"] == "running"
        until(lambda: "developer" in left(marks))
        go.touch()
        live.rest(workflow, "completed")
        state = live.state(workflow)
        assert state["human_approved"] is True
        assert state["log"] == ["plan", "approved=True", "code"]
        assert left(marks) == ["architect", "developer", "done"]

    @pytest.mark.accept("001-7")
    def test_a_no_needs_a_reason_and_ends_it_with_that(self, live: Live, marks: Path) -> None:
        workflow = live.gated(marks=str(marks))
        path = f"/workflows/{workflow}/reject"
        for body in ({}, {"feedback": ""}, {"feedback": " "}):
            assert live.refused(path, 400, json=body) == "INVALID"
        assert live.thread(workflow)["status"] == "blocked"
        answer = live.ask("POST", path, json={"feedback": "too vague"})
        assert answer == {"status": "rejected", "workflow_id": workflow}
        ended = live.rest(workflow, "failed", "completed")
        assert (ended["status"], ended["failureReason"]) == ("failed", "too vague")
        state = live.ask("GET", f"/api/workflows/{workflow}/state")
        assert (state["values"]["human_approved"], state["next"]) == (False, [])
        assert left(marks) == ["architect"]

    @pytest.mark.accept("001-9")
    def test_an_answer_nobody_waits_for_is_refused(self, live: Live, marks: Path) -> None:
        held = {"graph": "gated", "prompt": "go", "hold": True}
        unasked = {
            "completed": live.run("two_steps", log=[])["id"],
            "pending": live.ask("POST", "/api/workflows/start", json=held)["id"],
            "running": live.start("slow", marks=str(marks)),
        }
        until(filled(marks))
        for verb, body in (("approve", None), ("reject", {"feedback": "no"})):
            for status, workflow in unasked.items():
                assert live.refused(f"/workflows/{workflow}/{verb}", 409, json=body) == "INVALID_STATE"
                assert live.thread(workflow)["status"] == status
            assert live.refused(f"/workflows/nothing/{verb}", 404, json=body) == "NOT_FOUND"
        for status in ("pending", "running"):
            live.ask("POST", f"/api/workflows/{unasked[status]}/stop")

    @pytest.mark.accept("001-9")
    def test_of_several_yeses_at_once_one_counts(self, live: Live, marks: Path) -> None:
        workflow = live.gated(marks=str(marks))
        address = f"{live.server.address}/workflows/{workflow}/approve"
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: httpx.post(address, timeout=SECONDS, verify=UNUSED), range(4)))
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
        late = [answer.json()["error"]["code"] for answer in answers if answer.status_code == 409]
        assert late == ["INVALID_STATE"] * 3
        live.rest(workflow, "completed")
        assert left(marks) == ["architect", "developer"]

    @pytest.mark.accept("001-3")
    def test_two_at_once_do_not_see_each_other(self, live: Live) -> None:
        one, two = (live.start("gated", log=[name]) for name in ("one", "two"))
        for workflow in (one, two):
            live.rest(workflow, "blocked")
        live.approve(one)
        live.rest(one, "completed")
        assert live.thread(two)["status"] == "blocked"
        assert live.state(one)["log"] == ["one", "plan", "approved=True", "code"]
        assert live.state(two)["log"] == ["two", "plan"]
        assert live.state(two).get("human_approved") is None
        known = {each["id"] for each in live.ask("GET", "/api/workflows?limit=200")["workflows"]}
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            stored = {thread for (thread,) in live.query(f"SELECT DISTINCT thread_id FROM {table}")}
            assert stored <= known, table
            assert table == "checkpoint_writes" or {one, two} <= stored

    @pytest.mark.accept("001-24")
    def test_a_yes_to_one_plan_is_none_to_the_next(self, live: Live, marks: Path) -> None:
        thread = live.run("replanning", log=[], marks=str(marks))
        workflow = thread["id"]
        live.approve(workflow)
        thread = live.rest(workflow, after=thread["lastSeq"] + 1)
        state = live.ask("GET", f"/api/workflows/{workflow}/state")
        assert (thread["status"], state["next"]) == ("blocked", [GATE])
        assert state["values"]["log"] == ["plan", "approved=True", "code", "plan"]
        assert state["values"]["human_approved"] is None
        live.ask("POST", f"/workflows/{workflow}/reject", json={"feedback": "not this one"})
        assert live.rest(workflow, "failed", "completed")["status"] == "failed"
        assert live.state(workflow)["log"][-1] == "approved=False"
        assert left(marks) == ["architect", "developer", "architect"]


class TestRestart:
    @pytest.mark.accept("001-10", "001-11", "001-16", "001-18")
    def test_what_was_killed_waits_on_or_goes_on(self, tmp_path: Path, go: Path) -> None:
        waiting_marks, running_marks = tmp_path / "waiting", tmp_path / "running"
        with live_serving(tmp_path) as live:
            waiting = live.gated(marks=str(waiting_marks))
            before = live.thread(waiting)
            running = live.gated("patient", marks=str(running_marks), go=str(go))
            live.approve(running)
            until(lambda: "developer" in left(running_marks))
            seen = live.events(running)[-1]["seq"]
            live.server.signal(signal.SIGKILL)
            live.server.wait()
        go.touch()
        with live_serving(tmp_path) as live:
            with live.socket(f"?workflow_id={waiting}") as socket:
                (asked,) = socket.until("approval_required", waiting)
            assert asked["sequence"] == before["lastSeq"]
            after = live.thread(waiting)
            assert (after["status"], after["pending"]) == ("blocked", before["pending"])
            assert live.rest(running, "completed", "failed")["status"] == "completed"
            assert left(running_marks) == ["architect", "developer", "developer", "done"]
            with live.socket(f"?since={running}:{seen}&workflow_id={running}") as socket:
                missed = socket.until("workflow_completed", running)
                assert socket.next() == {"type": "backfill_complete", "count": len(missed)}
            assert [payload["sequence"] for payload in missed] == [
                event["seq"] for event in live.events(running) if event["seq"] > seen
            ]
            live.approve(waiting)
            live.rest(waiting, "completed")
            assert live.state(waiting)["log"] == ["plan", "approved=True", "code"]
            for workflow in (waiting, running):  # paused, approved, and outlived a process
                seqs = [event["seq"] for event in live.events(workflow)]
                assert seqs == list(range(1, live.thread(workflow)["lastSeq"] + 1))
        assert left(waiting_marks) == ["architect", "developer"]

    @pytest.mark.accept("001-11")
    def test_only_what_failed_is_taken_up_again(self, live: Live, marks: Path, go: Path) -> None:
        failed = live.run("mendable", log=[], marks=str(marks), go=str(go))
        assert failed["status"] == "failed"
        path = f"/api/workflows/{failed['id']}/resume"
        go.touch()
        live.ask("POST", path)
        live.rest(failed["id"], "completed", after=failed["lastSeq"])
        assert live.state(failed["id"])["log"] == ["plan", "code"]
        assert left(marks) == ["architect", "developer", "developer"]
        assert live.refused(path, 409) == "INVALID_STATE"
        assert live.refused(f"/api/workflows/{live.gated()}/resume", 409) == "INVALID_STATE"
        assert live.refused("/api/workflows/nothing/resume", 404) == "NOT_FOUND"


class TestEnds:
    @pytest.mark.accept("001-34", "001-35")
    def test_what_a_cancelled_run_does_late_changes_nothing(self, live: Live, marks: Path, go: Path) -> None:
        workflow = live.gated("patient", marks=str(marks), go=str(go))
        live.approve(workflow)
        until(lambda: "developer" in left(marks))
        path = f"/api/workflows/{workflow}"
        assert live.ask("POST", f"{path}/stop")["status"] == "stopped"
        stopped, log = live.thread(workflow), live.events(workflow)
        until(lambda: "cancelled" in left(marks))
        go.touch()
        until(lambda: "done" in left(marks))
        # What the late node leads to has its turn before another run has come to its end.
        assert live.run("two_steps", log=[])["status"] == "completed"
        assert (live.thread(workflow)["status"], live.events(workflow)) == (stopped["status"], log)
        assert live.state(workflow)["log"] == ["plan", "approved=True"]
        for verb in ("approve", "resume", "begin", "stop"):
            assert live.refused(f"{path}/{verb}", 409) == "INVALID_STATE"
        assert live.events(workflow) == log

    @pytest.mark.accept("001-34")
    def test_a_process_that_wakes_up_late_changes_no_end(self, live: Live, tmp_path: Path, go: Path) -> None:
        """It is frozen in the middle of two runs, which another process takes over and ends."""
        url = f"sqlite:///{live.folder}/.clew/clew.db"
        with live_serving(tmp_path, CLEW_DATABASE_URL=url) as zombie:
            pid = zombie.server.process.pid
            ends = {"completed": tmp_path / "well", "failed": tmp_path / "badly"}
            workflows = {
                status: zombie.start(
                    "haunted", log=[], marks=str(marks), go=str(go), ends_badly=status == "failed"
                )
                for status, marks in ends.items()
            }
            for marks in ends.values():
                until(lambda: f"begun-by-{pid}" in left(marks))  # noqa: B023 - called here only
            until(lambda: frozen(zombie, live))
            for marks in ends.values():
                until(lambda: f"begun-by-{live.server.process.pid}" in left(marks))  # noqa: B023
            go.touch()
            for status, workflow in workflows.items():
                assert live.rest(workflow, "completed", "failed")["status"] == status
            logs = {workflow: live.events(workflow) for workflow in workflows.values()}
            zombie.server.signal(signal.SIGCONT)
            for marks in ends.values():
                until(lambda: f"done-by-{pid}" in left(marks))  # noqa: B023
            # What its nodes led to has had its turn before another run has come to its end.
            assert zombie.run("two_steps", log=[])["status"] == "completed"
            for status, workflow in workflows.items():
                assert live.thread(workflow)["status"] == zombie.thread(workflow)["status"] == status
                assert live.events(workflow) == logs[workflow]

    @pytest.mark.accept("001-35")
    def test_a_cancel_from_anywhere_is_told(self, live: Live, marks: Path) -> None:
        pending = live.ask(
            "POST", "/api/workflows/start", json={"graph": "slow", "prompt": "go", "hold": True}
        )
        running = live.start("slow", marks=str(marks))
        until(filled(marks))
        blocked = live.gated()
        with live.socket() as socket:
            socket.settle()
            for workflow, status in ((pending["id"], "pending"), (running, "running"), (blocked, "blocked")):
                assert live.thread(workflow)["status"] == status
                live.ask("POST", f"/api/workflows/{workflow}/stop")
                socket.until("workflow_stopped", workflow)
                assert [end["status"] for end in live.content(workflow, "round_finished")] == ["stopped"]
                assert live.thread(workflow)["status"] == "stopped"
                assert live.thread(workflow)["pending"] == {}
        done = live.run("two_steps", log=[])
        assert live.refused(f"/api/workflows/{done['id']}/stop", 409) == "INVALID_STATE"
        assert live.thread(done["id"])["status"] == "completed"

    @pytest.mark.accept("001-39")
    def test_what_was_only_made_begins_later_alone_or_with_others(self, live: Live) -> None:
        body = {"prompt": "go", "graph": "two_steps", "input": {"log": []}, "hold": True}
        one, two, three = (str(live.ask("POST", "/api/workflows/start", json=body)["id"]) for _ in range(3))
        live.run("two_steps", log=[])  # whoever runs what is due has had its turn
        for workflow in (one, two, three):
            assert live.thread(workflow)["status"] == "pending"
            assert live.events(workflow, "stage_changed") == []
        assert live.ask("POST", f"/api/workflows/{one}/begin")["status"] == "running"
        live.rest(one, "completed")
        assert live.refused(f"/api/workflows/{one}/begin", 409) == "INVALID_STATE"
        answer = live.ask("POST", "/api/workflows/start-batch", json={"ids": [one, two, "nothing"]})
        assert answer["started"] == [two]
        codes = {workflow: error["code"] for workflow, error in answer["errors"].items()}
        assert codes == {one: "INVALID_STATE", "nothing": "NOT_FOUND"}
        live.rest(two, "completed")
        assert live.thread(three)["status"] == "pending"
        assert live.ask("POST", "/api/workflows/start-batch", json={})["started"] == [three]
        live.rest(three, "completed")


@pytest.mark.accept("001-36")
def test_a_call_that_blocks_keeps_nobody_waiting(live: Live, marks: Path) -> None:
    """The node sleeps a minute and gives nobody a turn."""
    workflow = live.start("blocking", marks=str(marks))
    until(filled(marks))
    with live.socket() as socket:
        socket.settle()
        other = live.run("gated", log=[])
        live.approve(other["id"])
        socket.until("workflow_completed", other["id"])
    assert live.thread(workflow)["status"] == "running"
    live.ask("POST", f"/api/workflows/{workflow}/stop")
    assert live.events(workflow, "stage_completed") == []


class TestRetries:
    @pytest.mark.accept("001-19", "001-21", "001-22")
    def test_what_passes_is_tried_again_and_what_stays_is_not(self, live: Live, tmp_path: Path) -> None:
        tries = {
            ("network_timeout", "quick"): ("network_timeout", 2),
            ("429", "quick"): ("rate_limit", 2),
            ("529", "quick"): ("llm_overload", 2),
            ("503", "quick"): ("llm_overload", 2),
            ("cli_timeout", "quick"): ("cli_timeout", 1),  # is not among those tried again by default
            ("cli_timeout", "command"): ("cli_timeout", 2),
            ("429", "once"): ("rate_limit", 1),
            ("not_found", "quick"): ("not_found", 1),
            ("401", "quick"): ("auth", 1),
            ("validation", "quick"): ("validation", 1),
        }
        started = {}
        for error, profile in tries:
            marks = tmp_path / f"{error}-{profile}"
            body = {"graph": "failing", "profile": profile, "input": {"error": error, "marks": str(marks)}}
            started[error, profile] = live.ask("POST", "/api/workflows/start", json=body)["id"], marks
        for case, (workflow, marks) in started.items():
            name, times = tries[case]
            reason = live.rest(workflow, "failed")["failureReason"]
            assert left(marks) == ["tried"] * times, case
            assert reason.startswith(f"{name} after {times} attempt"), case
            assert len(live.events(workflow, "log")) == times - 1

    @pytest.mark.accept("001-20")
    def test_no_wait_is_longer_than_the_longest(self, live: Live, marks: Path) -> None:
        """Without its bound, the waits would be of 2 to 4 and of 4 to 8 seconds."""
        body = {"graph": "failing", "profile": "capped", "input": {"error": "429", "marks": str(marks)}}
        workflow = live.ask("POST", "/api/workflows/start", json=body)["id"]
        assert live.rest(workflow)["status"] == "failed"
        said = [line["message"].rpartition(" in ")[2] for line in live.content(workflow, "log")]
        assert len(said) == 2
        assert all(0.5 <= float(wait.removesuffix(" s")) <= 1.0 for wait in said)
        assert left(marks) == ["tried"] * 3

    @pytest.mark.accept("001-21")
    @pytest.mark.parametrize(("profile", "tries"), [("picky", 1), ("lenient", 2)])
    def test_only_what_the_profile_names_is_tried_again(
        self, live: Live, marks: Path, profile: str, tries: int
    ) -> None:
        body = {"graph": "always_overloaded", "profile": profile, "input": {"marks": str(marks)}}
        workflow = live.ask("POST", "/api/workflows/start", json=body)["id"]
        assert "llm_overload" in live.rest(workflow, "failed")["failureReason"]
        assert left(marks) == ["tried"] * tries

    @pytest.mark.accept("001-21")
    def test_an_error_nobody_knows_is_refused_at_the_start(self, tmp_path: Path) -> None:
        (tmp_path / "clew.yaml").write_text(PROFILES.replace("[rate_limit]", "[bad_mood]"))
        refused = clew(tmp_path, "serve", "--port", "0")
        assert refused.returncode != 0
        assert "profiles.picky.retry.retryable_errors" in one_line(refused)


@pytest.mark.accept("001-25")
@pytest.mark.parametrize("whole", [False, True], ids=["what_is_new", "the_whole_list"])
@pytest.mark.parametrize("rounds", [20, 40])
def test_rounds_of_review_add_what_is_new(live: Live, whole: bool, rounds: int) -> None:
    messages = [{"role": "user", "content": "go"}]
    body = {"graph": "reviewing", "input": {"messages": messages, "rounds": rounds, "whole": whole}}
    workflow = live.ask("POST", "/api/workflows/start", json=body)["id"]
    assert live.rest(workflow)["status"] == "completed"
    said = [message["content"].split(" x")[0] for message in live.state(workflow)["messages"]]
    expected = [f"{who} {n}" for n in range(rounds) for who in ("developer", "reviewer")]
    assert said == ["go", *expected]
    size = live.query(
        "SELECT SUM(LENGTH(body) + LENGTH(metadata) + LENGTH(apart)) FROM checkpoints WHERE thread_id = ?",
        workflow,
    )[0][0]
    for table in ("checkpoint_blobs", "checkpoint_writes"):
        size += live.query(f"SELECT SUM(LENGTH(data)) FROM {table} WHERE thread_id = ?", workflow)[0][0]
    # Two messages a round, of half a thousand bytes each. Lists stored whole would come to over 20,000 a round.
    assert 1000 * rounds < size < 5000 * rounds


class TestSockets:
    @pytest.mark.accept("001-13")
    def test_words_are_told_only_to_those_who_asked_for_them(self, live: Live) -> None:
        with live.socket() as socket:
            socket.settle()
            for verbose in (True, False):
                body = {"graph": "agent", "prompt": "slowly: one two three", "verbose": verbose}
                workflow = live.ask("POST", "/api/workflows/start", json=body)["id"]
                seen = of(workflow, socket.until("workflow_completed", workflow))
                words = [each["data"]["token"] for each in seen if each["event_type"] == "llm_token"]
                assert bool(words) is verbose
                assert not verbose or "".join(words).startswith("you said: slowly: one")
                assert "llm_token" not in [event["type"] for event in live.events(workflow)]

    @pytest.mark.accept("001-12")
    def test_the_start_of_a_stage_is_known_by_either_name(self, live: Live) -> None:
        workflow = live.run("two_steps", log=[])["id"]
        for name in ("stage_started", "stage_changed"):
            url = f"{live.server.address}/api/workflows/{workflow}/events"
            told: list[str] = []
            params = {"types": [name, "workflow_completed"]}
            with httpx.stream("GET", url, params=params, timeout=SECONDS, verify=UNUSED) as answer:
                for line in answer.iter_lines():
                    if line.startswith("event:"):
                        told.append(line.removeprefix("event:").strip())
                    if told and told[-1] == "workflow_completed":
                        break
            assert told == ["stage_changed", "stage_changed", "workflow_completed"]

    @pytest.mark.accept("001-14", "001-37")
    def test_beginnings_and_ends_are_told_once(self, live: Live, marks: Path, tmp_path: Path) -> None:
        with live.socket() as socket:
            socket.settle()

            def told(workflow: str, end: str) -> list[Any]:
                seen = of(workflow, socket.until(end, workflow))
                socket.settle()
                return seen

            often = types(told(live.start("writing", log=[]), "workflow_completed"))
            assert often.count("stage_changed") == often.count("stage_completed") == 20
            assert (often[0], often.count("workflow_started")) == ("workflow_started", 1)

            tried = told(live.start("flaky", log=[], marks=str(marks)), "workflow_completed")
            assert left(marks).count("tried") == 3
            stages = [
                (each["event_type"], each["data"]["stage"]) for each in tried if "stage" in each["data"]
            ]
            assert stages.count(("stage_completed", "failing")) == 1
            assert stages.count(("stage_changed", "architect")) == 1
            ends = [each for each in types(tried) if each.startswith("workflow_")]
            assert ends == ["workflow_started", "workflow_completed"]

            failed = told(live.start("broken", log=[], marks=str(tmp_path / "broken")), "workflow_failed")
            assert [each for each in types(failed) if each.startswith("workflow_")] == [
                *("workflow_started", "workflow_failed"),
            ]
            assert "no such issue" in failed[-1]["data"]["error"]

            gated = live.start("gated", log=[])
            seen = told(gated, "approval_required")
            live.approve(gated)
            seen += told(gated, "workflow_completed")
            assert [each for each in types(seen) if each.startswith("workflow_")] == [
                *("workflow_started", "workflow_completed"),
            ]
            assert [each["sequence"] for each in seen] == list(range(1, len(seen) + 1))

    @pytest.mark.accept("001-15")
    def test_subscriptions_choose_what_is_told(self, live: Live) -> None:
        wanted, other = live.gated(), live.gated()

        def run_another() -> str:
            return str(live.run("two_steps", log=[])["id"])

        with live.socket() as socket:
            socket.settle()
            unasked = run_another()  # nothing subscribed is everything
            socket.until("workflow_completed", unasked)
            socket.say("subscribe", workflow_id=wanted)
            socket.settle()
            live.approve(other)
            live.rest(other, "completed")
            live.approve(wanted)
            seen = socket.until("workflow_completed", wanted)
            assert {payload["workflow_id"] for payload in seen} == {wanted}
            for verb, more in (("unsubscribe", {"workflow_id": wanted}), ("subscribe_all", {})):
                socket.say(verb, **more)
                socket.say("pong")  # is listened to and not answered
                socket.settle()
                another = run_another()
                socket.until("workflow_completed", another)
                socket.say("subscribe", workflow_id=wanted)
            socket.say("subscribe", workflow_id="nothing")
            message = socket.next()
            assert (message["type"], message["error"]["code"]) == ("error", "NOT_FOUND")

    @pytest.mark.accept("001-16")
    def test_whoever_comes_back_is_told_what_it_missed(self, live: Live) -> None:
        workflow = live.gated()
        with live.socket(f"?workflow_id={workflow}") as socket:
            (last,) = socket.until("approval_required", workflow)
        live.approve(workflow)
        thread = live.rest(workflow, "completed")
        with live.socket(f"?since={last['id']}&workflow_id={workflow}") as socket:
            missed = socket.until("workflow_completed", workflow)
            assert socket.next() == {"type": "backfill_complete", "count": len(missed)}
        assert [payload["sequence"] for payload in missed] == [
            *range(last["sequence"] + 1, thread["lastSeq"] + 1)
        ]
        for unknown in ("nothing:4", f"{workflow}:99", "nothing"):
            with live.socket(f"?since={unknown}&workflow_id={workflow}") as socket:
                assert socket.next() == {"type": "backfill_expired"}

    @pytest.mark.accept("001-16")
    def test_what_was_missed_of_several_comes_in_the_order_it_happened(self, live: Live) -> None:
        first = live.gated()
        last = live.events(first)[-1]
        second = live.gated()
        for workflow in (first, second):
            live.approve(workflow)
            live.rest(workflow, "completed")
        with live.socket(f"?since={first}:{last['seq']}") as socket:
            missed = socket.until("workflow_completed", second)
            told = socket.next()
        # What is not much older than the last event seen may be new, so there may be more than these two.
        assert told == {"type": "backfill_complete", "count": len(missed)}
        times = [payload["timestamp"] for payload in missed]
        assert times == sorted(times)
        for workflow, seen in ((first, last["seq"]), (second, 0)):
            sequences = [payload["sequence"] for payload in of(workflow, missed)]
            assert sequences == list(range(seen + 1, live.thread(workflow)["lastSeq"] + 1))

    @pytest.mark.fault("E2")
    @pytest.mark.accept("001-17")
    def test_a_deaf_and_a_dead_socket_delay_nobody(self, live: Live) -> None:
        until(lambda: live.open_sockets() == 0)

        def raw() -> network.socket:
            connection = network.socket()
            connection.setsockopt(network.SOL_SOCKET, network.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", live.server.port))
            connection.sendall(
                b"GET /ws/events HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            return connection

        with raw() as deaf, raw() as dead, live.socket() as hearing:
            until(lambda: live.open_sockets() == 3)
            hearing.settle()
            dead.setsockopt(network.SOL_SOCKET, network.SO_LINGER, struct.pack("ii", 1, 0))
            dead.close()  # without a word: what is sent to it is an error
            # Eight megabytes are more than the buffers between us.
            for number in range(10):
                prompt = f"{number} " + "x" * 800_000
                workflow = live.run("two_steps", prompt, log=[])
                assert workflow["status"] == "completed"
                seen = of(workflow["id"], hearing.until("workflow_completed", workflow["id"]))
                (said,) = [each["data"]["content"] for each in seen if each["event_type"] == "user_msg"]
                assert said == prompt
            until(lambda: live.open_sockets() == 1)  # the server hung up on the deaf one
            deaf.close()
        until(lambda: live.open_sockets() == 0)
