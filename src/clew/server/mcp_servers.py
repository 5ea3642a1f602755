"""MCP servers of the settings, as the toolsets need them; and what each of them offers, for `clew doctor --ask`."""

from collections.abc import Sequence
from dataclasses import dataclass

from clew.config import Settings
from clew.domain.errors import ConfigError
from clew.toolsets.mcp_connection import ConnectionLost, McpServerSpec, Unreachable
from clew.toolsets.mcp_tools import open_mcp_servers


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedServer:
    """The tools of a server that may be used, or why it has none."""

    server: str
    ok: bool
    detail: str


def mcp_specs(settings: Settings) -> list[McpServerSpec]:
    return [
        McpServerSpec(
            name=one.name,
            command=one.command,
            url=one.url,
            environment=one.environment,
            headers=one.headers,
            folder=one.folder,
            tools=None if one.tools is None else frozenset(one.tools),
            approval=None if one.approval is None else frozenset(one.approval),
            seconds=one.seconds,
        )
        for one in settings.mcp_servers
    ]


async def ask_mcp_servers(settings: Settings) -> Sequence[AskedServer]:
    asked = []
    try:
        async with open_mcp_servers(mcp_specs(settings)) as servers:
            for name in servers.names:
                try:
                    tools = await servers.tools_of(name)
                except (Unreachable, ConnectionLost, TimeoutError) as exc:
                    asked.append(AskedServer(server=name, ok=False, detail=str(exc) or "no answer in time"))
                    continue
                named = ", ".join(f"{one.name}{' (approval)' if one.terms.approval else ''}" for one in tools)
                asked.append(AskedServer(server=name, ok=True, detail=named or "no tools"))
    except ConfigError as exc:
        return [AskedServer(server=one.name, ok=False, detail=str(exc)) for one in settings.mcp_servers]
    return asked
