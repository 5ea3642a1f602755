"""MCP servers in clew.yaml."""

from pathlib import Path

import pytest

from clew.config import Settings, describe, load_settings, secrets_of
from clew.domain.errors import ConfigError
from clew.server.mcp_servers import mcp_specs
from clew.toolsets.mcp_tools import tool_name


def load(folder: Path, servers: str) -> Settings:
    (folder / "clew.yaml").write_text(f"mcp: {{servers: {servers}}}")
    return load_settings({"TOKEN": "the-token-of-the-server"}, cwd=folder)


def test_servers_are_read_and_their_variables_and_headers_are_secrets(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "{a: {command: [run, me], env: {KEY: '${TOKEN}'}, tools: [x, y], approval: [x], timeout: 5},"
        " b: {url: 'https://example.com/mcp', headers: {Authorization: '${TOKEN}'}, approval: all}}",
    )
    one, other = mcp_specs(loaded)
    assert (one.command, one.environment, one.folder) == (
        ("run", "me"),
        {"KEY": "the-token-of-the-server"},
        tmp_path,
    )
    assert [one.allows(tool) for tool in "xyz"] == [True, True, False]
    assert [one.needs_approval(tool) for tool in "xyz"] == [True, False, False]
    assert (other.url, other.allows("z"), other.needs_approval("z")) == (
        "https://example.com/mcp",
        True,
        True,
    )
    assert (one.seconds, other.seconds) == (5, 60)
    assert "the-token-of-the-server" in secrets_of(loaded)
    assert "the-token" not in f"{loaded}{describe(loaded)}{one}{other}"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("{}", "mcp.servers.a: expected a command or a url"),
        ("{command: [x], url: 'http://x/'}", "mcp.servers.a: expected a command or a url"),
        ("{command: x}", "mcp.servers.a.command: expected a list of words"),
        ("{command: []}", "mcp.servers.a.command: expected a list of words"),
        ("{url: ftp://x}", "mcp.servers.a.url: expected"),
        (
            "{command: [x], headers: {A: b}}",
            "mcp.servers.a.headers: expected nothing: headers is for a server with a url",
        ),
        ("{url: 'http://x/', env: {A: b}}", "mcp.servers.a.env: expected nothing"),
        ("{command: [x], env: {A: 1}}", "mcp.servers.a.env.A: expected a text"),
        ("{command: [x], env: {'A B': x}}", "expected a plain name"),
        ("{command: [x], approval: some}", "mcp.servers.a.approval: expected all, or a list of tools"),
        ("{command: [x], timeout: 0}", "mcp.servers.a.timeout: expected seconds from 1 to 3600"),
        ("{command: [x], tool: [y]}", "mcp.servers.a.tool: no such key; did you mean tools?"),
        ("{url: 'http://x/', headers: {A: '${NONE}'}}", "the variable NONE is not set"),
    ],
)
def test_a_wrong_server_is_refused_by_its_key(tmp_path: Path, server: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f"{{a: {server}}}")
    assert said in str(refused.value)


def test_names_are_such_as_providers_take() -> None:
    assert tool_name("weather", "get.forecast") == "weather__get_forecast"
    long = [tool_name("weather", "x" * 70), tool_name("weather", "x" * 71)]
    assert all(len(name) <= 64 for name in long)
    assert long[0] != long[1]
