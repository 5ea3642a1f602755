"""The product behind a real socket, in this process and its event loop."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from clew.cli.protocol import BoundedHttp, BoundedWebSocket
from clew.cli.server import ClewServer
from clew.cli.serving import bind


class QuietServer(ClewServer):
    """Leaves the signals of the process that runs the tests alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def served(
    app: FastAPI,
    stopping: asyncio.Event,
    *,
    http: type[BoundedHttp] = BoundedHttp,
    ws: type[BoundedWebSocket] = BoundedWebSocket,
) -> AsyncGenerator[str]:
    """Its address. Leaving ends the server as SIGTERM would."""
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            app,
            http=http,
            ws=ws,
            ws_max_size=1_048_576,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        server = QuietServer(config, stop=stopping.set, grace=5)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            async with asyncio.timeout(30):
                await server.listening.wait()
            yield f"127.0.0.1:{port}"
        finally:
            server.should_exit = True
            async with asyncio.timeout(30):
                await serving


@dataclass(frozen=True, slots=True)
class Sse:
    """One server-sent event; a comment alone has no type."""

    type: str
    id: str | None
    data: Any


async def sse(answer: httpx.Response) -> AsyncIterator[Sse]:
    """The events of a stream, as EventSource would hand them out."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if "data" in fields:
                yield Sse(fields.get("event", ""), fields.get("id"), json.loads(fields["data"]))
            fields = {}
