"""Tools of MCP servers as tools of the ledger: logged, approved where the settings say so, and not silently repeated."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from langchain_core.tools import ToolException

from clew.domain.errors import ConfigError, InvalidState
from clew.domain.tool_calls import Terms
from clew.graph.tools import LedgerTool
from clew.toolsets.mcp_connection import (
    ConnectionLost,
    McpConnection,
    McpServerSpec,
    Unreachable,
    require_package,
)

logger = logging.getLogger(__name__)

# What models' providers take as the name of a tool.
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NAME = 64
_DESCRIPTION = 2_000
# How much of a result a model is shown.
RESULT_CHARACTERS = 60_000
# How long a list of tools, or its absence, is believed.
_BELIEVED_SECONDS = 60.0
_EFFECT = "its effect may have happened: do not repeat the call without asking the user"


class McpServers:
    """The servers of the settings."""

    def __init__(self, specs: Sequence[McpServerSpec]) -> None:
        self._connections = {spec.name: McpConnection(spec) for spec in specs}
        # What each offered when it was last asked, and until when that is believed.
        self._known: dict[str, tuple[float, list[LedgerTool]]] = {}

    def __bool__(self) -> bool:
        return bool(self._connections)

    @property
    def names(self) -> Sequence[str]:
        return list(self._connections)

    async def tools(self, *servers: str) -> list[LedgerTool]:
        """Those of all servers, or of the named ones. A server that cannot be reached is logged and left out.

        Raises ConfigError for a name that is no server.
        """
        found: list[LedgerTool] = []
        for name in servers or self._connections:
            now = asyncio.get_running_loop().time()
            until, tools = self._known.get(name, (0.0, []))
            if now >= until:
                tools = await self._offered(name)
                self._known[name] = (now + _BELIEVED_SECONDS, tools)
            found += tools
        return found

    async def _offered(self, name: str) -> list[LedgerTool]:
        try:
            return await self.tools_of(name)
        except (Unreachable, ConnectionLost, TimeoutError) as exc:
            logger.warning(
                "MCP server has no tools now", extra={"server": name, "error_class": type(exc).__name__}
            )
            return []

    async def tools_of(self, name: str) -> list[LedgerTool]:
        """Raises ConfigError, Unreachable, ConnectionLost, TimeoutError."""
        connection = self._connections.get(name)
        if connection is None:
            raise ConfigError(f"no MCP server {name!r}; there are {', '.join(self._connections) or 'none'}")
        offered = await connection.tools()
        _warn_of_unknown(connection.spec, {tool.name for tool in offered})
        return [_made(connection, tool) for tool in offered if connection.spec.allows(tool.name)]

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


# Those that are open in this process, the newest last.
_open: list[McpServers] = []


@asynccontextmanager
async def open_mcp_servers(specs: Sequence[McpServerSpec]) -> AsyncGenerator[McpServers]:
    """Each is started or called when its tools are first asked for. Raises ConfigError without the package."""
    if specs:
        require_package()
    servers = McpServers(specs)
    _open.append(servers)
    try:
        yield servers
    finally:
        _open.remove(servers)
        await servers.close()


async def mcp_tools(*servers: str) -> list[LedgerTool]:
    """The tools of the MCP servers in clew.yaml: of all, or of the named ones.

    A server that cannot be reached has none now. Raises InvalidState outside of Clew, ConfigError for an unknown name.
    """
    if not _open:
        raise InvalidState("MCP servers are those of clew.yaml: their tools exist under Clew only")
    return await _open[-1].tools(*servers)


def tool_name(server: str, tool: str) -> str:
    """One that every provider takes, and that names the server."""
    name = _NO_NAME.sub("_", f"{server}__{tool}")
    return name if len(name) <= _NAME else f"{name[: _NAME - 9]}_{sha256(name.encode()).hexdigest()[:8]}"


def _made(connection: McpConnection, offered: Any) -> LedgerTool:
    spec, told = connection.spec, offered.annotations
    # What a server does not say of its tool is the careful answer: it changes something, and a repetition changes more.
    is_idempotent = bool(told and (told.read_only_hint or told.idempotent_hint))

    async def call(**arguments: Any) -> str:
        try:
            return _text(await connection.call(offered.name, arguments))
        except ConnectionLost as exc:
            if not is_idempotent:
                raise ToolException(f"{exc} during the call; {_EFFECT}") from exc
        except TimeoutError:
            raise ToolException(
                f"no answer within {spec.seconds:g} s{'' if is_idempotent else f'; {_EFFECT}'}"
            ) from None
        except Unreachable as exc:
            raise ToolException(f"{exc}; the call was not begun") from exc
        except Exception as exc:
            raise ToolException(_reason(exc)) from exc
        try:
            return _text(await connection.call(offered.name, arguments))
        except Exception as exc:
            raise ToolException(_reason(exc)) from exc

    made = LedgerTool.from_function(
        coroutine=call,
        name=tool_name(spec.name, offered.name),
        description=(offered.description or offered.title or offered.name)[:_DESCRIPTION],
        args_schema=_schema(offered.input_schema),
        infer_schema=False,
        handle_tool_error=True,
    )
    assert isinstance(made, LedgerTool)  # noqa: S101 - from_function makes the class it is called on
    made.terms = Terms(approval=spec.needs_approval(offered.name), server=spec.name)
    made.idempotent = is_idempotent
    return made


def _schema(given: Any) -> dict[str, Any]:
    schema = dict(given or {})
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    return schema


def _text(result: Any) -> str:
    """What a model reads of a result. Raises ToolException for the error of a tool."""
    parts = [_part(one) for one in result.content]
    text = "\n\n".join(part for part in parts if part)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if len(text) > RESULT_CHARACTERS:
        text = f"{text[:RESULT_CHARACTERS]}\n[cut off: {len(text)} characters]"
    if result.is_error:
        raise ToolException(text or "the tool failed")
    return text or "done"


def _part(one: Any) -> str:
    match one.type:
        case "text":
            return str(one.text)
        case "resource" if hasattr(one.resource, "text"):
            return str(one.resource.text)
        case "resource_link":
            return str(one.uri)
        case kind:
            return f"[{kind}: not shown]"


def _reason(exc: Exception) -> str:
    first = str(exc).partition("\n")[0][:500]
    return first or type(exc).__name__


def _warn_of_unknown(spec: McpServerSpec, offered: Collection[str]) -> None:
    """A name in the settings that the server does not have may be a typing error, and an approval that is never asked."""
    named = {*(spec.tools or ()), *(spec.approval or ())}
    if unknown := sorted(named - set(offered)):
        logger.warning("MCP server has no such tool", extra={"server": spec.name, "tool": ", ".join(unknown)})
