"""/mcp: the Model Context Protocol over streamable HTTP, without sessions."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from clew.api.access import needs
from clew.api.credentials import Principal
from clew.api.followed_runs import FollowedRuns
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.streams import first_of
from clew.domain.errors import Invalid, NotFound
from clew.ports.graphs import GraphIntrospection

MISSING = "MCP is not installed on this server: pip install 'clew-server[mcp]'"


class McpRoutes:
    def __init__(self, runs: FollowedRuns, introspection: GraphIntrospection) -> None:
        self._runs = runs
        self._introspection = introspection

    def router(self) -> APIRouter:
        router = Router(tags=["mcp"])
        router.post("/mcp", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.handle_mcp
        )
        return router

    async def handle_mcp(self, caller: Caller, request: Request) -> Response:
        """One message of an MCP client: a JSON-RPC request, answered as JSON or as server-sent events."""
        if not request.headers.get("content-type", "").startswith("application/json"):
            # The package would say so without a type of its own answer.
            raise Invalid("expected a body with Content-Type: application/json", field="body")
        return McpResponse(self._runs, self._introspection, caller)


class McpResponse(Response):
    """Answers as the `mcp` package does. It is imported with the first request: that takes a second."""

    def __init__(self, runs: FollowedRuns, introspection: GraphIntrospection, caller: Principal) -> None:
        super().__init__()
        self._runs = runs
        self._introspection = introspection
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            from clew.api.mcp.server import McpServer  # noqa: PLC0415 - an extra
        except ImportError:
            raise NotFound(MISSING) from None
        server = McpServer(self._runs, self._introspection, self._caller)
        streams = self._runs.streams
        with streams.one("sse", self._caller):
            await first_of(server.handle(scope, receive, send), streams.stopping.wait())
