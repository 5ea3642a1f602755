"""Who may call what: every route of the app against every kind of credential."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, WebSocket
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from clew.api.access import PUBLIC, needs, rules_of
from clew.api.credentials import PRINCIPAL, Principal
from clew.api.sdk import streaming
from clew.domain.errors import Forbidden, Unauthenticated
from clew.domain.thread import Owner
from clew.server.app import Server
from clew.server.database import utc_now
from tests.http_client import ADDRESS, EVERYTHING, client_of, new_key, opened_app, small_api
from tests.samples import ANN, opened

pytestmark = pytest.mark.anyio

WORKFLOW = "/api/workflows/{workflow_id}"
ASSISTANT = "/assistants/{assistant_id}"
RUNS = "/threads/{thread_id}/runs"

# Ann's thread, and one that there is not. LangGraph's clients know no other ids than such.
HERS = "01a1e45e-c125-7785-96f2-67a94c6a3e31"
NONE = "01a1e45e-c125-7785-96f2-67a94c6a3e32"

# The scope each route asks for; None is for everybody. A route that is not here fails the tests below.
ROUTES: dict[tuple[str, str], str | None] = {
    # The page for a browser, and the files it is made of; a program that asks for the index needs a key.
    ("GET", "/"): "read",
    ("GET", "/web/{name}"): None,
    ("GET", "/web/vendor/{name}"): None,
    ("GET", "/web/samples/{name}"): None,
    ("GET", "/openapi.json"): "read",
    ("GET", "/health"): None,
    ("GET", "/ready"): None,
    ("GET", "/metrics"): "metrics",
    ("GET", "/api/threads"): "read",
    ("GET", "/api/threads/{thread_id}"): "read",
    ("GET", "/api/threads/{thread_id}/events"): "read",
    ("GET", "/api/threads/{thread_id}/model-calls"): "read",
    ("GET", "/api/threads/counts"): "read",
    ("GET", "/api/threads/search"): "read",
    ("GET", "/api/threads/usage"): "read",
    ("GET", "/api/usage"): "read",
    ("GET", "/api/threads/deleted"): "read",
    ("POST", "/api/threads/cleanup"): "admin",
    ("GET", "/api/threads/{thread_id}/export"): "read",
    ("DELETE", "/api/threads"): "admin",
    ("DELETE", "/api/threads/{thread_id}"): "write",
    ("POST", "/api/threads/{thread_id}/undelete"): "write",
    ("GET", "/api/histories/{key}"): "read",
    ("POST", "/api/histories/{key}/messages"): "write",
    ("DELETE", "/api/histories/{key}"): "write",
    ("DELETE", "/api/histories"): "admin",
    ("GET", "/api/audit"): "admin",
    ("GET", "/api/me"): "read",
    ("GET", "/api/keys"): "admin",
    ("POST", "/api/keys"): "admin",
    ("DELETE", "/api/keys/{key_id}"): "admin",
    ("GET", "/api/metrics/recent"): "metrics",
    ("GET", "/api/settings"): "operator",
    ("GET", "/api/queue"): "admin",
    ("POST", "/api/queue/{thread_id}/cancel"): "admin",
    ("POST", "/api/queue/{thread_id}/front"): "operator",
    ("GET", "/api/webhooks/failed"): "admin",
    ("POST", "/api/webhooks/{run_id}/retry"): "admin",
    ("DELETE", "/api/webhooks/{run_id}"): "admin",
    ("GET", "/api/workflows/{workflow_id}/diff"): "read",
    ("POST", "/api/optimize/start"): "write",
    ("GET", "/api/optimize/status/{thread_id}"): "read",
    ("POST", "/api/optimize/{thread_id}/answer"): "write",
    ("DELETE", "/api/optimize/{thread_id}"): "write",
    # They ask for a proof of their own, and are closed without one. See test_api_cleanup.py.
    ("GET", "/api/optimize/cleanup"): None,
    ("POST", "/api/optimize/cleanup"): None,
    ("GET", "/api/files"): "read",
    ("POST", "/api/files"): "write",
    ("GET", "/api/files/{file_id}"): "read",
    ("GET", "/api/files/{file_id}/content"): "read",
    ("DELETE", "/api/files/{file_id}"): "write",
    ("GET", "/api/graphs"): "read",
    ("GET", "/api/workflows"): "read",
    ("POST", "/api/workflows/start"): "write",
    ("POST", "/api/workflows/start-batch"): "write",
    ("GET", f"{WORKFLOW}"): "read",
    ("DELETE", f"{WORKFLOW}"): "write",
    ("GET", f"{WORKFLOW}/status"): "read",
    ("GET", f"{WORKFLOW}/state"): "read",
    ("GET", f"{WORKFLOW}/messages"): "read",
    ("DELETE", f"{WORKFLOW}/messages/{{message_id}}"): "write",
    ("DELETE", f"{WORKFLOW}/messages/{{message_id}}/files/{{file_id}}"): "write",
    ("GET", f"{WORKFLOW}/logs"): "read",
    ("GET", f"{WORKFLOW}/documents"): "read",
    ("GET", f"{WORKFLOW}/documents/{{document_id}}"): "read",
    ("GET", f"{WORKFLOW}/documents/{{document_id}}/contents"): "read",
    ("GET", f"{WORKFLOW}/events"): "read",
    ("POST", f"{WORKFLOW}/begin"): "write",
    ("POST", f"{WORKFLOW}/stop"): "write",
    ("POST", f"{WORKFLOW}/resume"): "write",
    ("POST", f"{WORKFLOW}/approve"): "approve",
    ("POST", f"{WORKFLOW}/reject"): "approve",
    ("POST", "/workflows/{workflow_id}/approve"): "approve",
    ("POST", "/workflows/{workflow_id}/reject"): "approve",
    ("GET", f"{WORKFLOW}/tool-calls"): "read",
    ("GET", f"{WORKFLOW}/tool-calls/{{call_id}}"): "read",
    ("POST", f"{WORKFLOW}/tool-calls/{{call_id}}/resolve"): "write",
    ("PUT", f"{WORKFLOW}/tool-calls/{{call_id}}/deadline"): "write",
    ("DELETE", f"{WORKFLOW}/tool-calls/{{call_id}}/deadline"): "write",
    # They ask for a proof of their own, and without a bot of that name there is none. See test_channels.py.
    ("POST", "/channels/telegram/{bot}"): None,
    ("POST", "/channels/wecom/{app}"): None,
    ("GET", "/channels/wecom/{app}"): None,
    # What LangGraph's own clients ask for.
    ("GET", "/v1/models"): "read",
    ("GET", "/v1/models/{model}"): "read",
    ("POST", "/v1/chat/completions"): "write",
    ("POST", "/mcp"): "read",
    ("POST", "/agui/{assistant}"): "write",
    ("GET", "/info"): "read",
    ("HEAD", "/info"): "read",
    ("GET", "/ok"): None,
    ("HEAD", "/ok"): None,
    ("POST", "/assistants"): "write",
    ("POST", "/assistants/search"): "read",
    ("POST", "/assistants/count"): "read",
    ("GET", f"{ASSISTANT}"): "read",
    ("PATCH", f"{ASSISTANT}"): "write",
    ("DELETE", f"{ASSISTANT}"): "write",
    ("POST", f"{ASSISTANT}/versions"): "read",
    ("POST", f"{ASSISTANT}/latest"): "write",
    ("GET", f"{ASSISTANT}/graph"): "read",
    ("GET", f"{ASSISTANT}/schemas"): "read",
    ("GET", f"{ASSISTANT}/subgraphs"): "read",
    ("GET", f"{ASSISTANT}/subgraphs/{{namespace}}"): "read",
    ("PUT", "/store/items"): "write",
    ("GET", "/store/items"): "read",
    ("DELETE", "/store/items"): "write",
    ("POST", "/store/items/search"): "read",
    ("POST", "/store/namespaces"): "read",
    ("POST", "/threads"): "write",
    ("POST", "/threads/search"): "read",
    ("POST", "/threads/count"): "read",
    ("POST", "/threads/prune"): "write",
    ("GET", "/threads/{thread_id}"): "read",
    ("PATCH", "/threads/{thread_id}"): "write",
    ("DELETE", "/threads/{thread_id}"): "write",
    ("POST", "/threads/{thread_id}/copy"): "write",
    ("GET", "/threads/{thread_id}/state"): "read",
    ("GET", "/threads/{thread_id}/state/{checkpoint_id}"): "read",
    ("POST", "/threads/{thread_id}/state/checkpoint"): "read",
    ("POST", "/threads/{thread_id}/state"): "write",
    ("GET", "/threads/{thread_id}/history"): "read",
    ("GET", "/threads/{thread_id}/storage"): "read",
    ("POST", "/threads/{thread_id}/history"): "read",
    ("GET", "/threads/{thread_id}/stream"): "read",
    ("POST", "/threads/{thread_id}/stream/events"): "read",
    ("WEBSOCKET", "/threads/{thread_id}/stream/events"): None,
    ("POST", "/threads/{thread_id}/commands"): "read",
    ("POST", f"{RUNS}"): "write",
    ("GET", f"{RUNS}"): "read",
    ("POST", f"{RUNS}/stream"): "write",
    ("POST", f"{RUNS}/wait"): "write",
    ("GET", f"{RUNS}/{{run_id}}"): "read",
    ("DELETE", f"{RUNS}/{{run_id}}"): "write",
    ("POST", f"{RUNS}/{{run_id}}/cancel"): "write",
    ("GET", f"{RUNS}/{{run_id}}/join"): "read",
    ("GET", f"{RUNS}/{{run_id}}/stream"): "read",
    ("POST", "/runs"): "write",
    ("POST", "/runs/stream"): "write",
    ("POST", "/runs/wait"): "write",
    ("POST", "/runs/batch"): "write",
    ("POST", "/runs/cancel"): "write",
    ("POST", "/runs/crons"): "write",
    ("POST", f"{RUNS}/crons"): "write",
    ("POST", "/runs/crons/search"): "read",
    ("POST", "/runs/crons/count"): "read",
    ("GET", "/runs/crons/{cron_id}"): "read",
    ("PATCH", "/runs/crons/{cron_id}"): "write",
    ("DELETE", "/runs/crons/{cron_id}"): "write",
    # It asks for a key itself: a browser can only send it once the socket is open. See test_ws.py.
    ("WEBSOCKET", "/ws/events"): None,
}
BODIES: dict[str, Any] = {
    "keys": {"name": "a key", "scopes": ["admin"]},
    "start": {"prompt": "hello"},
    "/api/optimize/start": {"text": "hello"},
    "start-batch": {"ids": [HERS]},
    "reject": {"feedback": "no"},
    "resolve": {"answer": 1},
    "answer": {"text": "yes"},
    "deadline": {"deadline": "2030-01-01T00:00:00Z"},
    "assistants": {"graph_id": "chat"},
    "search": {},
    "count": {},
    "versions": {},
    "latest": {"version": 1},
    "items": {"namespace": ["a"], "key": "k", "value": {}},
    "namespaces": {},
    "threads": {},
    "prune": {"thread_ids": []},
    "messages": {"content": "hello"},
    "checkpoint": {"checkpoint": {"checkpoint_id": NONE}},
    "state": {"values": {}},
    "history": {},
    "runs": {"assistant_id": "chat"},
    "stream": {"assistant_id": "chat"},
    "wait": {"assistant_id": "chat"},
    "batch": [],
    "completions": {"model": "none", "messages": [{"role": "user", "content": "hello"}]},
    "commands": {"id": 1, "method": "agent.getTree", "params": {}},
    "events": {"channels": ["values"]},
    "crons": {"assistant_id": "chat", "schedule": "0 0 29 2 *"},
    "cancel": {"thread_id": NONE, "status": "all"},
    "/agui/chat": {"threadId": NONE, "runId": "r", "messages": []},
    HERS: {},
    NONE: {},
}
# What a key does not open: a secret that is not set, a thread that waits for no answer, an upload of nothing.
CLOSED = {
    ("GET", "/api/optimize/cleanup"): {503},
    ("POST", "/api/optimize/cleanup"): {503},
    ("POST", "/api/optimize/{thread_id}/answer"): {400, 404},
    ("GET", "/api/workflows/{workflow_id}/diff"): {409},  # it has no plan
    ("POST", "/mcp"): {406},  # without saying which answers are accepted
    ("POST", "/api/files"): {400},  # without a form
    ("DELETE", "/api/threads"): {400},  # without saying whose
    ("GET", "/api/threads/search"): {400},  # without words
    ("POST", "/channels/telegram/{bot}"): {401},
    ("POST", "/channels/wecom/{app}"): {401},
    ("GET", "/channels/wecom/{app}"): {401},
    # Nothing was said under that key; and all of a tenant's are deleted only if that is said.
    ("GET", "/api/histories/{key}"): {404},
    ("DELETE", "/api/histories"): {200, 400},
    # Without what names an item, or says what to change.
    ("GET", "/store/items"): {422},
    ("DELETE", "/store/items"): {422},
    ("PATCH", "/assistants/{assistant_id}"): {422},
    ("PATCH", "/runs/crons/{cron_id}"): {422},
}
HTTP = [route for route in ROUTES if route[0] != "WEBSOCKET"]
TO_LOOK = [route for route in HTTP if route[0] in ("GET", "HEAD")]
TO_CHANGE = [route for route in HTTP if route not in TO_LOOK]
WITH_A_KEY = [route for route in HTTP if ROUTES[route] is not None]
OF_A_THREAD = [route for route in WITH_A_KEY if "{thread_id}" in route[1] or "{workflow_id}" in route[1]]


@pytest.fixture(scope="module", autouse=True)
def _quick_answers() -> Iterator[None]:
    """A request that waits for a run is answered with its first heartbeat."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "HEARTBEAT_SECONDS", 0.1)
        yield


