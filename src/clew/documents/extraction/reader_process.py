"""Reader process: has every reader loaded and forks a child for each file. It never reads a file itself."""

import encodings
import json
import pkgutil
import socket
import sys
from contextlib import suppress
from importlib import import_module

from clew.documents.extraction.confine import confine
from clew.documents.extraction.formats import Reader
from clew.documents.extraction.frames import NAME_LENGTH, End, Frame, Progress, Warned, pack
from clew.documents.extraction.limits import ExtractionLimits
from clew.documents.extraction.reading import Enough, ReadBudget, Reading, SourceFile
from clew.domain.records import ContentItem
from clew.processes.forkserver import ForkServer

# A reading that stops by itself keeps what it has; one that is stopped loses the item it is at.
_OWN_CPU_SHARE = 0.9
_CHUNK = 256 * 1024

# Found by searching all loaded modules for imports inside functions.
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


class JobConnection:
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


def attend(read: Reader, limits: ExtractionLimits, connection: socket.socket) -> None:
    """One job, in the child: receive a file, read it, send its items."""
    wire = JobConnection(connection)
    try:
        source = _receive(connection)
        budget = ReadBudget.of(
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


def _receive(connection: socket.socket) -> SourceFile:
    (length,) = NAME_LENGTH.unpack(connection.recv(NAME_LENGTH.size, socket.MSG_WAITALL))
    name = connection.recv(length, socket.MSG_WAITALL).decode()
    parts: list[bytes] = []
    while part := connection.recv(_CHUNK):
        parts.append(part)
    return SourceFile(name, b"".join(parts))


def _load_the_rest() -> None:
    """Import modules that are otherwise imported on first use: a confined child cannot import."""
    names = [f"encodings.{module.name}" for module in pkgutil.iter_modules(encodings.__path__)]
    for name in [*names, *_LATE]:
        with suppress(ImportError):  # some belong to Windows
            import_module(name)


def main(reader: str, limits: str) -> None:
    module, _, name = reader.partition(":")
    read: Reader = getattr(import_module(module), name)
    _load_the_rest()
    known = ExtractionLimits(**json.loads(limits))

    def work(parent: int, connection: int) -> None:
        # Before the filter: making a socket of a descriptor needs a system call that the filter forbids.
        with socket.socket(fileno=connection) as parent_socket:
            confine(known, parent=parent)
            attend(read, known, parent_socket)

    ForkServer.serve(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
