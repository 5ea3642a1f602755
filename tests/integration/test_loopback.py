"""Clients of LangGraph's SDK without an address, in one process with the server."""

import sys
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import AuthenticationError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.auth import WITHIN
from clew.api.sdk.loopback import Loopback, loopback
from clew.domain.thread import Owner

pytestmark = pytest.mark.anyio


async def tell_caller(scope: Scope, receive: Receive, send: Send) -> None:
    caller = scope[WITHIN]
    shown = {"tenant": caller.tenant, "user": caller.user_id, "scopes": sorted(caller.scopes)}
    await JSONResponse(shown)(scope, receive, send)


def of_ann(app: ASGIApp) -> Loopback:
    return Loopback(app, lambda: Owner(tenant="acme", user_id="ann"))


async def test_clients_made_before_and_inside_reach_the_server() -> None:
    before: Any = get_client()
    with loopback(of_ann(tell_caller)):
        for client in (before, get_client()):
            assert await client.http.get("/info") == {
                "tenant": "acme",
                "user": "ann",
                "scopes": ["approve", "read", "write"],
            }


async def test_nothing_is_kept_of_clients_made_inside() -> None:
    from langgraph_sdk._shared import utilities  # noqa: PLC0415 - what it remembers is its own affair

    with loopback(of_ann(tell_caller)):
        count = len(utilities._registered_transports)
        for _ in range(3):
            await get_client().http.get("/info")
        assert len(utilities._registered_transports) == count


async def test_outside_of_a_node_nobody_is_calling() -> None:
    refused = pytest.raises(AuthenticationError, match="inside of a node")
    with loopback(Loopback(tell_caller, lambda: None)), refused:
        await get_client().http.get("/info")


async def test_after_the_server_is_closed_there_is_none() -> None:
    with loopback(of_ann(tell_caller)):
        pass
    with pytest.raises(TypeError):
        await get_client().http.get("/info")


async def test_without_the_sdk_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    before = get_client()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "langgraph_sdk.client", None)
        with loopback(of_ann(tell_caller)), pytest.raises(TypeError):
            await before.http.get("/info")
