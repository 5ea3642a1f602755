"""What Clew rests on in FastAPI and uvicorn beyond their documentation: a new version that changes it fails here."""

import inspect

import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from clew.api.access import needs
from clew.api.routing import LazyRoute, Router
from clew.cli.protocol import BoundedHttp, BoundedWebSocket
from clew.cli.server import ClewServer

CONNECTION = {"connection_made", "connection_lost", "pause_writing", "resume_writing"}
PARSER = {"data_received", "on_message_begin", "on_header", "on_headers_complete", "handle_websocket_upgrade"}


@pytest.mark.parametrize(
    ("ours", "theirs", "replaced"),
    [
        (BoundedHttp, HttpToolsProtocol, CONNECTION | PARSER),
        (BoundedWebSocket, WebSocketsSansIOProtocol, CONNECTION),
        (ClewServer, uvicorn.Server, {"startup", "shutdown", "capture_signals", "handle_exit"}),
    ],
)
def test_uvicorn_has_the_methods_that_are_replaced(ours: type, theirs: type, replaced: set[str]) -> None:
    assert {name for name in vars(ours) if name in dir(theirs) and name[0] != "_"} == replaced
    for name in replaced:
        if not getattr(theirs, name).__module__.startswith("uvicorn"):
            continue  # sse-starlette, which the MCP client brings, puts its own in its place
        own, other = (list(inspect.signature(getattr(one, name)).parameters) for one in (ours, theirs))
        assert own == other, name


@pytest.mark.anyio
async def test_uvicorn_has_the_attributes_that_are_read() -> None:
    config = uvicorn.Config(FastAPI(), ws="websockets-sansio")
    config.load()
    http = HttpToolsProtocol(config, ServerState(), {})
    assert {"cycle", "client", "loop", "transport"} <= set(vars(http))
    socket = WebSocketsSansIOProtocol(config, ServerState(), {})
    assert {"client", "transport"} <= set(vars(socket))


def test_fastapi_makes_routes_of_our_class_and_shows_them_as_they_are_called() -> None:
    inner, outer = Router(tags=["x"]), APIRouter(prefix="/out")

    @inner.get("/{name}", dependencies=[needs("read")])
    async def show(name: str) -> str:
        return name

    (route,) = inner.routes
    assert isinstance(route, LazyRoute)
    assert isinstance(route.built, APIRoute)
    assert (route.path, route.methods, len(route.dependencies)) == ("/{name}", {"GET"}, 1)
    (context,) = iter_route_contexts(inner.routes)
    assert (context.methods, context.name, context.endpoint) == ({"GET"}, "show", show)
    outer.include_router(inner)
    (context,) = iter_route_contexts(outer.routes)
    assert (context.path, context.path_format) == ("/out/{name}", "/out/{name}")


def test_fastapi_calls_the_middleware_that_is_set() -> None:
    source = inspect.getsource(FastAPI.__call__) + inspect.getsource(FastAPI.__mro__[1].__call__)
    assert "if self.middleware_stack is None" in source
