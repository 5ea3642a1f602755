"""Nobody gets so much that others get nothing: requests, wrong keys and connections are counted, and 429 is said."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from fastapi import APIRouter
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from clew.api.access import needs
from clew.api.limits import REMEMBERED, Pace, RateLimits
from clew.cli.protocol import counted
from tests.http_client import ADDRESS, SmallApi, client_of, new_key, opened_app, small_api
from tests.serving import served
from tests.waiting import until

pytestmark = pytest.mark.anyio

WRONG = "clew_aaaaaaaa_" + "a" * 32
SECONDS = 30.0


@dataclass(slots=True)
class Watch:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class TestPace:
    def test_it_is_kept_on_average_and_a_burst_is_let_through(self) -> None:
        watch = Watch()
        pace = Pace(per_second=2, burst=3, monotonic=watch)
        assert [pace.wait("ann") for _ in range(3)] == [0, 0, 0]
        assert pace.wait("ann") == pytest.approx(0.5)
        watch.now += 0.5
        assert pace.wait("ann") == 0
        assert pace.wait("ann") == pytest.approx(0.5)
        watch.now += 60
        assert [pace.wait("ann") > 0 for _ in range(4)] == [False, False, False, True]

    def test_who_is_refused_does_not_wait_longer_for_asking(self) -> None:
        watch = Watch()
        pace = Pace(per_second=1, burst=1, monotonic=watch)
        assert pace.wait("ann") == 0
        assert {pace.wait("ann") for _ in range(100)} == {1.0}
        watch.now += 1
        assert pace.wait("ann") == 0

    def test_one_does_not_wait_for_another(self) -> None:
        pace = Pace(per_second=1, burst=1, monotonic=Watch())
        assert pace.wait("ann") == 0
        assert pace.wait("bob") == 0

    @pytest.mark.fault("G7")
    def test_it_remembers_so_many_and_no_more(self) -> None:
        pace = Pace(per_second=1, burst=1, monotonic=Watch())
        for number in range(REMEMBERED + 1000):
            pace.wait("often")
            pace.wait(f"10.0.{number >> 8}.{number & 255}")
        assert len(pace._through) == REMEMBERED
        assert pace.wait("often") > 0


def echo() -> APIRouter:
    router = APIRouter()

    @router.get("/echo", dependencies=[needs("read")])
    async def echoed() -> str:
        return "echo"

    return router


@asynccontextmanager
async def limited(watch: Watch, *, requests: float = 0, wrong_keys: float = 0) -> AsyncIterator[SmallApi]:
    limits = RateLimits(requests_per_second=requests, wrong_keys_per_minute=wrong_keys, monotonic=watch)
    async with small_api(echo(), open_locally=False, limits=limits) as api:
        yield api


def client_at(api: SmallApi, address: str, key: str | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(api.http, client=(address, 40_000))
    return httpx.AsyncClient(
        transport=transport, base_url=ADDRESS, headers={} if key is None else {"X-API-Key": key}
    )


async def test_a_key_that_asks_too_often_is_told_when_to_come_back() -> None:
    watch = Watch()
    async with limited(watch, requests=2) as api:
        keys = [await new_key(api.keys) for _ in range(2)]
        async with client_of(api.http, keys[0]) as hasty, client_of(api.http, keys[1]) as other:
            assert [(await hasty.get("/echo")).status_code for _ in range(4)] == [200] * 4
            refused = await hasty.get("/echo")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["error"]["code"] == "TOO_MANY"
            assert (await other.get("/echo")).status_code == 200
            watch.now += 0.5
            assert (await hasty.get("/echo")).status_code == 200


@pytest.mark.fault("G7")
async def test_an_address_that_tries_keys_is_told_to_wait_and_good_keys_of_it_are_not() -> None:
    watch = Watch()
    async with limited(watch, wrong_keys=3) as api:
        good = await new_key(api.keys)
        async with (
            client_at(api, "10.0.0.1", WRONG) as trying,
            client_at(api, "10.0.0.1", good) as neighbour,
            client_at(api, "10.0.0.1") as nameless,
            client_at(api, "10.0.0.2", WRONG) as mistaken,
        ):
            assert [(await trying.get("/echo")).status_code for _ in range(3)] == [401] * 3
            refused = await trying.get("/nowhere")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "20")
            assert (await neighbour.get("/echo")).status_code == 200
            assert (await nameless.get("/echo")).status_code == 401
            assert (await mistaken.get("/echo")).status_code == 401
            watch.now += 20
            assert (await trying.get("/echo")).status_code == 401


@pytest.mark.fault("G7")
async def test_the_key_of_the_cleanup_is_not_to_be_guessed_either(tmp_path: Path) -> None:
    settings = {"CLEANUP_API_KEY": "the-right-one", "CLEW_LIMITS_WRONG_KEYS_PER_MINUTE": "2"}
    async with opened_app(tmp_path, **settings) as app, client_of(app.http) as client:

        async def clean_up(key: str) -> int:
            answer = await client.post("/api/optimize/cleanup", headers={"X-API-Key": key})
            return answer.status_code

        assert [await clean_up(f"guess-{n}") for n in range(3)] == [401, 401, 429]
        assert await clean_up("the-right-one") == 200


async def test_a_socket_is_no_place_to_guess_keys_at(tmp_path: Path) -> None:
    async with (
        opened_app(tmp_path, CLEW_LIMITS_WRONG_KEYS_PER_MINUTE="4") as app,
        served(app.http, app.stopping) as address,
    ):
        good = await new_key(app.stores.keys)
        url = f"ws://{address}/ws/events"

        async def by_header(key: str) -> int:
            with pytest.raises(InvalidStatus) as refused:
                async with connect(url, additional_headers={"X-API-Key": key}, proxy=None):
                    pass
            return refused.value.response.status_code

        async def by_message(key: str) -> str:
            async with connect(url, proxy=None) as socket:
                await socket.send(json.dumps({"type": "auth", "key": key}))
                async with asyncio.timeout(SECONDS):
                    await socket.wait_closed()
                return str(socket.close_reason)

        assert [await by_header(WRONG) for _ in range(2)] == [401, 401]
        assert [await by_message(WRONG) for _ in range(3)] == ["UNAUTHENTICATED"] * 2 + ["TOO_MANY"]
        assert await by_header(WRONG) == 429
        async with connect(url, additional_headers={"X-API-Key": good}, proxy=None) as socket:
            await socket.send(json.dumps({"type": "ping"}))
            assert json.loads(await socket.recv()) == {"type": "pong"}


async def test_a_trailer_is_no_header() -> None:
    """A proxy checks headers: what comes after the body must not count as one."""
    async with small_api(echo()) as api, served(api.http, asyncio.Event()) as address:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"GET /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\nX-API-Key: " + WRONG.encode() + b"\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
        )
        async with asyncio.timeout(SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 200")


class TestConnections:
    @pytest.mark.fault("E4")
    async def test_an_address_has_as_many_as_it_may_and_others_do_not_notice(self) -> None:
        http, ws = counted(20)
        async with small_api(echo()) as api, served(api.http, asyncio.Event(), http=http, ws=ws) as address:
            before = psutil.Process().num_fds()
            async with AsyncExitStack() as stack:
                answers = [await stack.enter_async_context(connected(address)) for _ in range(100)]
                assert [answer.refused for answer in answers] == [False] * 20 + [True] * 80
                assert await status_of(address, "/echo", "127.0.0.2") == 200
                assert await status_of(address, "/echo") == 429
            await until(lambda: not (http.addresses._open or psutil.Process().num_fds() > before), SECONDS)
            assert await status_of(address, "/echo") == 200

    async def test_a_websocket_is_one_connection_from_its_beginning_to_its_end(self, tmp_path: Path) -> None:
        http, ws = counted(1)
        async with (
            opened_app(tmp_path) as app,
            served(app.http, app.stopping, http=http, ws=ws) as address,
        ):
            async with connect(f"ws://{address}/ws/events"):
                assert await status_of(address, "/health") == 429
            await until(lambda: not http.addresses._open, SECONDS)
            assert await status_of(address, "/health") == 200


@dataclass(frozen=True, slots=True)
class Connected:
    refused: bool


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Connected]:
    """A connection that is taken up; its request is never complete, so that it stays open. Let go of at the end."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            b"GET /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
        )
        async with asyncio.timeout(SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        yield Connected(refused=head.startswith(b"HTTP/1.1 429"))
    finally:
        writer.close()


async def status_of(address: str, path: str, ours: str = "127.0.0.1") -> int:
    transport = httpx.AsyncHTTPTransport(local_address=ours)
    async with httpx.AsyncClient(transport=transport) as client:
        return (await client.get(f"http://{address}{path}", timeout=SECONDS)).status_code
