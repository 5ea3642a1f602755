"""The auth matrix: every route, with a project's own handlers in every mood, on both databases."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from clew.api.access import RouteRule, rules_of
from clew.api.ws import LATER
from clew.domain.errors import Invalid, NotFound
from clew.domain.events import Opening
from clew.domain.thread import Owner
from clew.ports.authorization import FilteredOwner, read_filter
from clew.server.app import Server
from tests.acceptance import auth_project
from tests.databases import SHARED, locate
from tests.http_client import client_of, new_key, opened_app
from tests.samples import new_id
from tests.serving import served
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

# What no handler of LangGraph's knows of: a caller needs to be authenticated, and sees its own.
APART = re.compile(r"/api/(files|histories|graphs|me)|/info|/openapi.json|/mcp")
NEVER = ("admin", "operator", "metrics")
PLACE = "00000000-0000-4000-8000-000000000000"
REFUSING = {"deny": 403, "assert": 403, "raise": 403, "odd filter": 403, "odd result": 403, "conflict": 409}


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@asynccontextmanager
async def opened(
    folder: Path, auth: str, *, where: str = "", seconds: float = 3, **more: Any
) -> AsyncGenerator[Server]:
    """The product with one of the project's Auth objects."""
    file = auth_project.__file__
    graphs = {name: f"{file}:{name}" for name in auth_project.GRAPHS}
    project = {"graphs": graphs, "auth": {"path": f"{file}:{auth}", **more}}
    (folder / "langgraph.json").write_text(json.dumps(project))
    environ = {
        "CLEW_AUTH_HANDLER_SECONDS": str(seconds),
        "CLEW_LIMITS_REQUESTS_PER_SECOND": "100000",
        "CLEW_LIMITS_WRONG_KEYS_PER_MINUTE": "100000",
    }
    if where:
        environ["CLEW_DATABASE_URL"] = where if where.startswith("postgres") else f"sqlite:///{where}"
    async with opened_app(folder, **environ) as app:
        yield app


@pytest.fixture
async def server(where: str, tmp_path: Path) -> AsyncGenerator[Server]:
    async with opened(tmp_path, "moody", where=where) as app:
        yield app


def guarded(server: Server) -> Iterator[tuple[str, str, RouteRule]]:
    """Every method of every route that is not public: a new route is among them by itself."""
    for rule in rules_of(server.http.routes):
        if rule.access.scope is None:
            continue
        for method in sorted(rule.methods):
            yield method, re.sub(r"\{[^}]*\}", PLACE, rule.path), rule


async def ask(client: httpx.AsyncClient, method: str, path: str, mood: str) -> httpx.Response:
    body: Any = {} if method in ("POST", "PUT", "PATCH") else None
    if path == "/runs/batch":
        body = [{}]
    query = {"namespace": "a", "key": "b"} if path == "/store/items" and method == "GET" else None
    return await client.request(method, path, json=body, params=query, headers={"x-mood": mood})


async def outcomes(
    server: Server, mood: str, key: str | None = None, *, at_once: int = 8
) -> dict[str, tuple[RouteRule, httpx.Response]]:
    turns = asyncio.Semaphore(at_once)
    async with client_of(server.http, key) as client:

        async def one(
            method: str, path: str, rule: RouteRule
        ) -> tuple[str, tuple[RouteRule, httpx.Response]]:
            async with turns:
                return f"{method} {rule.path}", (rule, await ask(client, method, path, mood))

        return dict(await asyncio.gather(*(one(*route) for route in guarded(server))))


@pytest.mark.fault("G1")
async def test_every_route_obeys_the_handlers(server: Server) -> None:
    for mood in ("allow", "filter"):
        for name, (rule, answer) in (await outcomes(server, mood)).items():
            is_never = rule.access.scope in NEVER
            assert (answer.status_code == 403) is is_never, (mood, name, answer.text)
            assert answer.status_code not in (401, 500, 503), (mood, name, answer.text)
    for mood, status in REFUSING.items():
        for name, (rule, answer) in (await outcomes(server, mood)).items():
            if rule.access.scope in NEVER:
                assert answer.status_code == 403, (mood, name)
            elif not APART.match(rule.path):
                assert answer.status_code == status, (mood, name, answer.text)
                assert "alice-token" not in answer.text
                assert ("x-why" in answer.headers) is (mood == "conflict"), (mood, name)