@dataclass(frozen=True, slots=True)
class House:
    """The app with Ann's thread in it, and keys of every kind."""

    app: Server
    keys: dict[str, str]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    async with open_house(tmp_path) as house:
        yield house


@pytest.fixture(scope="module")
async def closed_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    """For those who are let in nowhere, or only look, and therefore leave it as it was."""
    async with open_house(tmp_path_factory.mktemp("house"), CLEW_LIMITS_WRONG_KEYS_PER_MINUTE="0") as house:
        yield house
        assert [thread.id for thread in await house.app.stores.threads.find(Owner(tenant=ANN.tenant))] == [
            HERS
        ]


@pytest.fixture(scope="module")
async def worn_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    """For those who are let in and do there whatever they may: what is left of the thread is nobody's concern."""
    async with open_house(tmp_path_factory.mktemp("house")) as house:
        yield house


@asynccontextmanager
async def open_house(folder: Path, **environ: str) -> AsyncGenerator[House]:
    async with opened_app(folder, **environ) as app:
        keys = app.stores.keys
        now = utc_now()
        made = {
            "good": await new_key(keys),
            "whole tenant": await new_key(keys, owner=Owner(tenant=ANN.tenant)),
            "expired": await new_key(keys, now=now - timedelta(days=2), lifetime=timedelta(days=1)),
            "revoked": await new_key(keys),
            "other tenant": await new_key(keys, owner=Owner(tenant="rival", user_id=ANN.user_id)),
            "other user": await new_key(keys, owner=Owner(tenant=ANN.tenant, user_id="bob")),
            **{f"all but {scope}": await new_key(keys, scopes=EVERYTHING - {scope}) for scope in EVERYTHING},
        }
        await keys.revoke(f"key_{made['revoked'].split('_')[1]}", now=now)
        await app.stores.threads.commit(opened(HERS))
        yield House(app, made)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    headers: frozenset[bytes]


