"""MCP servers of clew.yaml: `mcp.servers`, each a command to start or an address."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clew.config.kinds import http_url
from clew.config.tree import ConfigNode

_KEYS = ("command", "url", "env", "headers", "tools", "approval", "timeout")
_ALL = "all"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerSource:
    """One server. `tools` None: all may be used. `approval` None: all of them need one."""

    name: str
    command: tuple[str, ...]
    url: str
    environment: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    folder: Path
    tools: tuple[str, ...] | None
    approval: tuple[str, ...] | None
    seconds: float


def read_mcp_servers(place: ConfigNode) -> tuple[McpServerSource, ...]:
    servers = place.known(("servers",)).get("servers")
    return tuple(_server(name, entry) for name, entry in servers.named().items()) if servers else ()


def _server(name: str, place: ConfigNode) -> McpServerSource:
    given = place.known(_KEYS)
    if ("command" in given) == ("url" in given):
        raise place.expected("a command or a url")
    for key, other in (("env", "command"), ("headers", "url")):
        if key in given and other not in given:
            raise given[key].expected(f"nothing: {key} is for a server with a {other}")
    approval = given.get("approval")
    return McpServerSource(
        name=name,
        command=_words(given["command"]) if "command" in given else (),
        url=_url(given["url"]) if "url" in given else "",
        environment=_texts(given.get("env"), _VARIABLE),
        headers=_texts(given.get("headers"), _HEADER),
        folder=place.folder.absolute(),
        tools=_words(given["tools"]) if "tools" in given else None,
        approval=None if approval and approval.value == _ALL else _words(approval) if approval else (),
        seconds=_seconds(given.get("timeout")),
    )


def _words(place: ConfigNode) -> tuple[str, ...]:
    value = place.value
    if isinstance(value, list) and value and all(_is_word(one) for one in value):
        return tuple(value)
    raise place.expected(
        "a list of words" if place.key.rpartition(".")[2] != "approval" else "all, or a list of tools"
    )


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _url(place: ConfigNode) -> str:
    kind = http_url()
    try:
        return str(kind.read(place.text("an address")))
    except ValueError:
        raise place.expected(kind.expected) from None


def _texts(place: ConfigNode | None, names: re.Pattern[str]) -> dict[str, str]:
    entries = place.entries() if place else {}
    for name, entry in entries.items():
        if not names.fullmatch(name):
            raise entry.expected("a plain name")
    return {name: entry.text("a text") for name, entry in entries.items()}


def _seconds(place: ConfigNode | None) -> float:
    if place is None:
        return _SECONDS
    value = place.value
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 3600:
        return float(value)
    raise place.expected("seconds from 1 to 3600")