@pytest.mark.fault("G1")
async def test_every_route_obeys_the_authentication_handler(server: Server) -> None:
    statuses = {"refuses": 403, "fails": 401, "returns nothing": 401, "": 401}
    for mood, status in statuses.items():
        for name, (_, answer) in (await outcomes(server, mood)).items():
            assert answer.status_code == status, (mood, name, answer.text)
            assert "alice-token" not in answer.text
            assert ("x-why" in answer.headers) is (mood == "refuses"), (mood, name)


async def test_commands_of_the_thread_protocol_create_runs(server: Server) -> None:
    async with client_of(server.http) as client:

        async def command(mood: str, method: str, **params: Any) -> httpx.Response:
            body = {"id": 1, "method": method, "params": params}
            return await client.post(f"/threads/{PLACE}/commands", json=body, headers={"x-mood": mood})

        for method, status in {"run.start": 403, "input.respond": 403, "agent.getTree": 200}.items():
            assert (await command("no runs", method)).status_code == status, method
        started = (await command("tags runs", "run.start", assistant_id="who", input={"seen": []})).json()
        path = f"/threads/{PLACE}/runs/{started['result']['run_id']}"
        run = (await client.get(path, headers={"x-mood": "allow"})).json()
        assert run["kwargs"]["config"]["tags"] == ["tagged"]


async def test_a_slow_handler_is_bounded_and_blocks_no_other_request(server: Server) -> None:
    begun = time.monotonic()
    async with client_of(server.http) as client:
        for mood in ("hang", "hangs"):
            slow = asyncio.create_task(ask(client, "GET", "/api/workflows", mood))
            await asyncio.sleep(0)
            assert (await ask(client, "GET", "/api/workflows", "allow")).status_code == 200
            answer = await slow
            assert answer.status_code == 503
            assert "did not answer in time" in answer.text
    assert time.monotonic() - begun < 20


async def test_a_slow_authorization_handler_is_bounded_on_every_route(tmp_path: Path) -> None:
    async with opened(tmp_path, "moody", seconds=1) as server:
        for name, (rule, answer) in (await outcomes(server, "hang", at_once=40)).items():
            if rule.access.scope in NEVER:
                assert answer.status_code == 403, (name, answer.text)
            elif APART.match(rule.path):
                assert answer.status_code not in (500, 503), (name, answer.text)
            else:
                assert (answer.status_code, "did not answer in time" in answer.text) == (503, True), name


async def test_a_slow_authentication_handler_is_bounded_on_every_route_and_socket(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, "waiting", seconds=0.3) as server,
        served(server.http, server.stopping) as address,
    ):
        for name, (_, answer) in (await outcomes(server, "", "x", at_once=40)).items():
            assert answer.status_code == 503, (name, answer.text)
            assert "did not answer in time" in answer.text or name.startswith("HEAD"), (name, answer.text)
        for path in ("/ws/events", f"/threads/{PLACE}/stream/events"):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(f"ws://{address}{path}", additional_headers={"Authorization": "Bearer x"}):
                    pass
            assert refused.value.response.status_code == 503, path
        # A browser sends no header: its first message is the credential.
        async with connect(f"ws://{address}/ws/events") as socket:
            await socket.send(json.dumps({"type": "auth", "key": "x"}))
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == LATER