def names(app: FastAPI) -> set[tuple[str, str]]:
    return {
        (method, rule.path) for rule in rules_of(app.routes) for method in (rule.methods or ["WEBSOCKET"])
    }


async def ask(
    house: House, route: tuple[str, str], thread_id: str = HERS, query: str = "", **headers: str
) -> Answer:
    """The answer as far as it goes: a stream of events is left once it has begun."""
    method, path = route
    name = "preact.mjs" if "vendor" in path else "sales.csv" if "samples" in path else "app.js"
    path = path.format(
        thread_id=thread_id,
        workflow_id=thread_id,
        call_id="c1",
        key="telegram:1",
        message_id="m1",
        document_id="d1",
        file_id="f1",
        key_id="key_none",
        name=name,
        bot="bot",
        app="app",
        assistant_id="chat",
        assistant="chat",
        model="chat",
        namespace="a",
        run_id=NONE,
        cron_id=NONE,
        checkpoint_id=NONE,
    )
    body = (
        json.dumps(BODIES.get(path) or BODIES.get(path.rpartition("/")[2])).encode()
        if method in ("POST", "PUT", "PATCH")
        else b""
    )
    shown = {"Host": "127.0.0.1", "Content-Type": "application/json", **headers}
    answered = asyncio.Event()
    status, sent, names, is_asked = 0, b"", frozenset[bytes](), False

    async def receive() -> Message:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            return {"type": "http.request", "body": body, "more_body": False}
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, sent, names
        if message["type"] == "http.response.start":
            status, names = message["status"], frozenset(name for name, _ in message["headers"])
        else:
            sent += message.get("body", b"")
            answered.set()

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in shown.items()],
    }
    await house.app.http(scope, receive, send)
    return Answer(status, sent.decode(errors="replace"), names)


