"""HTTP and WebSockets as uvicorn speaks them, with bounds: uvicorn itself would wait for ever, and keep it all."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
)
_BODY = b'{"error":{"code":"TOO_LARGE","message":"the head of a request may have at most 65536 bytes"}}'


class Unread:
    """How long we wait for a client that does not read. Closing would wait for it too: the connection is cut."""

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
    """Cuts the connection of a client that does not take what was sent within `unread_seconds`."""

    unread_seconds: ClassVar[float] = 15.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = Unread()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.ends()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.begins(self.transport, self.unread_seconds)

    def resume_writing(self) -> None:
        self._unread.ends()
        super().resume_writing()


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose next request does not begin, or does not get to its body, within `HEAD_SECONDS`.

    One whose client does not take the answer within `unread_seconds` is cut.
    """

    unread_seconds: ClassVar[float] = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = Unread()
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
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
            self._head_is_complete()
            self.transport.write(_TOO_LARGE % (len(_BODY), _BODY))
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._head_is_complete()
        super().on_headers_complete()

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
