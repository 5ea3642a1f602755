"""A transaction pooler before Postgres, as PgBouncer is one: a client has a server connection for a transaction only."""

import asyncio
import struct
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.postgres_proxy import ENDS, REQUESTS, SOCKET, last_words, read_message

PROTOCOL = 3 << 16
# What a client may ask for when it connects; PgBouncer refuses all else, since it would outlive the transaction.
PARAMETERS = {b"user", b"database", b"client_encoding", b"application_name"}


@dataclass(frozen=True, slots=True, eq=False)
class ServerConnection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, messages: bytes, client: asyncio.StreamWriter) -> bytes:
        """Pass a request on and its answer back; returns how the answer ended."""
        self.writer.write(messages)
        while True:
            answer = await read_message(self.reader)
            client.write(answer)
            if answer[:1] in ENDS[_kind(messages)]:
                return answer


class TransactionPooler:
    """Each transaction goes to the connection that was free for the longest time."""

    def __init__(self, upstream: Path, database: str) -> None:
        self._upstream = upstream
        self._database = database
        self._free: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self._clients: set[asyncio.Task[None]] = set()
        self._greeting = b""

    async def connect(self, size: int) -> None:
        for _ in range(size):
            self._free.put_nowait(await self._connected())

    async def close(self) -> None:
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        while not self._free.empty():
            self._free.get_nowait().writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            with closing(writer):
                await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._clients.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        startup = await read_message(reader, has_type=False)
        named = startup[8:].split(b"\0")[:-2:2]
        if struct.unpack("!I", startup[4:8])[0] != PROTOCOL or not PARAMETERS.issuperset(named):
            writer.write(last_words("08P01"))
            return
        writer.write(self._greeting)
        while True:
            messages = await _request(reader)
            server = await self._free.get()
            is_over = False
            try:
                # Until the answer says that no transaction is open.
                while (await server.send(messages, writer))[-6:] != b"Z\0\0\0\5I":
                    messages = await _request(reader)
                is_over = True
            finally:
                if not is_over:
                    server.writer.close()
                self._free.put_nowait(server if is_over else await self._connected())

    async def _connected(self) -> ServerConnection:
        reader, writer = await asyncio.open_unix_connection(str(self._upstream))
        parameters = b"user\0postgres\0database\0" + self._database.encode() + b"\0\0"
        writer.write(struct.pack("!II", len(parameters) + 8, PROTOCOL) + parameters)
        greeting = b""
        while not greeting.endswith(b"Z\0\0\0\5I"):
            greeting += await read_message(reader)
        self._greeting = greeting
        return ServerConnection(reader, writer)


async def _request(reader: asyncio.StreamReader) -> bytes:
    """Messages up to one that the server answers to."""
    messages = b""
    while True:
        message = await read_message(reader)
        if message[:1] == b"X":
            raise ConnectionAbortedError("the client has left")
        messages += message
        if message[0] in REQUESTS:
            return messages


def _kind(messages: bytes) -> int:
    """Of the last of these messages, which is the request."""
    at = kind = 0
    while at < len(messages):
        kind = messages[at]
        at += 1 + struct.unpack("!I", messages[at + 1 : at + 5])[0]
    return kind


@asynccontextmanager
async def transaction_pooler(url: str, *, size: int = 3) -> AsyncGenerator[str]:
    """The URL of the same database through a pooler with so many connections."""
    parts = urlsplit(url)
    (host,) = parse_qs(parts.query)["host"]
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="clew-pooler-"))
        pooler = TransactionPooler(Path(host, SOCKET), parts.path.removeprefix("/"))
        await pooler.connect(size)
        stack.push_async_callback(pooler.close)
        server = await asyncio.start_unix_server(pooler.serve, Path(folder, SOCKET))
        stack.callback(server.close)
        yield f"postgresql://postgres@{parts.path}?host={folder}"
