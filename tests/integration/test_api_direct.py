"""The short way to an endpoint answers as the long one does; and which of two routes takes a request."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import pytest
from fastapi import APIRouter, Cookie, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import core_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from clew.api.access import needs
from clew.api.direct import direct
from clew.api.guard import Caller
from clew.api.routing import Router
from tests.http_client import client_of, small_api

pytestmark = pytest.mark.anyio

Name = Annotated[str, Path(max_length=256)]


def endpoint() -> Callable[..., Awaitable[Response]]:
    async def heard(
        request: Request,
        caller: Caller,
        name: Name,
        limit: Annotated[int, Query(ge=1, le=9)] = 3,
        from_id: Annotated[str | None, Query(alias="id", max_length=5)] = None,
    ) -> Response:
        return JSONResponse([name, limit, from_id, caller.tenant, request.method])

    return heard


def echo() -> APIRouter:
    router = Router()
    router.get("/long/{name}", dependencies=[needs("read")])(endpoint())
    router.get("/short/{name}", dependencies=[needs("read")])(direct(endpoint()))
    return router


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("x", 200),
        ("%C3%A9%20%2B", 200),
        ("%FF", 200),
        ("x?", 200),
        ("x?limit=5", 200),
        ("x?limit=+5", 200),
        ("x?limit=1&limit=2", 200),
        ("x?limit=2&limit=0", 400),
        ("x?limit=0", 400),
        ("x?limit=five", 400),
        ("x?limit=", 400),
        ("x?id=a%20b", 200),
        ("x?id=", 200),
        ("x?id=%FF", 200),
        ("x?id=abcdef", 400),
        ("x?other=1&from_id=2", 200),
        ("x?id=a&limit=7&limit", 400),
        ("x" * 256, 200),
        ("x" * 257, 400),
    ],
)
async def test_both_ways_lead_to_the_same_answer(address: str, status: int) -> None:
    async with small_api(echo()) as api, client_of(api.http) as client:
        long = await client.get(f"/long/{address}")
        short = await client.get(f"/short/{address}")
    assert (short.status_code, short.content) == (status, long.content)
    assert short.headers["content-type"] == long.headers["content-type"]


class Order(BaseModel):
    model_config = ConfigDict(frozen=True)

    number: Annotated[int, Field(le=9)] = 1
    words: list[str] = []


def ordering() -> APIRouter:
    def endpoint() -> Callable[..., Awaitable[Response]]:
        async def ordered(caller: Caller, name: Name, body: Order) -> Response:
            return JSONResponse([name, caller.tenant, body.model_dump()])

        return ordered

    router = Router()
    router.post("/long/{name}", dependencies=[needs("write")])(endpoint())
    router.post("/short/{name}", dependencies=[needs("write")])(direct(endpoint()))
    return router


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{}", 200),
        ('{"number": "7", "words": ["é"], "more": 1}', 200),
        ('{"number": 10}', 400),
        ("[1]", 400),
        ("null", 400),
        ("", 400),
        ("{", 400),
        ('{"words": ["a\\u0000b"]}', 200),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
async def test_both_ways_read_the_same_body(kind: str, body: str, status: int) -> None:
    async with small_api(ordering()) as api, client_of(api.http) as client:
        long, short = [
            await client.post(f"/{way}/x", content=body, headers={"content-type": kind})
            for way in ("long", "short")
        ]
    assert short.status_code == (status if kind == "application/json" else 400)
    assert (short.status_code, short.content) == (long.status_code, long.content)


async def test_an_endpoint_that_wants_something_else_is_not_called_directly() -> None:
    router = Router()

    with pytest.raises(TypeError, match="what is key"):

        @router.get("/short", dependencies=[needs("read")])
        @direct
        async def wants_a_cookie(caller: Caller, key: Annotated[str | None, Cookie()] = None) -> Response:
            raise NotImplementedError


async def test_a_route_is_made_by_its_first_request() -> None:
    made: list[str] = []

    class Word:
        @classmethod
        def __get_pydantic_core_schema__(cls, *_: object) -> core_schema.CoreSchema:
            made.append("word")
            return core_schema.str_schema()

    router = Router(prefix="/words")

    @router.post("/{word}", dependencies=[needs("write")], status_code=201)
    async def say(word: Annotated[Word, Path()]) -> str:
        return f"{word}!"

    async with small_api(router) as api, client_of(api.http) as client:
        assert made == []
        for word in ("one", "two"):
            answer = await client.post(f"/words/{word}")
            assert (answer.status_code, answer.json()) == (201, f"{word}!")
            assert made == ["word"]
        assert (await client.get("/openapi.json")).json()["paths"]["/words/{word}"]["post"][
            "operationId"
        ] == "say"
        assert (await client.get("/words/one")).status_code == 405


async def test_a_request_goes_to_the_first_route_that_takes_it() -> None:
    router = APIRouter()

    @router.get("/things/all", dependencies=[needs("read")])
    async def everything() -> str:
        return "all"

    @router.get("/things/{name}", dependencies=[needs("read")])
    async def one(name: str) -> str:
        return f"one: {name}"

    @router.delete("/things/{name}", dependencies=[needs("write")])
    async def delete(name: str) -> str:
        return f"deleted: {name}"

    async with small_api(router) as api, client_of(api.http) as client:
        assert (await client.get("/things/all")).json() == "all"
        assert (await client.get("/things/some")).json() == "one: some"
        assert (await client.delete("/things/all")).json() == "deleted: all"
        refused = await client.post("/things/all")
        assert (refused.status_code, refused.headers["allow"]) == (405, "DELETE, GET")
        assert (await client.get("/things/all/more")).status_code == 404