@pytest.mark.fault("G1")
async def test_every_route_has_an_entry_in_the_table(house: House) -> None:
    assert names(house.app.http) == set(ROUTES)


async def test_the_public_routes_are_exactly_these() -> None:
    public = {path for (_, path), scope in ROUTES.items() if scope is None}
    assert public == {
        *("/health", "/ready", "/ok", "/api/optimize/cleanup"),
        *("/ws/events", "/threads/{thread_id}/stream/events"),  # sockets, which ask for a key themselves
        *("/web/{name}", "/web/vendor/{name}", "/web/samples/{name}"),
        *("/channels/telegram/{bot}", "/channels/wecom/{app}"),
    }


@pytest.mark.parametrize("route", TO_LOOK, ids=" ".join)
async def test_a_good_key_opens_every_route_to_look(closed_house: House, route: tuple[str, str]) -> None:
    await assert_open(closed_house, route)


@pytest.mark.parametrize("route", TO_CHANGE, ids=" ".join)
async def test_a_good_key_opens_every_route_to_change(house: House, route: tuple[str, str]) -> None:
    await assert_open(house, route)


async def assert_open(house: House, route: tuple[str, str]) -> None:
    """The door, that is: what is behind it may be missing, or not in the state for it."""
    named = ("{call_id}", "{document_id}", "{file_id}", "{run_id}", "{checkpoint_id}", "{cron_id}")
    is_there = not any(missing in route[1] for missing in named)
    opens = {200} if route[0] == "GET" and is_there else {200, 204, 404, 409}
    opens = CLOSED.get(route, opens)
    for name in ("good", "whole tenant"):
        assert (await ask(house, route, Authorization=f"Bearer {house.keys[name]}")).status in opens
        assert (await ask(house, route, **{"X-API-Key": house.keys[name]})).status in opens