async def test_a_user_is_remembered_as_long_as_the_cache_says(tmp_path: Path) -> None:
    tokens = {name: f"Bearer {token}" for token, name in auth_project.TOKENS.items()}
    cache = {"cache_keys": ["Authorization"], "ttl_seconds": 60, "max_size": 1}

    async def count(client: httpx.AsyncClient, name: str) -> int:
        """How often the handler had been asked when it let this user in."""
        body = {"assistant_id": "who", "input": {"seen": []}}
        answer = await client.post("/runs/wait", json=body, headers={"Authorization": tokens[name]})
        (seen,) = answer.json()["seen"]
        assert seen["user"]["identity"] == name
        return int(seen["user"]["count"])

    async with opened(tmp_path, "counting", cache=cache) as server, client_of(server.http) as client:
        first = await count(client, "alice")
        assert await count(client, "alice") == first
        # The cache has room for one.
        assert await count(client, "bob") == first + 1
        assert await count(client, "alice") == first + 2
        for _ in range(2):  # a refusal is not remembered, and lets no other in
            for wrong in ("Bearer wrong", ""):
                answer = await client.get("/api/workflows", headers={"Authorization": wrong})
                assert answer.status_code == 401
        assert await count(client, "alice") == first + 2
        assert await count(client, "bob") == first + 7
    short = {**cache, "ttl_seconds": 0.2, "max_size": 10}
    async with opened(tmp_path, "counting", cache=short) as server, client_of(server.http) as client:
        first = await count(client, "alice")

        async def is_forgotten() -> bool:
            return await count(client, "alice") > first

        await until(is_forgotten)


async def test_a_key_of_ours_asks_no_handler(server: Server) -> None:
    key = await new_key(server.stores.keys, owner=Owner())
    for name, (_, answer) in (await outcomes(server, "deny", key)).items():
        assert answer.status_code not in (401, 403), (name, answer.text)


async def test_filters_find_in_sql_what_they_match_in_python(server: Server) -> None:
    described: list[dict[str, Any]] = [
        {"owner": "alice"},
        {"owner": "alice", "team": ["bob", "carol"], "org": {"name": "acme", "size": 3}},
        {"owner": 'al"ice', "team": ['x", "bob', "dave"]},
        {"owner": "Alice", "team": ["Bob"]},
        {"team": "bob"},
        {"owner": None, "team": []},
        {"owner": ["alice"]},
        {},
    ]
    filters: list[dict[str, Any]] = [
        {},
        {"owner": "alice"},
        {"owner": {"$eq": 'al"ice'}},
        {"owner": None},
        {"org": {"name": "acme"}},
        {"team": {"$contains": "bob"}},
        {"team": {"$contains": ["carol", "bob"]}},
        {"team": {"$contains": []}},
        {"owner": {"$contains": "alice"}},
        {"$or": [{"owner": "alice"}, {"team": {"$contains": "bob"}}]},
        {"$or": [{"owner": "Alice"}, {"$and": [{"owner": "alice"}, {"org": {"size": 3}}]}], "owner": "alice"},
    ]
    threads, store = {}, server.stores.threads
    for metadata in described:
        opening = Opening(owner=FilteredOwner(tenant="filters", metadata=metadata), graph="who")
        thread = await server.execution.commands.open_idle(new_id(), opening)
        assert thread.owner == Owner(tenant="filters")
        threads[thread.id] = metadata
    for given in filters:
        wanted = read_filter(given)
        owner = FilteredOwner(tenant="filters", threads=wanted)
        matching = {one for one, metadata in threads.items() if wanted.matches(metadata)}
        assert {one.id for one in await store.find(owner, limit=100)} == matching, given
        for one in threads:
            try:
                found = (await store.get(one, owner)).id
            except NotFound:
                found = ""
            assert bool(found) is (one in matching), (given, threads[one])
    assert await store.find(FilteredOwner(tenant="filters"), limit=100) == []
    unknown: list[dict[str, Any]] = [
        {"a": {"$gt": 1}},
        {"$or": [{}]},
        {"$not": {}},
        {"a": {"$eq": 1, "b": 2}},
    ]
    for odd in [*unknown, {"a": object()}]:
        with pytest.raises(Invalid):
            read_filter(odd)
