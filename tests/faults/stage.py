"""A stage for faults: one database, the servers that live and die on it, and a client that remembers what it was told."""

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from clew.cli.serving import serve
from clew.cli.worker import work
from clew.failpoints import install
from tests.faults.effects import GRAPHS
from tests.faults.forkserver import Child, ForkServer
from tests.faults.sink import Sink
from tests.processes import environment, until

SECONDS = 30.0
CLEANUP_KEY = "the-key-of-the-cleanup"
ENDED = ("completed", "failed", "stopped")
ARM, ARMED = signal.SIGUSR1, "armed"

Heard: TypeAlias = tuple[int, str, dict[str, Any]]  # an event's place in its log, its type, and what it says


class Gone(Exception):
    """The server does not answer any more."""


def be_server(
    report: Callable[[Any], None],
    *,
    folder: str,
    output: str,
    environ: dict[str, str],
    failpoints: str,
    runs: bool,
) -> None:
    """`clew serve`, in this process, as if it had been started from that folder; told to, it arms its failpoints."""

    def arm(*_: Any) -> None:
        install(failpoints)
        report(ARMED)

    signal.signal(ARM, arm)
    _settle_in(folder, output, environ)
    serve(host=None, port=0, config=None, has_runner=runs)


def be_worker(report: Callable[[Any], None], *, folder: str, output: str, environ: dict[str, str]) -> None:
    """`clew worker`, in this process."""
    _settle_in(folder, output, environ)
    work(graphs=None, concurrency=None, config=None, log_format=None)


def _settle_in(folder: str, output: str, environ: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()  # noqa: TID251 - a process of its own
    os.environ.update(environ)  # noqa: TID251 - the same
    with Path(output).open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)


