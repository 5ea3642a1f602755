"""Front: the ASGI app of a process that is still loading: it says so, and lets all other requests wait for the app."""

import asyncio
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

# As the app answers them, too: that the process lives.
_ALIVE: Final = {"/health": b'{"status":"ok"}', "/ok": b'{"ok":true}'}
_LOADING: Final = b'{"error":{"code":"UNAVAILABLE","message":"this process is loading"},"status":"loading"}'
_STOPPING: Final = b'{"error":{"code":"UNAVAILABLE","message":"this process is stopping"}}'


class Front:
    """Imports and graphs take seconds. Until they are there a health check is answered here."""

    def __init__(self, prefix: str) -> None:
        """`prefix` is what paths begin with, as clients send them."""
        self._prefix = prefix
        self._app: ASGIApp | None = None
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._stopping: asyncio.Event | None = None

    @property
    def is_open(self) -> bool:
        return self._app is not None

    def open(self, app: ASGIApp, stopping: asyncio.Event) -> None:
        """From now on the app answers, until the process stops: then `stopping` is set."""
        self._app, self._stopping = app, stopping
        if self._is_stopping:
            stopping.set()
        self._changed.set()

    def stop(self) -> None:
        self._is_stopping = True
        if self._stopping is not None:
            self._stopping.set()
        self._changed.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            if await self._is_answered(scope, send):
                return
            await self._changed.wait()
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _answer(send, 503, _STOPPING)

    async def _is_answered(self, scope: Scope, send: Send) -> bool:
        """Whether this is a request that need not wait."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return False
        path = scope["path"].removeprefix(self._prefix)
        if path in _ALIVE:
            await _answer(send, 200, _ALIVE[path])
        elif path == "/ready":
            await _answer(send, 503, _LOADING)
        else:
            return False
        return True


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
