"""Clew as its users have it: real processes of the command line, in a folder of their own."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
SECONDS = 30.0

COMMAND = (sys.executable, "-m", "clew.cli")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of the machine's own settings, and our source."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT / "src"), **more}  # noqa: TID251 - a child's


def clew(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(folder, **environ),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def filled(path: Path) -> Callable[[], bool]:
    """Whether something is in the file, which is there a moment before: whoever wrote it may be killed now."""
    return lambda: path.exists() and path.stat().st_size > 0


@dataclass(slots=True)
class Server:
    """A running `clew serve`."""

    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path
    address: str

    def get(self, path: str, **headers: str) -> httpx.Response:
        # Reading the certificates of the world, of which none is needed here, takes longer than most answers.
        return httpx.get(self.address + path, headers=headers, timeout=SECONDS, verify=False)

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
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port", str(port), *arguments],
            cwd=folder,
            env=environment(folder, **environ),
            stdout=out,
            stderr=err,
        )
    try:
        until(lambda: "API keys" in stdout.read_text("utf-8") or process.poll() is not None)
        found = re.search(r"address +(\S+)", stdout.read_text("utf-8"))
        assert found, stderr.read_text("utf-8")
        yield Server(process, stdout, stderr, found[1])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
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
