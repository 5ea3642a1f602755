"""A proxy between a client and Postgres that cuts a connection at a chosen request, or lets no byte through any more."""

import asyncio
import contextlib
import itertools
import struct
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

# How a connection ends, told from the client:
#   unsent      the request never reached the server
#   unanswered  the server did what was asked, and its answer was lost
#   half        of the answer the first half arrives
#   fatal       the server answers with its last words (SQLSTATE and FATAL), and closes
#   late        the answer arrives, then the server's last words, and the end of the stream later than the next request
#   frozen      the answer arrives, and the server hears nothing more of the client, not even that it is gone
Way = Literal["unsent", "unanswered", "half", "fatal", "late", "frozen"]
WAYS: tuple[Way, ...] = ("unsent", "unanswered", "half", "fatal", "late")

SOCKET = ".s.PGSQL.5432"
# What a server answers to: a simple query, Sync, Flush.
REQUESTS = frozenset(b"QSH")
# How an answer ends: ReadyForQuery; to a Flush after Describe, RowDescription or NoData; and an error.
ENDS = {ord("Q"): b"Z", ord("S"): b"Z", ord("H"): b"TnE"}


@dataclass(slots=True)
class Cut:
    """At the `at`-th request from now on, over all connections."""

    at: int
    way: Way
    sqlstate: str = "57P01"
    is_done: bool = False


class PostgresProxy:
    def __init__(self, upstream: Path) -> None:
        self._upstream = upstream
        self._cut: Cut | None = None
        self._requests = itertools.count(1)
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._clients: set[asyncio.Task[None]] = set()

    def cut(self, at: int, way: Way, sqlstate: str = "57P01") -> Cut:
        self._requests = itertools.count(1)
        self._cut = Cut(at, way, sqlstate)
        return self._cut

    def freeze(self) -> None:
        """Connections stay open and are accepted, and nothing goes through them."""
        self._is_open.clear()

    def thaw(self) -> None:
        self._is_open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._is_open.wait()
        up_reader, up_writer = await asyncio.open_unix_connection(str(self._upstream))
        backend = _Backend(up_reader, writer, self._is_open)
        try:
            up_writer.write(await read_message(reader, has_type=False))
            answers = asyncio.create_task(backend.pass_on())
            try:
                await self._requests_of(reader, writer, up_writer, backend)
            finally:
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
        finally:
            up_writer.close()

    async def _requests_of(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_writer: asyncio.StreamWriter,
        backend: "_Backend",
    ) -> None:
        while True:
            message = await read_message(reader)
            await self._is_open.wait()
            cut = self._cut
            is_it = message[0] in REQUESTS and next(self._requests) == (cut.at if cut else -1)
            if cut is None or not is_it or cut.is_done:
                up_writer.write(message)
                continue
            cut.is_done = True
            if cut.way == "unsent":
                return
            if cut.way == "fatal":
                writer.write(last_words(cut.sqlstate))
                return
            backend.hold(ENDS[message[0]])
            up_writer.write(message)
            answer = await backend.held
            if cut.way == "half":
                writer.write(answer[: len(answer) // 2])
            if cut.way == "late":
                writer.write(answer + last_words(cut.sqlstate))
                await read_message(reader)
            if cut.way == "frozen":
                writer.write(answer)
                await asyncio.get_running_loop().create_future()
            return


class _Backend:
    """What comes from the server: passed on, or held back as a whole."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._is_open = is_open
        self._ends = b""
        self.held: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def hold(self, ends: bytes) -> None:
        self._ends = ends

    async def pass_on(self) -> None:
        held = b""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                message = await read_message(self._reader)
                await self._is_open.wait()
                if not self._ends:
                    self._writer.write(message)
                    continue
                held += message
                if message[:1] in self._ends and not self.held.done():
                    self.held.set_result(held)
        self._writer.close()


async def read_message(reader: asyncio.StreamReader, *, has_type: bool = True) -> bytes:
    head = await reader.readexactly(5 if has_type else 4)
    (size,) = struct.unpack("!I", head[-4:])
    return head + await reader.readexactly(size - 4)


def last_words(sqlstate: str) -> bytes:
    fields = (b"SFATAL", b"VFATAL", b"C" + sqlstate.encode(), b"Mterminating connection")
    body = b"".join(field + b"\0" for field in fields) + b"\0"
    return b"E" + struct.pack("!I", len(body) + 4) + body


@asynccontextmanager
async def postgres_proxy(url: str) -> AsyncGenerator[tuple[PostgresProxy, str]]:
    """The proxy and the URL of the same database through it."""
    parts = urlsplit(url)
    (host,) = parse_qs(parts.query)["host"]
    # Not pytest's own folder: the path of a Unix socket has to be short.
    with tempfile.TemporaryDirectory(prefix="clew-proxy-") as folder:
        proxy = PostgresProxy(Path(host, SOCKET))
        server = await asyncio.start_unix_server(proxy.serve, Path(folder, SOCKET))
        try:
            yield proxy, f"postgresql://postgres@{parts.path}?host={folder}"
        finally:
            server.close()
            proxy.thaw()
            await proxy.close()
