"""`clew serve --processes N`: processes that share one listening socket and one database, supervised and restarted."""

import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from clew.cli.opening import read_settings
from clew.cli.server import CLOSING_SECONDS
from clew.cli.serving import at, bind
from clew.config import Settings
from clew.domain.errors import ConfigError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
SHORTEST_WAIT = 0.5
LONGEST_WAIT = 30.0
# A process that lived for so long is restarted without a longer wait.
SOUND_SECONDS = 30.0


@dataclass(slots=True)
class ServerProcess:
    """One of the processes, and when it is started again."""

    number: int
    child: "subprocess.Popen[bytes] | None" = None
    began: float = 0.0
    wait: float = SHORTEST_WAIT
    again_at: float = 0.0


@dataclass(slots=True)
class Supervisor:
    command: Sequence[str]
    listener: socket.socket
    number: int
    grace: float
    stopping: threading.Event = field(default_factory=threading.Event)
    processes: list[ServerProcess] = field(default_factory=list)

    def run(self) -> int:
        """Until a signal; the exit code. A first process that cannot start is the end, too."""
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, self._stop)
        first = ServerProcess(1)
        self.processes.append(first)
        self._start(first)
        # Alone at first: it migrates the database, and finds what is wrong with the settings.
        while first.child is not None and not self.stopping.is_set() and not self._is_listening():
            if (code := first.child.poll()) is not None:
                return code
            self.stopping.wait(LOOK_SECONDS)
        for number in range(2, self.number + 1):
            self.processes.append(ServerProcess(number))
        while not self.stopping.is_set():
            for process in self.processes:
                self._look_after(process)
            self.stopping.wait(LOOK_SECONDS)
        return self._end()

    def _look_after(self, process: ServerProcess) -> None:
        now = time.monotonic()
        if process.child is None:
            if now >= process.again_at and not self.stopping.is_set():
                self._start(process)
            return
        code = process.child.poll()
        if code is None:
            return
        process.child = None
        process.wait = SHORTEST_WAIT if now - process.began > SOUND_SECONDS else process.wait
        process.again_at = now + process.wait
        logger.error(
            "process %d ended with code %d; it is started again in %g s", process.number, code, process.wait
        )
        process.wait = min(2 * process.wait, LONGEST_WAIT)

    def _start(self, process: ServerProcess) -> None:
        process.began = time.monotonic()
        command = [*self.command, "--socket-fd", str(self.listener.fileno())]
        if process.number > 1 or process.again_at:
            command.append("--quiet")
        # In a session of its own: Ctrl-C in a terminal reaches this process only, which passes it on once.
        # Its standard input ends with this process.
        process.child = subprocess.Popen(  # noqa: S603 - our own command
            command, start_new_session=True, stdin=subprocess.PIPE, pass_fds=[self.listener.fileno()]
        )

    def _is_listening(self) -> bool:
        host, port, *_ = self.listener.getsockname()
        try:
            socket.create_connection((_reachable(host), port), timeout=1).close()
        except OSError:
            return False
        return True

    def _end(self) -> int:
        """Each process hands its runs over. One that takes longer than it may is killed."""
        children = [process.child for process in self.processes if process.child is not None]
        for child in children:
            child.terminate()
        deadline = time.monotonic() + self.grace + 2 * CLOSING_SECONDS
        codes = [0]
        for child in children:
            try:
                codes.append(child.wait(max(0.0, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                child.kill()
                codes.append(1)
        return max(map(abs, codes))

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler
        if self.stopping.is_set():
            for process in self.processes:
                if process.child is not None:
                    process.child.kill()
        self.stopping.set()


def serve_in_processes(
    number: int,
    *,
    host: str | None,
    port: int | None,
    config: Path | None,
    log_format: str | None,
    has_runner: bool,
) -> int:
    """The exit code. Raises ConfigError."""
    settings = read_settings(config, {"server.host": host, "server.port": port, "logs.format": log_format})
    if settings.database.url.kind == "memory":
        raise ConfigError("--processes: the database is memory://, which only one process sees")
    with bind(settings.server.host, settings.server.port) as listener:
        command = _command(at(settings, listener), config, log_format, has_runner=has_runner)
        return Supervisor(command, listener, number, settings.server.shutdown_seconds).run()


def _command(
    settings: Settings, config: Path | None, log_format: str | None, *, has_runner: bool
) -> list[str]:
    command = [sys.executable, "-m", "clew.cli", "serve", "--host", settings.server.host]
    command += ["--port", str(settings.server.port)]
    if log_format is not None:
        command += ["--log-format", log_format]
    if config is not None:
        command += ["--config", str(config)]
    if not has_runner:
        command.append("--no-runner")
    return command


def _reachable(host: str) -> str:
    """An address that listens on all is reached on loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognised, not bound