@pytest.mark.fault("G1")
@pytest.mark.parametrize("route", WITH_A_KEY, ids=" ".join)
async def test_nothing_else_opens_a_route(closed_house: House, route: tuple[str, str]) -> None:
    good = closed_house.keys["good"]
    prefix, secret = good.rsplit("_", 1)
    refused: dict[str, dict[str, str]] = {
        "no key": {},
        "an empty one": {"Authorization": "Bearer "},
        "not a key": {"Authorization": "Bearer hello"},
        "a key nobody made": {"Authorization": f"Bearer {prefix}_{secret[::-1]}"},
        "in capitals": {"Authorization": f"Bearer {good.upper()}"},
        "with something behind it": {"Authorization": f"Bearer {good}x"},
        "only its hash": {"X-API-Key": "0" * 64},
        "revoked": {"Authorization": f"Bearer {closed_house.keys['revoked']}"},
        "expired": {"Authorization": f"Bearer {closed_house.keys['expired']}"},
        "as a password": {"Authorization": f"Basic {good}"},
        "without its scheme": {"Authorization": good},
        "in another header": {"Api-Key": good},
        "in a third header": {"X-Auth-Token": good},
        "in a cookie": {"Cookie": f"X-API-Key={good}; Authorization=Bearer {good}"},
        "two that differ": {
            "Authorization": f"Bearer {good}",
            "X-API-Key": closed_house.keys["whole tenant"],
        },
    }
    for name, headers in refused.items():
        assert (await ask(closed_house, route, **headers)).status == 401, name