@dataclass(slots=True)
class Server:
    """A server process that runs beside the test."""

    child: Child
    output: Path
    address: str
    http: httpx.Client
    answers: Counter[int] = field(default_factory=Counter)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """What it answers; raises Gone when it does not. A failure is asked about again, as clients do."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                answer = self.http.request(method, self.address + path, **more)
            except httpx.TransportError as exc:
                raise Gone(path) from exc
            self.answers[answer.status_code] += 1
            if answer.status_code < 500 or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)

    def stream(self, thread_id: str, after: int) -> Iterator[Heard]:
        """The events of a thread after that one, as server-sent events, for as long as they come."""
        path = f"{self.address}/api/workflows/{thread_id}/events"
        with (
            suppress(httpx.TransportError),
            self.http.stream("GET", path, headers={"Last-Event-ID": str(after)}) as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    if "sequence" not in event:
                        return  # it says why it cannot go on
                    yield event["sequence"], event["eventType"], event["data"]

    def socket(self, thread_id: str, after: int) -> Iterator[Heard]:
        """The same, through a WebSocket."""
        path = f"{self.address.replace('http', 'ws')}/ws/events?since={thread_id}:{after}&workflow_id={thread_id}"
        with suppress(ConnectionClosed, OSError, InvalidStatus), connect(path, proxy=None) as connection:
            while True:
                message = json.loads(connection.recv(timeout=SECONDS))
                if message["type"] == "event":
                    event = message["payload"]
                    yield event["sequence"], event["event_type"], event["data"]

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()

    def kill(self) -> None:
        self.child.signal(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Staged:
    """What became of a fault that was to be staged, as the server itself tells it."""

    failpoint: str
    fired: bool
    died: bool

    def check(self, action: str) -> None:
        """It happened, and the server died of it if it was to die and of nothing else."""
        assert self.fired, f"{self.failpoint} was never reached"
        assert self.died is (action == "kill"), self.failpoint


@dataclass(frozen=True, slots=True)
class Stage:
    """A database, and a folder to start servers on it from."""

    forks: ForkServer
    where: str
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    graphs: str = GRAPHS

    @contextmanager
    def serving(
        self,
        failpoint: str = "",
        output: Path | None = None,
        *,
        from_start: bool = False,
        runs: bool = True,
    ) -> Generator[Server]:
        """A server that answers, until somebody or the failpoint ends it.

        The failpoint counts once the server answers: what it passes until then depends on how long that takes.
        """
        output = output or self._new_output()
        environ = self._environ(CLEW_FAILPOINTS=failpoint if from_start else "")
        reports = output.with_suffix(".reports")
        child = self.forks.spawn(
            "tests.faults.stage:be_server",
            reports=reports,
            folder=str(self.folder),
            output=str(output),
            environ=environ,
            failpoints=failpoint,
            runs=runs,
        )
        try:
            until(lambda: "API keys" in _text(output) or not child.is_alive)
            found = re.search(r"address +(\S+)", _text(output))
            if not found:
                raise Gone(f"it did not start: {child.reports} {_text(output)}")
            if failpoint and not from_start:
                child.signal(ARM)
                until(lambda: ARMED in child.reports)
            with httpx.Client(verify=False, timeout=SECONDS) as http:
                yield Server(child, output, found[1], http)
        finally:
            child.signal(signal.SIGKILL)
            child.wait()

    @contextmanager
    def working(self) -> Generator[Child]:
        """A worker beside them."""
        output = self._new_output()
        child = self.forks.spawn(
            "tests.faults.stage:be_worker",
            reports=output.with_suffix(".reports"),
            folder=str(self.folder),
            output=str(output),
            environ=self._environ(),
        )
        try:
            until(lambda: "slots" in _text(output) or not child.is_alive)
            assert child.is_alive, _text(output)
            yield child
        finally:
            child.signal(signal.SIGKILL)
            child.wait()

    def _environ(self, **more: str) -> dict[str, str]:
        config = self.folder / "clew.yaml"
        if not config.exists():  # others that start may read it at this moment
            config.write_text(self.graphs)
        settings = {
            "CLEW_DATABASE_URL": self.where
            if self.where.startswith("postgres")
            else f"sqlite:///{self.where}",
            "CLEW_RUNNER_LEASE_SECONDS": "0.5",
            "CLEW_RUNNER_POLL_SECONDS": "0.05",
            "CLEW_CLEANUP_API_KEY": CLEANUP_KEY,
        }
        return environment(self.folder, **{**settings, **self.environ, **more})

    def twice(self, failpoint: str, act: Callable[[Server], object], *, from_start: bool = False) -> Staged:
        """Act where the failpoint is armed, `name:action@n`; if the server dies of it, act again where it is not."""
        output = self._new_output()
        died = False
        try:
            with self.serving(failpoint, output, from_start=from_start) as server:
                act(server)
        except Gone:
            died = True
            with self.serving() as server:
                act(server)
        return Staged(failpoint, fired=f"failpoint {failpoint} fires" in _text(output), died=died)

    def _new_output(self) -> Path:
        self.folder.mkdir(exist_ok=True)
        return self.folder / f"output-{len(list(self.folder.iterdir()))}"


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


@dataclass(slots=True)
class Client:
    """Wants one conversation to come to its end, whatever becomes of the server, and keeps every word it is told."""

    name: str
    sink: Sink
    graph: str
    prompts: tuple[str, ...]
    says_yes: bool = True
    thread_id: str = ""
    events: dict[int, Any] = field(default_factory=dict)
    heard: dict[int, str] = field(default_factory=dict)
    answered: list[str] = field(default_factory=list)
    thread: Any = None
    resumed: int = 0

    def listen(self, server: Server) -> None:
        """Begin, and hear of everything as it happens, until it rests. Raises Gone when it hears no more."""
        self.say(server)
        # What it waits for was perhaps heard before, and the answer lost with the server that was to take it.
        self.thread = server.get(f"/api/threads/{self.thread_id}")
        if self.thread["status"] in ENDED or self._is_in_doubt:
            return
        for call_id in self.thread["pending"]:
            self._answer(server, call_id)
        for seq, type_, data in server.stream(self.thread_id, max(self.heard, default=0)):
            self.heard[seq] = data["record_id"]
            if type_ in ("workflow_completed", "workflow_failed"):
                return
            if type_ == "suspension" and data["kind"] == "in_doubt":
                return
            if type_ == "approval_required":
                self._answer(server, data["call_id"])
        raise Gone(self.name)

    def carry_on(self, server: Server) -> None:
        """From wherever it was to its end, or to a question that is not for us; then look at all of it again."""
        for n in range(len(self.prompts)):
            self.say(server, n)
            if not self._come_to_rest(server, rounds=n + 1):
                break
        told, self.events = self.events, {}
        self._read(server)
        assert list(self.events) == list(range(1, len(self.events) + 1)), self.name
        assert told.items() <= self.events.items(), (self.name, "what was told is no longer so")
        heard = {seq: event["id"] for seq, event in self.events.items()}
        assert self.heard.items() <= heard.items(), (self.name, "what was heard is no longer so")
        assert set(self.answered) <= set(self.logged("resolution")), (self.name, "a yes is lost")

    def say(self, server: Server, n: int = 0) -> None:
        """Begin the n-th round. Sent again after a death, it is the same request and counts once."""
        body: dict[str, Any] = {"prompt": f"[{self.sink.place(self.name)}] {self.prompts[n]}"}
        path = f"/api/workflows/start?id={self.thread_id}" if n else "/api/workflows/start"
        body |= {} if n else {"graph": self.graph}
        answer = server.ask("POST", path, json=body, headers={"Idempotency-Key": f"{self.name}-{n}"})
        assert answer.status_code == 200, (answer.status_code, answer.text)
        assert self.thread_id in ("", answer.json()["id"]), (self.name, "begun twice")
        self.thread_id = answer.json()["id"]

    def _come_to_rest(self, server: Server, rounds: int) -> bool:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            self._read(server)
            if self.thread["status"] == "failed":
                answer = server.ask("POST", f"/api/workflows/{self.thread_id}/resume")
                assert answer.status_code in (200, 409), answer.text
                self.resumed += 1
            elif self.thread["status"] in ENDED and self.thread["round"] >= rounds:
                return True
            elif self.thread["status"] == "blocked":
                if self._is_in_doubt:
                    return False
                for call_id in self.thread["pending"] if self.says_yes else ():
                    self._answer(server, call_id)
            time.sleep(0.02)
        raise AssertionError(f"{self.name} is stuck: {self.thread}")

    @property
    def _is_in_doubt(self) -> bool:
        """A call in doubt is for a person to look at, and this one only says yes."""
        return "in_doubt" in [call["kind"] for call in self.thread["pending"].values()]

    def _answer(self, server: Server, call_id: str) -> None:
        path = f"/api/workflows/{self.thread_id}/tool-calls/{call_id}/resolve"
        if server.ask("POST", path, json={"approved": True}).status_code == 200:
            self.answered.append(call_id)

    def _read(self, server: Server) -> None:
        self.thread = server.get(f"/api/threads/{self.thread_id}")
        after = max(self.events, default=0)
        assert self.thread["lastSeq"] >= after, (self.name, "what was told is lost")
        page = server.get(f"/api/threads/{self.thread_id}/events?after={after}&limit=1000")["events"]
        self.events |= {event["seq"]: event for event in page}

    def logged(self, *types: str) -> list[str]:
        """The calls that events of these types are about; empty for those that are about none."""
        return [
            event["content"].get("callId", "") for event in self.events.values() if event["type"] in types
        ]
