"""HTTP client that costs next to nothing: kept-alive connections, no objects for requests, answers as bytes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

Part = Callable[[bytes], None]


class HttpFailed(Exception):
    """The server answered with something else than a 2xx, or hung up."""


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._got = bytearray()
        self._status = 0
        self._left: int | None = None
        """Bytes of the body still to come; None for a body in chunks."""
        self._body = bytearray()
        self._in_body = False
        self._on_part: Part | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(HttpFailed(f"the server hung up: {exc}"))

    async def ask(self, method: str, path: str, payload: bytes = b"", on_part: Part | None = None) -> bytes:
        """The body of a 2xx; `on_part` sees each piece of it as it comes."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: */*\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        self._answer = asyncio.get_running_loop().create_future()
        self._on_part = on_part
        self._transport.write(head.encode() + payload)
        status, body = await self._answer
        if not 200 <= status < 300:
            raise HttpFailed(f"{method} {path}: {status} {body[:300]!r}")
        return body

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._in_body and not self._take_head():
            return
        if self._left is None:
            self._take_chunks()
        else:
            piece = bytes(self._got)
            self._got.clear()
            self._left -= len(piece)
            self._add(piece)
            if self._left <= 0:
                self._end()

    def _take_head(self) -> bool:
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._got[:end]).lower()
        del self._got[: end + 4]
        self._status, self._in_body = int(head[9:12]), True
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            self._left = int(head[at + 17 :].split(b"\r\n", 1)[0])
        elif b"\r\ntransfer-encoding: chunked" in head:
            self._left = None
        else:
            self._left = 0  # a 204
        return True

    def _take_chunks(self) -> None:
        while (line := self._got.find(b"\r\n")) >= 0:
            size = int(self._got[:line].split(b";")[0], 16)
            if len(self._got) < line + 4 + size:
                return
            piece = bytes(self._got[line + 2 : line + 2 + size])
            del self._got[: line + 4 + size]
            if size == 0:
                self._end()
                return
            self._add(piece)

    def _add(self, piece: bytes) -> None:
        self._body += piece
        if self._on_part is not None:
            self._on_part(piece)

    def _end(self) -> None:
        status, body = self._status, bytes(self._body)
        self._body.clear()
        self._in_body = False
        assert self._answer is not None
        if not self._answer.done():
            self._answer.set_result((status, body))


class Client:
    """Callers of one server; a connection is used again by the next caller."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[Connection] = []

    async def ask(self, method: str, path: str, payload: bytes = b"", on_part: Part | None = None) -> bytes:
        connection = await self._connection()
        answer = await connection.ask(method, path, payload, on_part)
        self._free.append(connection)
        return answer

    async def ask_json(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(await self.ask(method, path, b"" if body is None else json.dumps(body).encode()))

    def hang_up(self) -> None:
        """Servers close connections that were idle for some seconds; the next caller makes a new one."""
        for connection in self._free:
            connection._transport.close()
        self._free.clear()

    async def _connection(self) -> Connection:
        while self._free:
            connection = self._free.pop()
            if not connection.closed:
                return connection
        host = f"127.0.0.1:{self._port}"
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(lambda: Connection(host), "127.0.0.1", self._port))[1]
