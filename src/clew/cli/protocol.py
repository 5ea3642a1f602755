"""uvicorn's HTTP and WebSocket protocols with limits: uvicorn itself waits for ever and buffers without bound."""

import asyncio
import sys
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0


def _refusal(head: bytes, code: bytes, message: bytes) -> bytes:
    body = b'{"error":{"code":"%s","message":"%s"}}' % (code, message)
    fixed = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close" % len(body)
    return b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (head, fixed, body)


_TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"TOO_LARGE",
    b"the head of a request may have at most %d bytes" % MAX_HEAD_BYTES,
)
_TOO_MANY = _refusal(
    b"429 Too Many Requests\r\nretry-after: 1",
    b"TOO_MANY",
    b"this address has as many open connections as it may have",
)


class Addresses:
    """How many connections each address has open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def enter(self, client: tuple[str, int] | None) -> str | None:
        """The address, now with one more; None if it has too many."""
        address = client[0] if client else ""  # a socket file has none
        if self._open[address] >= self._most:
            return None
        self._open[address] += 1
        return address

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


ANY_NUMBER = Addresses(sys.maxsize)


class Unread:
    """The time limit for a client that does not read. Closing would wait for it too, so the connection is aborted."""

    def __init__(self) -> None:
        self._cut: asyncio.TimerHandle | None = None

    def begins(self, transport: asyncio.Transport, seconds: float) -> None:
        self.ends()
        self._cut = asyncio.get_running_loop().call_later(seconds, transport.abort)

    def ends(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Aborts the connection of a client that does not read what was sent within `unread_seconds`."""

    unread_seconds: ClassVar[float] = 15.0
    addresses: ClassVar[Addresses] = ANY_NUMBER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = Unread()
        self._address: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._address = self.addresses.enter(self.client)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.addresses.leave(self._address)
        self._unread.ends()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.begins(self.transport, self.unread_seconds)

    def resume_writing(self) -> None:
        self._unread.ends()
        super().resume_writing()


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose next request does not begin, or does not reach its body, within `HEAD_SECONDS`.

    A connection whose client does not read the answer within `unread_seconds` is aborted.
    """

    unread_seconds: ClassVar[float] = 30.0
    addresses: ClassVar[Addresses] = ANY_NUMBER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = Unread()
        self._address: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._is_past_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()
        self._address = self.addresses.enter(self.client)
        if self._address is None:
            self._refuse(_TOO_MANY)

    def handle_websocket_upgrade(self) -> None:
        # The connection continues as another protocol, which counts it.
        self._leave()
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._head_is_complete()
        self._unread.ends()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.begins(self.transport, self.unread_seconds)

    def resume_writing(self) -> None:
        self._unread.ends()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if self._deadline is None and (cycle is None or cycle.response_complete):
            self._expect_head()
        if self._deadline is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._deadline is not None and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._is_past_head = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come through here too. A proxy that checks headers does not check those, so they are dropped.
        if not self._is_past_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_past_head = True
        self._head_is_complete()
        super().on_headers_complete()

    def _refuse(self, answer: bytes) -> None:
        self._head_is_complete()
        self.transport.write(answer)
        self.transport.close()

    def _leave(self) -> None:
        if self._address is not None:
            self.addresses.leave(self._address)
            self._address = None

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _head_is_complete(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


def counted(most_per_address: int) -> tuple[type[BoundedHttp], type[BoundedWebSocket]]:
    """Both protocols, counting together what an address has open."""
    shared = {"addresses": Addresses(most_per_address)}
    return type("CountedHttp", (BoundedHttp,), shared), type("CountedWebSocket", (BoundedWebSocket,), shared)
