"""A process that is still loading: what it answers, and what waits until it is ready."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from clew.cli.front import Front
from tests.http_client import ADDRESS

pytestmark = pytest.mark.anyio


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse({"path": scope["path"]})(scope, receive, send)


def client_of(front: Front) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=ADDRESS)


async def test_while_it_loads_it_lives_and_is_not_ready() -> None:
    async with client_of(Front("/prefix")) as client:
        for path in ("/health", "/ok"):
            assert (await client.get(f"/prefix{path}")).status_code == 200
        ready = await client.get("/prefix/ready")
    assert (ready.status_code, ready.json()["status"]) == (503, "loading")


async def test_other_requests_wait_for_the_app() -> None:
    front = Front("")
    async with client_of(front) as client:
        asked = asyncio.create_task(client.get("/threads"))
        await client.get("/ready")
        assert not asked.done()
        front.open(app, asyncio.Event())
        assert (await asked).json() == {"path": "/threads"}
        assert (await client.get("/ready")).json() == {"path": "/ready"}


async def test_one_that_stops_before_it_is_ready_lets_no_request_wait() -> None:
    front = Front("")
    async with client_of(front) as client:
        asked = asyncio.create_task(client.get("/threads"))
        await client.get("/health")
        front.stop()
        assert (await asked).status_code == 503


@pytest.mark.parametrize("is_early", [True, False])
async def test_the_app_learns_that_the_process_stops(is_early: bool) -> None:
    front, stopping = Front(""), asyncio.Event()
    steps: list[Any] = [front.stop, lambda: front.open(app, stopping)]
    for step in steps if is_early else reversed(steps):
        step()
    assert stopping.is_set()
