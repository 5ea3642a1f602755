"""Errors as clients see them: one shape, the right status, and never a word that is not for them."""

import logging
from collections.abc import Iterator

import pytest
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from clew.api.access import needs
from clew.api.errors import STATUS, Internal, TooMany, error_response, status_of
from clew.domain.errors import (
    AlreadyDone,
    ClewError,
    Conflict,
    Invalid,
    InvalidState,
    LostLease,
    NotFound,
    StorageFull,
    Transient,
    Unavailable,
)
from tests.http_client import client_of, small_api

pytestmark = pytest.mark.anyio

CANARY = "my-dog-is-called-Kerberos"


def all_errors(base: type[ClewError] = ClewError) -> Iterator[type[ClewError]]:
    for error in base.__subclasses__():
        yield error
        yield from all_errors(error)


def test_every_refusal_has_a_status() -> None:
    """Those that commands print aside: they come from a server's answer."""
    for error in {error for error in all_errors() if not error.__module__.startswith("clew.cli")} - {
        AlreadyDone
    }:
        assert 400 <= status_of(error) < 600, error


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (NotFound("no thread 'x'"), 404, {}),
        (InvalidState(), 409, {}),
        (Conflict(), 409, {}),
        (LostLease(), 409, {}),
        (Unavailable(), 503, {"retry-after": "1"}),
        (StorageFull(), 507, {}),
        (Transient("busy", retry_after=7.2), 503, {"retry-after": "7"}),
        (Transient("busy"), 503, {"retry-after": "1"}),
    ],
)
def test_a_refusal_is_its_code_and_its_message(
    error: ClewError, status: int, headers: dict[str, str]
) -> None:
    answer = error_response(error)
    assert answer.status_code == status
    assert bytes(answer.body).decode() == f'{{"error":{{"code":"{error.code}","message":"{error}"}}}}'
    assert {name: value for name, value in answer.headers.items() if name == "retry-after"} == headers


def test_what_was_done_before_is_answered_as_before() -> None:
    answer = error_response(AlreadyDone({"id": "t1"}))
    assert (answer.status_code, bytes(answer.body)) == (200, b'{"id":"t1"}')


class Order(BaseModel):
    size: int = Field(ge=1)
    name: str


def failing() -> APIRouter:
    router = APIRouter()

    @router.post("/orders/{number}", dependencies=[needs("write")])
    async def order(number: int, body: Order, urgent: bool = False) -> None: ...

    @router.get("/field", dependencies=[needs("read")])
    async def field() -> None:
        raise Invalid("expected a name", field="name")

    @router.get("/framework", dependencies=[needs("read")])
    async def framework() -> None:
        raise HTTPException(418, "short and stout")

    @router.get("/bug", dependencies=[needs("read")])
    async def bug(word: str) -> None:
        raise RuntimeError(f"cannot cope with {word}")

    @router.get("/wrong-answer", dependencies=[needs("read")])
    async def wrong_answer() -> Order:
        return {"size": 0, "name": CANARY}  # type: ignore[return-value]

    return router


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/orders/x", {"size": 1, "name": "a"}, "number"),
        ("/orders/1?urgent=perhaps", {"size": 1, "name": "a"}, "urgent"),
        ("/orders/1", {"size": 0, "name": "a"}, "size"),
        ("/orders/1", {"size": 1}, "name"),
        ("/orders/1", {"size": 1, "name": [CANARY]}, "name"),
        ("/orders/1", [], "body"),
        ("/orders/1", None, "body"),
    ],
)
async def test_a_wrong_value_is_a_400_that_names_the_field(path: str, body: object, field: str) -> None:
    async with small_api(failing()) as api, client_of(api.http) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "INVALID"
    assert answer.json()["error"]["field"] == field
    assert CANARY not in answer.text


async def test_a_body_without_its_content_type_is_told_to_have_one() -> None:
    async with small_api(failing()) as api, client_of(api.http) as client:
        answer = await client.post("/orders/1", content='{"size": 1, "name": "a"}')
    assert answer.status_code == 400
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "NOT_FOUND"),
        ("GET", "/orders/1", 405, "METHOD_NOT_ALLOWED"),
        ("BREW", "/orders/1", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/framework", 418, "INVALID"),
        ("GET", "/field", 400, "INVALID"),
    ],
)
async def test_every_error_has_the_one_shape(method: str, path: str, status: int, code: str) -> None:
    async with small_api(failing()) as api, client_of(api.http) as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"]["code"] == code
    assert set(answer.json()["error"]) - {"field"} == {"code", "message"}
    assert answer.headers.get("allow") == ("POST" if status == 405 else None)


@pytest.mark.parametrize("path", [f"/bug?word={CANARY}", "/wrong-answer"])
async def test_a_bug_is_logged_once_and_told_to_nobody(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="clew")
    async with small_api(failing()) as api, client_of(api.http) as client:
        answer = await client.get(path)
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert error["code"] == "INTERNAL"
    assert answer.headers["x-request-id"] in error["message"]
    assert CANARY not in answer.text
    assert "Traceback" not in answer.text
    failures = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in failures] == ["a request failed"]


async def test_a_request_keeps_a_decent_id_and_loses_any_other() -> None:
    async with small_api() as api, client_of(api.http) as client:
        for given, kept in (("abc-123", True), ("a" * 65, False), ("a\tb", False), ("é", False), ("", False)):
            answer = await client.get("/", headers={b"X-Request-ID": given.encode()})
            assert (answer.headers["x-request-id"] == given) is kept


async def test_requests_are_counted_by_route_and_not_by_path() -> None:
    async with small_api(failing()) as api, client_of(api.http) as client:
        for number in range(3):
            await client.post(f"/orders/{number}", json={"size": 1, "name": CANARY})
            await client.get(f"/{CANARY}/{number}")
        await client.request("X" * 20, "/openapi.json")
        text = api.metrics.render().decode()
    assert 'clew_http_requests_total{method="POST",route="/orders/{number}",status="200"} 3.0' in text
    assert 'clew_http_requests_total{method="GET",route="none",status="404"} 3.0' in text
    assert 'clew_http_requests_total{method="OTHER",route="none",status="405"} 1.0' in text
    assert 'clew_http_request_seconds_count{method="POST",route="/orders/{number}"} 3.0' in text
    assert CANARY not in text


def test_the_table_has_no_error_twice() -> None:
    assert len(STATUS) == len({error.code for error in STATUS})


async def test_a_route_may_say_in_its_own_words_that_the_database_is_down() -> None:
    refusals: dict[str, ClewError] = {"down": Unavailable(), "full": StorageFull(), "hasty": TooMany()}
    router = APIRouter()

    @router.delete(
        "/things/{name}",
        dependencies=[needs("write", outage=lambda name: Internal(f"{name} is still there"))],
    )
    async def delete(name: str) -> None:
        raise refusals[name]

    async with small_api(router) as api, client_of(api.http) as client:
        down = await client.delete("/things/down")
        assert (down.status_code, down.json()["error"]["message"]) == (500, "down is still there")
        assert (await client.delete("/things/full")).status_code == 507
        assert (await client.delete("/things/hasty")).status_code == 429
