"""The command line in a real terminal: a pseudo-terminal of 80 columns, and what a person sees and types there."""

import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import Process, environment, nursery, until

COLUMNS = 80
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def be_clew_in_terminal(
    _: Any, *, arguments: Sequence[str], folder: str, environ: dict[str, str], tty: str
) -> None:
    """The command line, in this process, with the terminal as its own."""
    from clew.cli import main  # noqa: PLC0415 - the tests themselves have no use for it

    os.setsid()
    os.chdir(folder)
    os.environ.clear()  # noqa: TID251 - a process of its own
    os.environ.update(environ)  # noqa: TID251 - the same
    sys.path[:0] = environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["clew", *arguments]
    terminal = os.open(tty, os.O_RDWR)  # the first terminal that a session opens controls it: Ctrl-C works
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number in (0, 1, 2):
        os.dup2(terminal, number)
    sys.stdin = os.fdopen(0, "r")
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    except SystemExit as exc:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exc.code if isinstance(exc.code, int) else 0)


class Terminal:
    """A command that runs in it."""

    def __init__(self, process: Process, master: int, slave: int) -> None:
        self.process = process
        self._slave: int | None = slave
        self._master = master
        self._pieces: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65_536)
            except OSError:  # the other side is closed
                return
            if not piece:
                return
            self._pieces.append(piece)

    @property
    def text(self) -> str:
        """Everything shown, without colours."""
        return _CONTROL.sub("", b"".join(self._pieces).decode("utf-8", "replace")).replace("\r\n", "\n")

    def sees(self, text: str) -> None:
        try:
            until(lambda: text in self.text or self.process.poll() is not None)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in:\n{self.text}") from None
        until(lambda: text in self.text, 2)

    def types(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def presses(self, key: bytes) -> None:
        os.write(self._master, key)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Read what is left: the reader ends when no process has the terminal open."""
        if self._slave is not None:
            os.close(self._slave)
            self._slave = None
        self._reader.join(5)

    def ends(self) -> int:
        """Its exit code."""
        try:
            code = self.process.wait()
        except BaseException:
            sys.stderr.write(self.text)
            raise
        self.close()
        return code


@contextmanager
def terminal(folder: Path, *arguments: str, **environ: str) -> Iterator[Terminal]:
    """Killed at the end if it still runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    child = nursery().spawn(
        "tests.terminals:be_clew_in_terminal",
        reports=Path(os.devnull),
        arguments=arguments,
        folder=str(folder),
        environ=environment(folder, TERM="xterm-256color", **environ),
        tty=os.ttyname(slave),
    )
    shown = Terminal(Process(child), master, slave)
    try:
        yield shown
    finally:
        if shown.process.poll() is None:
            shown.kill()
        shown.close()
        os.close(master)
