"""In-process transport: httpx requests to the app of this process, answered piece by piece as a socket would.

httpx's own ASGI transport returns an answer when it is complete, and a stream of events is never complete.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx
from starlette.types import ASGIApp, Message

from clew.api.auth import WITHIN
from clew.api.credentials import Principal

# How many pieces of an answer wait for their reader.
PIECES = 16


class InProcess(httpx.AsyncBaseTransport):
    """Every request is the given caller's: a process that can open the database needs no key."""

    def __init__(self, app: ASGIApp, caller: Principal) -> None:
        self._app = app
        self._caller = caller

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(await request.aread())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": ("127.0.0.1", 0),
            "root_path": "",
            WITHIN: self._caller,
        }
        return await exchange.begin(self._app, scope)


class _Exchange(httpx.AsyncByteStream):
    """One request and its answer; the app runs in a task of its own until the answer is complete or closed."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES)
        self._start: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, app: ASGIApp, scope: dict[str, object]) -> httpx.Response:
        self._task = asyncio.create_task(self._run(app, scope))
        try:
            start = await self._start
        except BaseException:
            await self.aclose()
            raise
        return httpx.Response(start["status"], headers=start["headers"], stream=self)

    async def _run(self, app: ASGIApp, scope: dict[str, object]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as exc:
            if self._start.done():
                raise
            self._start.set_exception(exc)
        finally:
            await self._pieces.put(None)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start.set_result(message)
        elif message.get("body"):
            await self._pieces.put(message["body"])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def aclose(self) -> None:
        self._closed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
