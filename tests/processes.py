"""Clew as its users have it: real processes of the command line, in a folder of their own.

They are forked from a process that has imported everything already: that takes longer than all the rest.
"""

import atexit
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.faults.forkserver import PRODUCT, Child, ForkServer, fork_server

ROOT = Path(__file__).parents[1]
SECONDS = 30.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of the machine's own settings, and our source."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT / "src"), **more}  # noqa: TID251 - a child's


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def port_to_keep() -> int:
    """A free port that the kernel gives nobody by chance, so that a server can be started there again."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


def lives(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of one that nobody has asked after."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def filled(path: Path) -> Callable[[], bool]:
    """Whether something is in the file, which is there a moment before: whoever wrote it may be killed now."""
    return lambda: path.exists() and path.stat().st_size > 0


@dataclass(slots=True)
class Process:
    """A process of ours that somebody else forked: what is used of a `Popen`."""

    child: Child
    _code: int | None = field(default=None, init=False)

    @property
    def pid(self) -> int:
        return self.child.pid

    def is_stopped(self) -> bool:
        threads = psutil.Process(self.pid).threads()
        return all(psutil.Process(thread.id).status() == psutil.STATUS_STOPPED for thread in threads)

    def poll(self) -> int | None:
        return self._code if self._code is not None or self.child.is_alive else self.wait()

    def wait(self, seconds: float = SECONDS) -> int:
        if self._code is None:
            self._code = self.child.wait(seconds).code
        return self._code


@cache
def nursery() -> ForkServer:
    """One for all tests of this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    modules = ("clew.cli.serving", *PRODUCT)
    # As a server sets it before it imports LangGraph, which looks at it then.
    return stack.enter_context(fork_server(*modules, LANGGRAPH_STRICT_MSGPACK="true"))


def be_clew(
    _: Any, *, arguments: Sequence[str], folder: str, environ: dict[str, str], stdout: str, stderr: str
) -> None:
    """The command line, in this process, as if it had been started from that folder."""
    from clew.cli import main  # noqa: PLC0415 - the tests themselves have no use for it

    os.chdir(folder)
    os.environ.clear()  # noqa: TID251 - a process of its own
    os.environ.update(environ)  # noqa: TID251 - the same
    sys.path[:0] = environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["clew", *arguments]
    for number, path in ((1, stdout), (2, stderr)):
        with Path(path).open("wb", buffering=0) as file:
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    try:
        main()
    except SystemExit as exc:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exc.code if isinstance(exc.code, int) else 0)


def _spawn(folder: Path, arguments: Sequence[str], stdout: Path, stderr: Path, **environ: str) -> Child:
    return nursery().spawn(
        "tests.processes:be_clew",
        reports=Path(os.devnull),
        arguments=arguments,
        folder=str(folder),
        environ=environment(folder, **environ),
        stdout=str(stdout),
        stderr=str(stderr),
    )


def clew(folder: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    with tempfile.TemporaryDirectory() as name:
        stdout, stderr = Path(name, "stdout"), Path(name, "stderr")
        code = _spawn(folder, arguments, stdout, stderr, **environ).wait(SECONDS).code
        return subprocess.CompletedProcess(arguments, code, stdout.read_text(), stderr.read_text())


@dataclass(slots=True)
class Server:
    """A running `clew serve`."""

    process: Process
    stdout: Path
    stderr: Path
    address: str

    def get(self, path: str, **headers: str) -> httpx.Response:
        # Reading the certificates of the world, of which none is needed here, takes longer than most answers.
        return httpx.get(self.address + path, headers=headers, timeout=SECONDS, verify=False)

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return httpx.post(self.address + path, json=body, headers=headers, timeout=SECONDS, verify=False)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self.stderr.read_text("utf-8")

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = SECONDS) -> tuple[int, float]:
        """Its exit code, and how long that took."""
        started = time.monotonic()
        return self.process.wait(seconds), time.monotonic() - started


@contextmanager
def serving(folder: Path, *arguments: str, port: int = 0, **environ: str) -> Iterator[Server]:
    """Started and answering; killed at the end if it still runs."""
    stdout, stderr = folder / "stdout", folder / "stderr"
    stdout.write_bytes(b"")
    stderr.write_bytes(b"")
    process = Process(_spawn(folder, ["serve", "--port", str(port), *arguments], stdout, stderr, **environ))
    try:
        until(lambda: "API keys" in stdout.read_text("utf-8") or process.poll() is not None)
        found = re.search(r"address +(\S+)", stdout.read_text("utf-8"))
        assert found, stderr.read_text("utf-8")
        yield Server(process, stdout, stderr, found[1])
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def working(folder: Path, *arguments: str, **environ: str) -> Iterator[Server]:
    """A running `clew worker`, which has no address; killed at the end if it still runs."""
    stdout, stderr = folder / "stdout", folder / "stderr"
    stdout.write_bytes(b"")
    stderr.write_bytes(b"")
    process = Process(_spawn(folder, ["worker", *arguments], stdout, stderr, **environ))
    try:
        until(lambda: "slots" in stdout.read_text("utf-8") or process.poll() is not None)
        assert process.poll() is None, stderr.read_text("utf-8")
        yield Server(process, stdout, stderr, "")
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


def begin_upload(server: Server) -> socket.socket:
    """A request whose body never comes, once the server has taken it up."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    connection.sendall(
        b"GET /api/threads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    )
    assert connection.recv(1024).startswith(b"HTTP/1.1 100")
    return connection


def one_line(result: subprocess.CompletedProcess[str], secrets: Mapping[str, str] | None = None) -> str:
    """The error of a command that refused: a line and nothing else."""
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for secret in (secrets or {}).values():
        assert secret not in result.stderr
    (line,) = result.stderr.splitlines()
    return line