@pytest.mark.fault("G1")
@pytest.mark.parametrize("route", WITH_A_KEY, ids=" ".join)
async def test_a_key_in_the_query_is_no_key(closed_house: House, route: tuple[str, str]) -> None:
    for name in ("key", "api_key", "apikey", "X-API-Key", "token", "access_token", "authorization"):
        assert (await ask(closed_house, route, query=f"{name}={closed_house.keys['good']}")).status == 401, (
            name
        )


@pytest.mark.fault("G1")
@pytest.mark.parametrize("route", WITH_A_KEY, ids=" ".join)
async def test_a_key_without_the_scope_is_forbidden(worn_house: House, route: tuple[str, str]) -> None:
    for scope in EVERYTHING:
        answer = await ask(worn_house, route, Authorization=f"Bearer {worn_house.keys[f'all but {scope}']}")
        assert (answer.status == 403) == (scope == ROUTES[route]), scope
        assert answer.status != 401


@pytest.mark.fault("G1", "G2")
@pytest.mark.parametrize("route", OF_A_THREAD, ids=" ".join)
async def test_another_owners_thread_is_one_that_does_not_exist(
    closed_house: House, route: tuple[str, str]
) -> None:
    for name in ("other tenant", "other user"):
        foreign = await ask(closed_house, route, HERS, Authorization=f"Bearer {closed_house.keys[name]}")
        missing = await ask(closed_house, route, NONE, Authorization=f"Bearer {closed_house.keys[name]}")
        # The thread protocol has its errors in a 200.
        assert foreign.status == missing.status == (200 if route[1].endswith("/commands") else 404)
        assert foreign.text.replace(HERS, NONE) == missing.text
        assert foreign.headers == missing.headers


async def test_a_stranger_does_not_learn_which_routes_there_are(house: House) -> None:
    for path in (
        "/api/threads",
        "/api/nothing",
        "/docs",
        "/redoc",
        "/.env",
        "/health/",
        "//health",
        "/health/../metrics",
    ):
        assert (await ask(house, ("GET", path))).status == 401, path
        assert (await ask(house, ("POST", path))).status == 401, path


async def test_framework_pages_are_not_served(house: House) -> None:
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect", "/api/threads/"):
        answer = await ask(house, ("GET", path), Authorization=f"Bearer {house.keys['good']}")
        assert answer.status in (401, 404), path


def undeclared() -> APIRouter:
    router = APIRouter()

    @router.get("/oops")
    async def oops() -> None: ...

    return router


def undeclared_websocket() -> APIRouter:
    router = APIRouter()

    @router.websocket("/oops")
    async def oops(websocket: WebSocket) -> None: ...

    return router


def mounted() -> APIRouter:
    router = APIRouter()
    router.mount("/oops", PlainTextResponse("files"))
    return router


@pytest.mark.parametrize("router", [undeclared, undeclared_websocket, mounted])
async def test_an_app_with_a_route_that_asks_for_nothing_does_not_start(router: Any) -> None:
    with pytest.raises(TypeError, match="/oops does not say who may call it"):
        async with small_api(router()):
            pass


def for_all_routes(outer: Any = None) -> APIRouter:
    """A router that states the scope for its routes, or is included by one that does."""
    inner = APIRouter(prefix="/inner", dependencies=[] if outer else [needs("write")])

    @inner.post("/note")
    async def note() -> str:
        return "noted"

    @inner.websocket("/ws")
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    if outer is None:
        return inner
    router = APIRouter()
    router.include_router(inner, dependencies=[outer])
    return router


