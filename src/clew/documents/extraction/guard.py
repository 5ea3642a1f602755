"""Extractor port: each file is read by its own process, which is stopped when it exceeds a limit."""

import asyncio
import codecs
import json
import logging
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict

from clew.documents.extraction.frames import LENGTHS, MAX_HEAD, NAME_LENGTH, End, Progress, Warned, unpack
from clew.documents.extraction.limits import ExtractionLimits
from clew.domain.documents import Extraction, clean_name
from clew.domain.errors import Transient
from clew.domain.records import ContentItem
from clew.processes.forkserver_client import ForkJob, ForkServerProcess
from clew.processes.tenant_slots import TenantSlots

logger = logging.getLogger(__name__)

WORKERS = 2
READER = "clew.documents.extraction.formats:read"

_CHUNK = 256 * 1024
_DECODER = codecs.getincrementaldecoder("utf-8")
_MAX_WARNINGS = 100
_DYING_SECONDS = 1.0
# What frames may add to the data in them.
_OVERHEAD = 16 * 2**20


@asynccontextmanager
async def open_extractor(
    limits: ExtractionLimits | None = None, *, workers: int = WORKERS, reader: str = READER
) -> AsyncGenerator["GuardedExtractor"]:
    """`workers` files are read at once, and one more of a tenant that has none among them. The first file starts the reader process."""
    extractor = GuardedExtractor(limits or ExtractionLimits(), workers=workers, reader=reader)
    try:
        yield extractor
    finally:
        await extractor.close()


class GuardedExtractor:
    def __init__(self, limits: ExtractionLimits, *, workers: int = WORKERS, reader: str = READER) -> None:
        self._limits = limits
        self._reader = reader
        self._slots = TenantSlots(workers)
        self._starting = asyncio.Lock()
        self._nursery: ForkServerProcess | None = None

    async def extract(
        self,
        name: str,
        parts: AsyncIterable[bytes],
        *,
        tenant: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> Extraction:
        async with self._slots.taken(tenant):
            nursery = await self._ready()
            reader, writer, job = await _begin(nursery)
            answer = ExtractorReply(self._limits, progress)
            deadline = asyncio.timeout(self._limits.wall_seconds)
            died = False
            try:
                async with deadline:
                    await _send(writer, name, parts)
                    await answer.receive(reader)
                died = not answer.is_complete
            except TimeoutError:
                if not deadline.expired():
                    raise  # the bytes did not come in time, which says nothing about them
                answer.stop(f"reading stopped after {self._limits.wall_seconds:g} seconds")
            finally:
                writer.transport.abort()
                if not died:
                    nursery.stop(job)
            if died:
                answer.stop(await self._why(nursery, job))
            # Its slot is free when the process has exited, not when it has sent everything.
            await nursery.ended(job)
            return answer.extraction()

    async def close(self) -> None:
        if self._nursery is not None:
            await self._nursery.close()

    async def _ready(self) -> ForkServerProcess:
        async with self._starting:
            if self._nursery is None or not self._nursery.is_alive:
                await self.close()
                self._nursery = None
                self._nursery = await ForkServerProcess.start(
                    "clew.documents.extraction.reader_process",
                    self._reader,
                    json.dumps(asdict(self._limits)),
                    needs="the reading of documents needs what pip install 'clew-server[documents]' brings",
                )
            return self._nursery

    async def _why(self, nursery: ForkServerProcess, job: ForkJob) -> str:
        """The warning for a child that closed its connection early. Raises Transient if the file was not the cause."""
        status = await nursery.ended(job, seconds=_DYING_SECONDS)
        if status is None:  # it closed its connection and still runs, or its exit is reported late
            nursery.stop(job)
            status = await nursery.ended(job)
            if status is None:
                await nursery.close()
                raise Transient("the process that reads documents is gone")
            if status == -signal.SIGKILL:
                status = 0  # the server killed it
        logger.warning("a file stopped its reader", extra={"signal": -status})
        match -status:
            case signal.SIGXCPU:
                return f"reading stopped after {self._limits.cpu_seconds} seconds of computing"
            case signal.SIGKILL:
                return "reading stopped: there was not enough memory"
            case _:
                return "it is damaged in a way that stops its reader"


class ExtractorReply:
    """A child's output about one file, which is untrusted and validated."""

    def __init__(self, limits: ExtractionLimits, progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress
        self._room = limits.output_bytes + _OVERHEAD
        self._contents: list[ContentItem] = []
        self._warnings: list[str] = []
        self.is_complete = False

    async def receive(self, reader: asyncio.StreamReader) -> None:
        """Read until the child reports its end, or exits."""
        try:
            while not self.is_complete:
                head, data = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
                self._room -= head + data
                if head > MAX_HEAD or self._room < 0:
                    self.stop("reading stopped: it gives more than may be kept")
                    return
                self._take(await reader.readexactly(head), await _text(reader, data))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except ValueError:
            self.stop("reading stopped: its reader sent invalid data")

    def stop(self, warning: str) -> None:
        """Nothing more is expected."""
        self._warnings.append(warning)
        self.is_complete = True

    def extraction(self) -> Extraction:
        return Extraction(contents=tuple(self._contents), warnings=tuple(self._warnings))

    def _take(self, head: bytes, data: str) -> None:
        match unpack(head, data, number=len(self._contents) + 1):
            case ContentItem() as item:
                self._contents.append(item)
            case Warned(text):
                if len(self._warnings) < _MAX_WARNINGS:
                    self._warnings.append(text)
            case Progress(done, total):
                if self._progress is not None:
                    self._progress(done, total)
            case End():
                self.is_complete = True


async def _begin(nursery: ForkServerProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, ForkJob]:
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_CHUNK)
        try:
            return reader, writer, nursery.begin(theirs)
        except Transient:
            writer.transport.abort()
            raise


async def _send(writer: asyncio.StreamWriter, name: str, parts: AsyncIterable[bytes]) -> None:
    label = clean_name(name).encode()
    try:
        writer.write(NAME_LENGTH.pack(len(label)) + label)
        async for part in parts:
            writer.write(part)
            await writer.drain()
        writer.write_eof()
    except (ConnectionError, BrokenPipeError):
        return  # the child has exited; what it sent before is still to be read


async def _text(reader: asyncio.StreamReader, size: int) -> str:
    """Decoded piece by piece: tens of megabytes at once would block the event loop."""
    decoder = _DECODER()
    pieces: list[str] = []
    while size:
        data = await reader.read(min(size, _CHUNK))
        if not data:
            raise asyncio.IncompleteReadError(b"", size)
        pieces.append(decoder.decode(data).replace("\0", "\ufffd"))
        size -= len(data)
    pieces.append(decoder.decode(b"", final=True))
    return "".join(pieces)
