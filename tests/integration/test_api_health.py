"""Alive, ready, and counted."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from clew.api.health import Readiness
from clew.domain.errors import Unavailable
from tests.http_client import client_of, opened_app

pytestmark = pytest.mark.anyio


async def is_ready(client: httpx.AsyncClient) -> bool:
    """As those who probe find it: a machine that was busy for a moment is asked again."""
    async with asyncio.timeout(30):
        while (await client.get("/ready")).json() != {"status": "ready"}:
            await asyncio.sleep(0.02)
    return True


async def test_a_process_is_alive_and_ready(tmp_path: Path) -> None:
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert await is_ready(client)


async def test_a_process_that_stops_is_alive_and_not_ready(tmp_path: Path) -> None:
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        app.stopping.set()
        assert (await client.get("/health")).status_code == 200
        answer = await client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "UNAVAILABLE"


async def test_probes_need_no_key_even_where_all_else_does(tmp_path: Path) -> None:
    async with (
        opened_app(tmp_path, CLEW_AUTH="keys") as app,
        client_of(app.http, Host="lb.example") as client,
    ):
        assert (await client.get("/health")).status_code == 200
        assert await is_ready(client)


async def test_a_database_that_hangs_is_asked_once_and_not_waited_for() -> None:
    asked = 0
    answer = asyncio.Event()

    async def ping() -> None:
        nonlocal asked
        asked += 1
        await answer.wait()

    readiness = Readiness(ping, asyncio.Event(), seconds=0.05)
    for _ in range(3):
        with pytest.raises(Unavailable, match="in time"):
            await readiness.check()
    assert asked == 1
    answer.set()
    await readiness.check()
    await readiness.check()
    assert asked == 2


async def test_a_database_that_is_away_is_said_to_be() -> None:
    async def ping() -> None:
        raise Unavailable("the database cannot be reached")

    with pytest.raises(Unavailable, match="reached"):
        await Readiness(ping, asyncio.Event()).check()


async def test_postgres_is_part_of_being_ready(tmp_path: Path, postgres_url: str) -> None:
    async with opened_app(tmp_path, CLEW_DATABASE_URL=postgres_url) as app, client_of(app.http) as client:
        assert await is_ready(client)


async def test_requests_are_counted(tmp_path: Path) -> None:
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        before = await healthy_requests(client)
        await client.get("/health")
        assert await healthy_requests(client) == before + 1


async def healthy_requests(client: httpx.AsyncClient) -> float:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    counted = re.search(
        r'^clew_http_requests_total{method="GET",route="/health",status="200"} (\S+)$',
        answer.text,
        re.MULTILINE,
    )
    return float(counted[1]) if counted else 0.0
