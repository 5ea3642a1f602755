"""MCP server of the tests, over stdio or HTTP: `python mcp_server.py stdio`, or `http PORT`.

CALLS names a file where it keeps what it did, one line a call. While the file HOLD exists, a call waits whose line begins
with its text.
"""

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

ENVIRON = os.environ  # noqa: TID251 - a program of its own
CALLS, HOLD = Path(ENVIRON["CALLS"]), Path(ENVIRON["HOLD"])

server = MCPServer("weather")


def did(what: str) -> None:
    with CALLS.open("a") as calls:
        calls.write(f"{what} {os.getpid()}\n")
    while HOLD.exists() and what.startswith(HOLD.read_text()):
        time.sleep(0.05)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def get_forecast(city: str, days: int = 1) -> str:
    """The weather of a city."""
    did(f"forecast {city}")
    return f"{city}: 17 degrees for {days} days"


@server.tool()
def send_mail(to: str) -> str:
    """Sends a mail."""
    did(f"mail {to}")
    return f"sent to {to}"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("the station is closed")


@server.tool()
def variables() -> str:
    """The names of the variables it was started with."""
    return " ".join(sorted(ENVIRON))


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
