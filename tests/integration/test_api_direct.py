"""The short way to an endpoint answers as the long one does; and which of two routes takes a request."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import pytest
from fastapi import APIRouter, Header, Path, Query
from starlette.requests import Request

from clew.api.access import needs
from clew.api.direct import direct
from clew.api.guard import Caller
from clew.api.schemas import Wire
from tests.doors import client_of, small_api

pytestmark = pytest.mark.anyio

Name = Annotated[str, Path(max_length=256)]


class Heard(Wire):
    the_name: str
    the_limit: int
    from_id: str | None
    tenant: str
    method: str


def endpoint() -> Callable[..., Awaitable[Heard]]:
    async def heard(
        request: Request,
        caller: Caller,
        name: Name,
        limit: Annotated[int, Query(ge=1, le=9)] = 3,
        from_id: Annotated[str | None, Query(alias="id", max_length=5)] = None,
    ) -> Heard:
        return Heard(
            the_name=name, the_limit=limit, from_id=from_id, tenant=caller.tenant, method=request.method
        )

    return heard


def echo() -> APIRouter:
    router = APIRouter()
    router.get("/long/{name}")(needs("read")(endpoint()))
    router.get("/short/{name}")(needs("read")(direct(endpoint())))
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


async def test_an_endpoint_that_wants_more_than_the_address_is_not_called_directly() -> None:
    router = APIRouter()

    @router.get("/short")
    @needs("read")
    @direct
    async def wants_a_header(caller: Caller, key: Annotated[str | None, Header()] = None) -> Heard:
        raise NotImplementedError

    with pytest.raises(TypeError, match="key is not in the address"):
        async with small_api(router):
            pass


async def test_a_request_goes_to_the_first_route_that_takes_it() -> None:
    router = APIRouter()

    @router.get("/things/all")
    @needs("read")
    async def everything() -> str:
        return "all"

    @router.get("/things/{name}")
    @needs("read")
    async def one(name: str) -> str:
        return f"one: {name}"

    @router.delete("/things/{name}")
    @needs("write")
    async def delete(name: str) -> str:
        return f"deleted: {name}"

    async with small_api(router) as api, client_of(api.http) as client:
        assert (await client.get("/things/all")).json() == "all"
        assert (await client.get("/things/some")).json() == "one: some"
        assert (await client.delete("/things/all")).json() == "deleted: all"
        refused = await client.post("/things/all")
        assert (refused.status_code, refused.headers["allow"]) == (405, "DELETE, GET")
        assert (await client.get("/things/all/more")).status_code == 404
