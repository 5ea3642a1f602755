"""Processes to be killed, cheaply: one process imports the product once and forks a child for every trial."""

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import IO, Any

import psutil

# What the product imports when it is opened, and every child would by itself.
AGENTS = ("analyst", "coder", "researcher", "summarizer", "translator", "writer")
PRODUCT = (
    *("clew.server.app", "clew.server.sdk", "clew.server.engine", "clew.server.library"),
    *(f"clew.apps.chat.agents.{name}" for name in AGENTS),
    "tests.faults.warmth",
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: its exit code, or minus the signal that killed it; and what it reported until then."""

    code: int
    reports: list[Any]

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class ForkServer:
    """Runs `module:function` in a fresh fork. The function takes a `report` callback and keyword arguments."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lock = threading.Lock()  # tests start servers in several threads at once

    def spawn(self, job: str, *, reports: Path, **kwargs: Any) -> "Child":
        """Start a child and go on; what it reports is in the file."""
        answer = self._ask({"job": job, "kwargs": kwargs, "reports": str(reports)})
        return Child(self, answer["pid"], reports)

    def reap(self, pid: int, timeout: float) -> int:
        """The exit code of a child that was spawned, or minus the signal that killed it."""
        answer = self._ask({"reap": pid, "timeout": timeout})
        assert answer["code"] is not None, f"process {pid} did not end within {timeout} s"
        return int(answer["code"])

    def run(
        self,
        job: str,
        *,
        kill_after: float | None = None,
        kill_after_report: float | None = None,
        timeout: float = 60,
        **kwargs: Any,
    ) -> Ended:
        """Wait for the child to end by itself, or kill it with SIGKILL so many seconds after its start or first report."""
        request = {
            "job": job,
            "kwargs": kwargs,
            "kill_after": kill_after,
            "kill_after_report": kill_after_report,
            "timeout": timeout,
        }
        answer = self._ask(request)
        assert not answer["timed_out"], f"{job} did not end within {timeout} s: {answer['reports']}"
        return Ended(answer["code"], answer["reports"])

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, "the fork server died; its stderr says why"
        return json.loads(line)


@dataclass(frozen=True, slots=True)
class Child:
    """A process that runs beside the test."""

    server: ForkServer
    pid: int
    path: Path

    @property
    def reports(self) -> list[Any]:
        with self.path.open() as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def is_alive(self) -> bool:
        return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = 30) -> Ended:
        return Ended(self.server.reap(self.pid, timeout), self.reports)


@contextmanager
def fork_server(*modules: str, **environ: str) -> Generator[ForkServer]:
    """A server that has imported these modules, in this environment; children find them ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.forkserver", *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environ},  # noqa: TID251 - a child's
    )
    try:
        yield ForkServer(process)
    finally:
        process.communicate(timeout=30)  # closes both pipes: at the end of its input the server ends


def serve(lines: IO[str], answers: IO[str]) -> None:
    for line in lines:
        request = json.loads(line)
        if "reap" in request:
            answer = _reap(request["reap"], request["timeout"])
        elif "reports" in request:
            answer = _spawn(**request)
        else:
            answer = _trial(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _spawn(job: str, kwargs: dict[str, Any], reports: str) -> dict[str, Any]:
    writing = os.open(reports, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    pid = os.fork()
    if pid == 0:
        _child(job, kwargs, writing)
    os.close(writing)
    return {"pid": pid}


def _reap(pid: int, timeout: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return {"code": os.waitstatus_to_exitcode(status)}
        time.sleep(0.005)
    # Nothing is left behind, not even a child that was stopped.
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return {"code": None}


def _trial(
    job: str,
    kwargs: dict[str, Any],
    kill_after: float | None,
    kill_after_report: float | None,
    timeout: float,
) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(job, kwargs, writing)
    os.close(writing)
    deadline = time.monotonic() + timeout
    kill_at = inf if kill_after is None else time.monotonic() + kill_after
    timed_out = False
    told = b""
    ended, status = 0, 0
    while True:
        if not ended:
            ended, status = os.waitpid(pid, os.WNOHANG)
        # Read as it is told: a pipe holds little, and whoever has more to say would wait for us.
        if piece := _told(reading, 0 if ended else min(kill_at, deadline) - time.monotonic()):
            told += piece
            if kill_after_report is not None:
                kill_at, kill_after_report = time.monotonic() + kill_after_report, None
        elif ended:
            break
        if not ended and time.monotonic() >= min(kill_at, deadline):
            timed_out = timed_out or time.monotonic() >= deadline
            os.kill(pid, signal.SIGKILL)
            kill_at, deadline = inf, time.monotonic() + timeout
    os.close(reading)
    reports = [json.loads(line) for line in told.decode().splitlines(keepends=True) if line.endswith("\n")]
    return {"code": os.waitstatus_to_exitcode(status), "reports": reports, "timed_out": timed_out}


def _told(pipe: int, seconds: float) -> bytes:
    """What was said next; nothing at its end, and when it is time to see how the child is."""
    ready, _, _ = select.select([pipe], [], [], max(0.0, min(seconds, 0.02)))
    return os.read(pipe, 65536) if ready else b""


def _child(job: str, kwargs: dict[str, Any], writing: int) -> None:
    def report(value: Any) -> None:
        os.write(writing, (json.dumps(value) + "\n").encode())

    module, _, name = job.partition(":")
    try:
        getattr(importlib.import_module(module), name)(report, **kwargs)
    except BaseException as exc:  # noqa: BLE001 - a child that fails must say so and end here
        report({"failed": f"{type(exc).__name__}: {exc}"})
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    # Else the first collection of every child would copy all that is loaded here.
    gc.collect()
    gc.freeze()
    serve(sys.stdin, sys.stdout)
