"""What may be sent: bounds that hold before anything is parsed, and JSON that can be stored."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from fastapi import APIRouter, Request
from hypothesis import assume, given
from hypothesis import strategies as st
from starlette.responses import StreamingResponse
from starlette.types import Message

from clew.api.access import PUBLIC, needs
from clew.api.bodies import LARGE_AT_ONCE, SMALL
from clew.api.strict_json import MAX_DEPTH, MAX_VALUES, check_json, storable_json
from clew.domain.errors import Invalid
from tests.http_client import SmallApi, client_of, small_api
from tests.waiting import until

pytestmark = pytest.mark.anyio

LIMIT = 1024


def echoing() -> APIRouter:
    router = APIRouter()

    @router.post("/echo", dependencies=[needs("write")])
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return body

    @router.post("/raw", dependencies=[needs("write")])
    async def raw(request: Request) -> int:
        return len(await request.body())

    @router.post("/stream", dependencies=[needs("write", body="stream")])
    async def stream(request: Request) -> int:
        return sum([len(part) async for part in request.stream()])

    return router


@pytest.fixture
async def api() -> AsyncGenerator[SmallApi]:
    async with small_api(echoing(), max_body_bytes=LIMIT, body_seconds=0.2) as api:
        yield api


async def chunks(size: int, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * size


@pytest.mark.parametrize(("size", "status"), [(0, 200), (LIMIT, 200), (LIMIT + 1, 413), (100 * LIMIT, 413)])
async def test_a_body_has_a_limit_with_and_without_a_length(api: SmallApi, size: int, status: int) -> None:
    async with client_of(api.http) as client:
        known = await client.post("/raw", content=b"x" * size)
        chunked = await client.post(
            "/raw", content=chunks(size // 8, 8) if size % 8 == 0 else chunks(size, 1)
        )
    assert known.status_code == chunked.status_code == status
    if status == 413:
        assert known.json()["error"]["code"] == "TOO_LARGE"
        assert known.headers["connection"] == "close"


async def call(
    api: SmallApi, messages: list[Message], headers: dict[str, str], *, then_wait: bool = False
) -> tuple[list[Message], int]:
    """Drive the app by hand; returns what it sent and how many messages of the body it asked for."""
    sent: list[Message] = []
    asked = 0

    async def receive() -> Message:
        nonlocal asked
        asked += 1
        if messages:
            return messages.pop(0)
        if then_wait:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await api.http(scope_of("/raw", headers), receive, send)
    return sent, asked


def scope_of(path: str, headers: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(b"host", b"localhost"), *((k.encode(), v.encode()) for k, v in headers.items())],
    }


@pytest.mark.fault("E8")
async def test_a_body_whose_length_is_too_large_is_not_read_at_all(api: SmallApi) -> None:
    sent, asked = await call(api, [], {"content-length": str(10**9)})
    assert sent[0]["status"] == 413
    assert asked == 0


@pytest.mark.fault("E8")
async def test_a_chunked_body_is_read_no_further_than_its_limit(api: SmallApi) -> None:
    part = {"type": "http.request", "body": b"x" * 1000, "more_body": True}
    sent, asked = await call(api, [dict(part) for _ in range(1000)], {})
    assert sent[0]["status"] == 413
    assert asked == 2


@pytest.mark.fault("E8")
async def test_a_body_that_does_not_come_is_a_408(api: SmallApi) -> None:
    slow: list[Message] = [{"type": "http.request", "body": b"x", "more_body": True}]
    sent, _ = await call(api, slow, {"content-length": "100"}, then_wait=True)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_client_that_goes_away_is_not_answered(
    api: SmallApi, caplog: pytest.LogCaptureFixture
) -> None:
    sent, _ = await call(api, [{"type": "http.request", "body": b"x", "more_body": True}], {})
    assert sent == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_route_may_take_a_stream_and_count_for_itself(api: SmallApi) -> None:
    async with client_of(api.http) as client:
        assert (await client.post("/stream", content=chunks(LIMIT, 10))).json() == 10 * LIMIT


GOOD = [
    b"{}",
    b'{"a": [1, 2.5, true, null, "\\u00e9\\ud83d\\ude00"]}',
    '{"é": "\U0001f600"}'.encode(),
    b' {"a": -0.0}\n',
]

BAD = {
    "not JSON": b"{a: 1}",
    "cut off": b'{"a": ',
    "two values": b"{} {}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "not UTF-8": b'{"a": "\xff"}',
    "raw surrogate": b'{"a": "\xed\xa0\x80"}',
    "raw NUL": b'{"a": "\x00"}',
    "raw newline in a text": b'{"a": "\n"}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": -Infinity}',
    "infinite number": b'{"a": 1e400}',
    "more than 64 bits": b'{"a": 9223372036854775808}',
    "a number of ten thousand digits": b'{"a": ' + b"9" * 10_000 + b"}",
    "twice the same key once it can be stored": b'{"a\\u0000": 1, "a\\ufffd": 2}',
    "twice the same key": b'{"a": 1, "a": 2}',
    "twice the same key, written differently": b'{"a": 1, "\\u0061": 2}',
    "too deep": b'{"a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    "ten thousand deep": b"[" * 10_000 + b"]" * 10_000,
    "ten thousand deep and open": b'{"a":' * 10_000,
    "too many values": b"[" + b"1," * MAX_VALUES + b"1]",
    "half a million values": b"[" + b"1," * 500_000 + b"1]",
    "too many keys": json.dumps({str(n): n for n in range(MAX_VALUES + 1)}).encode(),
}


# Usual in text out of PDFs; no database is asked to hold it.
MENDED = {
    b'{"a": "x\\u0000y"}': {"a": "x\ufffdy"},
    b'{"a": [{"b\\u0000": "\\u0000"}]}': {"a": [{"b\ufffd": "\ufffd"}]},
    b'{"a": "\\ud800"}': {"a": "\ufffd"},
    b'{"\\udc00": 1}': {"\ufffd": 1},
    b'{"a": "\\ude00\\ud83d"}': {"a": "\ufffd\ufffd"},
}


@pytest.mark.parametrize("body", MENDED)
async def test_what_cannot_be_stored_is_replaced_whichever_way_a_route_reads_it(
    api: SmallApi, body: bytes
) -> None:
    assert check_json(body) == MENDED[body]
    async with client_of(api.http, **{"Content-Type": "application/json"}) as client:
        answer = await client.post("/echo", content=body)
        raw = await client.post("/raw", content=body)
    assert (answer.status_code, answer.json()) == (200, MENDED[body])
    assert raw.json() == len(json.dumps(MENDED[body]))


@pytest.mark.parametrize("body", GOOD)
def test_json_that_is_taken(body: bytes) -> None:
    assert storable_json(body) == (json.loads(body), body)


@pytest.mark.fault("F5")
@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_json_that_is_not_taken_and_costs_little(body: bytes) -> None:
    started = time.process_time()
    with pytest.raises(Invalid) as refused:
        check_json(body)
    assert refused.value.field == "body"
    assert time.process_time() - started < 5, "it takes a tenth of a second"


def test_a_backslash_before_an_escape_makes_it_text() -> None:
    assert check_json(b'{"a": "\\\\u0000"}') == {"a": "\\u0000"}
    assert check_json(b'{"a": "\\\\ud800"}') == {"a": "\\ud800"}


@pytest.mark.fault("F5")
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text()
        | st.integers(-(2**63), 2**63 - 1),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=30,
    )
)
def test_all_json_is_taken_and_what_comes_of_it_can_be_stored(value: Any) -> None:
    taken = taken_unless_twice(value)
    written = json.dumps(taken, ensure_ascii=False)
    written.encode()
    assert "\\u0000" not in written.replace("\\\\", "")
    if json.dumps(value) == json.dumps(taken):
        assert taken == value
    else:
        assert "\ufffd" in written


def taken_unless_twice(value: Any) -> Any:
    """Two names may become one."""
    try:
        return check_json(json.dumps(value).encode())
    except Invalid as exc:
        assume("twice" not in str(exc))
        raise


@pytest.mark.fault("F5")
async def test_bad_json_is_a_400_and_good_json_arrives_whole(api: SmallApi) -> None:
    async with client_of(api.http, **{"Content-Type": "application/json"}) as client:
        for name, body in BAD.items():
            answer = await client.post("/echo", content=body)
            assert answer.status_code in (400, 413), name
        for body in GOOD:
            answer = await client.post("/echo", content=body)
            assert (answer.status_code, answer.json()) == (200, json.loads(body))


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_form_of_another_page_cannot_send_json(api: SmallApi, content_type: str) -> None:
    async with client_of(api.http) as client:
        answer = await client.post("/echo", content=b'{"a": 1}', headers={"Content-Type": content_type})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("path", "field"), [("/ra%00w", "path"), ("/raw?a=%00", "query"), ("/raw?%00=1", "query")]
)
async def test_nothing_is_found_by_a_nul(api: SmallApi, path: str, field: str) -> None:
    async with client_of(api.http) as client:
        answer = await client.post(path)
    assert answer.status_code in (400, 404)
    if answer.status_code == 400:
        assert answer.json()["error"]["field"] == field


LARGE = 3 * 1024 * 1024


async def test_large_bodies_share_a_room_and_small_ones_always_pass() -> None:
    """Those that do not fit are refused before they are read, and come in when the others have been answered."""
    inside, go_on = 0, asyncio.Event()
    router = APIRouter()

    @router.post("/hold", dependencies=[needs("write")])
    async def hold(request: Request) -> int:
        nonlocal inside
        inside += 1
        await go_on.wait()
        return len(await request.body())

    async with small_api(router, max_body_bytes=LARGE) as api, client_of(api.http) as client:
        held = [asyncio.create_task(client.post("/hold", content=b"x" * LARGE)) for _ in range(LARGE_AT_ONCE)]
        await until(lambda: inside >= LARGE_AT_ONCE)
        refused = await client.post("/hold", content=b"x" * LARGE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "TOO_MANY")
        assert refused.headers["retry-after"] == "1"
        small = asyncio.create_task(client.post("/hold", content=b"x" * SMALL))
        go_on.set()
        assert [answer.json() for answer in await asyncio.gather(*held)] == [LARGE] * LARGE_AT_ONCE
        assert (await small).json() == SMALL
        for _ in range(3):
            assert (await client.post("/hold", content=b"x" * LARGE)).json() == LARGE


async def test_a_stream_that_goes_on_holds_no_room() -> None:
    end = asyncio.Event()
    router = APIRouter()

    @router.post("/endless", dependencies=[needs("write")])
    async def endless(body: dict[str, Any]) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await end.wait()

        return StreamingResponse(parts(), headers={"X-Size": str(len(body["a"]))})

    large = json.dumps({"a": "x" * (LARGE - 100)}).encode()
    async with small_api(router, max_body_bytes=LARGE) as api:
        begun = asyncio.Semaphore(0)

        async def send_one() -> None:
            messages: list[Message] = [{"type": "http.request", "body": large, "more_body": False}]

            async def receive() -> Message:
                if messages:
                    return messages.pop()
                await end.wait()
                return {"type": "http.disconnect"}

            async def send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    assert message["status"] == 200
                    begun.release()

            await api.http(scope_of("/endless", {"content-type": "application/json"}), receive, send)

        streams = [asyncio.create_task(send_one()) for _ in range(LARGE_AT_ONCE)]
        async with asyncio.timeout(60):
            for _ in streams:
                await begun.acquire()
            more = asyncio.create_task(send_one())
            await begun.acquire()
            end.set()
            await asyncio.gather(more, *streams)


async def test_where_no_key_is_needed_a_body_is_small() -> None:
    router = APIRouter()

    @router.post("/open", dependencies=[PUBLIC])
    async def open_to_all(request: Request) -> int:
        return len(await request.body())

    async with small_api(router, max_body_bytes=LARGE) as api, client_of(api.http) as client:
        assert (await client.post("/open", content=b"x" * SMALL)).json() == SMALL
        assert (await client.post("/open", content=b"x" * (SMALL + 1))).status_code == 413