@pytest.mark.parametrize("outer", [None, needs("write")])
async def test_a_router_may_state_the_scope_for_its_routes(outer: Any) -> None:
    async with small_api(for_all_routes(outer), open_locally=False) as api:
        reads = await new_key(api.keys, scopes=frozenset({"read"}))
        writes = await new_key(api.keys, scopes=frozenset({"write"}))
        for key, status, first in (
            (reads, 403, "websocket.http.response.start"),
            (writes, 200, "websocket.accept"),
        ):
            async with client_of(api.http, key) as client:
                assert (await client.post("/inner/note")).status_code == status
            said = await handshake(api.http, {"authorization": f"Bearer {key}"}, path="/inner/ws")
            assert said[0]["type"] == first


async def test_a_route_that_says_twice_who_may_call_it_does_not_start() -> None:
    router = APIRouter(dependencies=[needs("read")])

    @router.get("/twice", dependencies=[needs("admin")])
    async def twice() -> None: ...

    with pytest.raises(TypeError, match="/twice says more than once who may call it"):
        async with small_api(router):
            pass


@pytest.mark.parametrize(
    ("scopes", "error"), [(None, Unauthenticated), ({"read"}, Forbidden), ({"write"}, None)]
)
async def test_the_dependency_refuses_on_its_own(
    scopes: set[str] | None, error: type[Exception] | None
) -> None:
    """A route that is served without the guard, by mistake, still serves no one without the scope."""
    app = FastAPI()
    app.include_router(for_all_routes())

    async def unguarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scopes is not None:
            scope[PRINCIPAL] = Principal(tenant="a", user_id="", scopes=frozenset(scopes), key_id="k")
        await app(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(unguarded), base_url=ADDRESS) as client:
        with nullcontext() if error is None else pytest.raises(error):
            assert (await client.post("/inner/note")).json() == "noted"


async def test_a_route_added_behind_the_guards_back_is_not_reached() -> None:
    async with small_api() as api:

        @api.http.get("/late", dependencies=[PUBLIC])
        async def late() -> None: ...

        async with client_of(api.http) as client:
            assert (await client.get("/late")).status_code == 404


async def test_a_scope_nobody_knows_is_refused_when_declared() -> None:
    with pytest.raises(ValueError, match="no scope 'everything'"):
        needs("everything")


def talking() -> APIRouter:
    router = APIRouter()

    @router.websocket("/ws", dependencies=[needs("read")])
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    return router


async def handshake(
    app: FastAPI, headers: dict[str, str], *, modern: bool = True, path: str = "/ws"
) -> list[Message]:
    """What a server would be told to answer to a WebSocket's opening."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": path,
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}} if modern else {},
    }
    await app(scope, receive, send)
    return sent


async def test_a_websocket_passes_the_same_guard() -> None:
    async with small_api(talking(), open_locally=False) as api:
        key = await new_key(api.keys)
        blind = await new_key(api.keys, scopes=frozenset({"write"}))
        assert names(api.http) >= {("WEBSOCKET", "/ws")}
        refused: list[tuple[dict[str, str], int]] = [
            ({}, 401),
            ({"authorization": "Bearer nonsense"}, 401),
            ({"authorization": f"Bearer {blind}"}, 403),
            ({"authorization": f"Bearer {key}", "host": "clew", "origin": "http://evil.example"}, 403),
        ]
        for headers, status in refused:
            first = (await handshake(api.http, headers))[0]
            assert (first["type"], first["status"]) == ("websocket.http.response.start", status)
            closed = await handshake(api.http, headers, modern=False)
            assert [message["type"] for message in closed] == ["websocket.close"]
        for headers in (
            {"authorization": f"Bearer {key}"},
            {"x-api-key": key},
            {"authorization": f"Bearer {key}", "host": "clew:1", "origin": "http://clew:1"},
        ):
            assert (await handshake(api.http, headers))[0]["type"] == "websocket.accept"
        assert (await handshake(api.http, {"x-api-key": key}, path="/nothing"))[0]["status"] == 404
