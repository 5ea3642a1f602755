"""Connection to one MCP server, opened with its first use and again after it was lost."""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clew.domain.errors import ConfigError

logger = logging.getLogger(__name__)

_KEEPER = Path(__file__).parent.parent / "processes" / "keeper.py"
_NOWHERE = Path(os.devnull)
_START_SECONDS = 30.0
_END_SECONDS = 10.0
MISSING = "MCP servers need another package: pip install 'clew-server[mcp]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerSpec:
    """One server of the settings: a command to start, or an address. `tools` are those that may be used; None is all."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    # They may be secrets.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path = Path("/")
    tools: frozenset[str] | None = None
    # The tools that need an approval; None is all.
    approval: frozenset[str] | None = frozenset()
    seconds: float = 60.0

    def needs_approval(self, tool: str) -> bool:
        return self.approval is None or tool in self.approval

    def allows(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools


class Unreachable(Exception):
    """The server could not be asked: nothing was sent to it."""


class ConnectionLost(Exception):
    """The server was lost while it worked: what it did is not known."""


class McpConnection:
    """`client` is a task of its own: the package's streams must be closed by the task that opened them."""

    def __init__(self, spec: McpServerSpec) -> None:
        self.spec = spec
        self._opening = asyncio.Lock()
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    async def tools(self) -> Sequence[Any]:
        """The tools that the server offers now. Raises Unreachable, ConnectionLost."""
        client = await self._connected()
        found: list[Any] = []
        cursor: str | None = None
        while True:
            page = await self._guarded(client.list_tools(cursor=cursor), seconds=_START_SECONDS)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return found

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The server's result. Raises Unreachable, ConnectionLost, TimeoutError, and MCPError of the server itself."""
        client = await self._connected()
        asked = client.call_tool(tool, dict(arguments), read_timeout_seconds=self.spec.seconds)
        return await self._guarded(asked, seconds=self.spec.seconds)

    async def close(self) -> None:
        async with self._opening:
            await self._end()

    async def _guarded(self, asked: Any, *, seconds: float) -> Any:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra, and slow to import
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT  # noqa: PLC0415 - the same

        task = self._task
        asking = asyncio.ensure_future(asked)
        waiting = {asking} if task is None else {asking, task}
        try:
            # A server that dies ends the task; a call to it may then never return.
            async with asyncio.timeout(seconds):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return self._result(asking)
        except MCPError as exc:
            if exc.error.code == CONNECTION_CLOSED:
                await self._lose(task)
                raise ConnectionLost(f"the MCP server {self.spec.name} was lost") from exc
            if exc.error.code == REQUEST_TIMEOUT:
                raise TimeoutError from exc
            raise
        except (ConnectionLost, OSError, EOFError) as exc:
            if not isinstance(exc, TimeoutError):
                await self._lose(task)
            raise
        finally:
            if not asking.done():
                asking.cancel()

    def _result(self, asking: "asyncio.Future[Any]") -> Any:
        if not asking.done():
            raise ConnectionLost(f"the MCP server {self.spec.name} was lost")
        return asking.result()

    async def _connected(self) -> Any:
        async with self._opening:
            if self._task is None or self._task.done():
                await self._begin()
            return self._client

    async def _begin(self) -> None:
        self._ending = asyncio.Event()
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._serve(ready), name=f"mcp-{self.spec.name}")
        try:
            async with asyncio.timeout(_START_SECONDS):
                self._client = await asyncio.shield(ready)
        except BaseException as exc:
            await self._end()
            if isinstance(exc, Exception):
                raise Unreachable(
                    f"the MCP server {self.spec.name} cannot be reached: {_named(exc)}"
                ) from exc
            raise

    async def _serve(self, ready: "asyncio.Future[Any]") -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._open(stack))
                if not ready.done():
                    ready.set_result(client)
                await self._ending.wait()
        except Exception as exc:  # noqa: BLE001 - a server may answer anything; the callers get the reason
            if ready.done():
                logger.warning(
                    "MCP server was lost", extra={"server": self.spec.name, "error_class": type(exc).__name__}
                )
            else:
                ready.set_exception(exc)
                ready.exception()  # retrieved: a caller that was stopped waits no more

    async def _open(self, stack: AsyncExitStack) -> Any:
        from mcp.client import Client  # noqa: PLC0415 - an extra, and slow to import

        spec = self.spec
        if spec.command:
            from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - the same

            # The package adds HOME, PATH and a few like them; no other variable reaches the server.
            parameters = StdioServerParameters(
                command=sys.executable,
                args=["-I", str(_KEEPER), str(os.getpid()), *spec.command],
                env=dict(spec.environment),
                cwd=spec.folder,
            )
            told = stack.enter_context(_NOWHERE.open("w"))  # noqa: ASYNC230 - no file on a disk
            return Client(stdio_client(parameters, errlog=told))
        import httpx2  # noqa: PLC0415 - the extra brings it
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - the same

        http = await stack.enter_async_context(
            httpx2.AsyncClient(headers=dict(spec.headers), timeout=spec.seconds, follow_redirects=False)
        )
        transport = streamable_http_client(spec.url, http_client=http)
        return Client(transport)

    async def _lose(self, task: "asyncio.Task[None] | None") -> None:
        async with self._opening:
            if self._task is task:
                await self._end()

    async def _end(self) -> None:
        task, self._task, self._client = self._task, None, None
        if task is None:
            return
        self._ending.set()
        await asyncio.wait([task], timeout=_END_SECONDS)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(task, return_exceptions=True)


def _named(exc: BaseException) -> str:
    """In one line; of a group of exceptions the first."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    first = str(exc).partition("\n")[0][:300]
    return f"{type(exc).__name__}: {first}" if first else type(exc).__name__


def require_package() -> None:
    """Raises ConfigError that names the extra."""
    try:
        import mcp.client  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError as exc:
        raise ConfigError(MISSING) from exc
