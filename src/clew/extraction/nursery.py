"""A process that has every reader loaded and forks a child for each file: a fresh one costs milliseconds.

It is started by `guard` and never looks into a file itself. Standard input is a socket on which orders come, each
with the socket of one job; on standard output it reports how children ended. It dies with its parent.
"""

import encodings
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module

from clew.domain.records import ContentItem
from clew.extraction.confine import confine
from clew.extraction.formats import Reader
from clew.extraction.frames import (
    NAME_LENGTH,
    ORDER,
    READY,
    REPORT,
    START,
    End,
    Frame,
    Progress,
    Warned,
    pack,
)
from clew.extraction.limits import Limits
from clew.extraction.reading import Budget, Enough, Reading, Source

# A reading that stops by itself keeps what it has; one that is stopped loses the item it is at.
_OWN_CPU_SHARE = 0.9
_CHUNK = 256 * 1024

# Found by looking for imports inside functions in everything that is loaded.
_LATE = (
    "PIL.ImageCms",
    "PIL.ImageFilter",
    "PIL.MpoImagePlugin",
    "PIL.TiffImagePlugin",
    "_strptime",
    "colorsys",
    "email.generator",
    "heapq",
    "importlib.readers",
    "mmap",
    "statistics",
    "tracemalloc",
)


class Nursery:
    def __init__(self, read: Reader, limits: Limits, control: socket.socket, reports: int) -> None:
        self._read = read
        self._limits = limits
        self._control = control
        self._reports = reports
        self._jobs: dict[int, int] = {}  # by the process id of the child
        self._bell, self._ringer = os.pipe()

    def run(self) -> None:
        """Until the parent hangs up."""
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ringer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Whoever stops the server stops all of its processes at once; it may still want what it asked for.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._ringer, warn_on_full_buffer=False)
        self._report(READY, 0)
        try:
            while True:
                ready, _, _ = select.select([self._control.fileno(), self._bell], [], [])
                if self._bell in ready:
                    os.read(self._bell, 4096)
                    self._reap()
                if self._control.fileno() in ready and not self._obey():
                    return
        finally:
            for pid in self._jobs:
                os.kill(pid, signal.SIGKILL)

    def _obey(self) -> bool:
        order, sockets, _, _ = socket.recv_fds(self._control, ORDER.size, 1)
        if not order:
            return False
        verb, job = ORDER.unpack(order)
        if verb == START:
            self._start(job, sockets[0])
        else:
            for pid, running in self._jobs.items():
                if running == job:
                    os.kill(pid, signal.SIGKILL)
        return True

    def _start(self, job: int, connection: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._forget_parent()
                confine(self._limits, parent=parent)
                attend(self._read, self._limits, connection)
                code = 0
            finally:
                os._exit(code)
        os.close(connection)
        self._jobs[pid] = job

    def _forget_parent(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        for descriptor in (self._reports, self._bell, self._ringer):
            os.close(descriptor)

    def _reap(self) -> None:
        while self._jobs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._report(self._jobs.pop(pid), os.waitstatus_to_exitcode(status))

    def _report(self, job: int, status: int) -> None:
        os.write(self._reports, REPORT.pack(job, status))


class Wire:
    """A sink that sends everything to the parent as it comes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def item(self, item: ContentItem) -> None:
        self.send(item)

    def warning(self, text: str) -> None:
        self.send(Warned(text))

    def progress(self, done: int, total: int) -> None:
        self.send(Progress(done, total))

    def send(self, frame: Frame) -> None:
        self._connection.sendall(pack(frame))


def attend(read: Reader, limits: Limits, descriptor: int) -> None:
    """One job, in the child: take a file, read it, say what is in it."""
    with socket.socket(fileno=descriptor) as connection:
        wire = Wire(connection)
        try:
            source = _receive(connection)
            budget = Budget.of(
                source.data,
                output_bytes=limits.output_bytes,
                cpu_seconds=limits.cpu_seconds * _OWN_CPU_SHARE,
            )
            read(source, Reading(read, wire, budget, path=source.name))
        except Enough as exc:
            wire.warning(str(exc))
        except MemoryError:
            wire.warning("it needs more memory than a file may take")
        wire.send(End())


def _receive(connection: socket.socket) -> Source:
    (length,) = NAME_LENGTH.unpack(connection.recv(NAME_LENGTH.size, socket.MSG_WAITALL))
    name = connection.recv(length, socket.MSG_WAITALL).decode()
    parts: list[bytes] = []
    while part := connection.recv(_CHUNK):
        parts.append(part)
    return Source(name, b"".join(parts))


def _load_the_rest() -> None:
    """What would be imported when it is first needed: a child can no longer do that."""
    names = [f"encodings.{module.name}" for module in pkgutil.iter_modules(encodings.__path__)]
    for name in [*names, *_LATE]:
        with suppress(ImportError):  # some belong to Windows
            import_module(name)


def main(reader: str, limits: str) -> None:
    module, _, name = reader.partition(":")
    read: Reader = getattr(import_module(module), name)
    _load_the_rest()
    control = socket.socket(fileno=os.dup(0))
    reports = os.dup(1)
    # What a library prints must not look like a report.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    gc.freeze()  # so that children share this memory instead of copying it at their first collection
    Nursery(read, Limits(**json.loads(limits)), control, reports).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
