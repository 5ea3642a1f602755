"""`http` of a langgraph.json: the project's own web application and rules, with a real server and real clients."""

import json
import re
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from langgraph_sdk import get_client
from websockets.sync.client import connect

from clew.api.access import rules_of
from clew.api.disabled import is_disabled
from clew.config import load_settings
from clew.domain.errors import ConfigError
from tests.acceptance.web_project import write_project
from tests.http_client import client_of, new_key, opened_app
from tests.processes import ROOT, clew, one_line, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio

APP = "./webapp.py:app"
ORIGIN = "https://ui.example.com"
AUTH = """
from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def who(authorization: str | None):
    if authorization != "Bearer ann":
        raise Auth.exceptions.HTTPException(status_code=401, detail="who are you?")
    return {"identity": "ann", "permissions": ["sing"]}
"""
AGENT: Any = {"words": ["x"]}


async def ask(method: str, url: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(verify=False) as web:
        return await web.request(method, url, **options)


async def test_an_application_of_a_project_is_served_beside_clew(tmp_path: Path) -> None:
    rules = {"includes": ["x-*", "cookie*", "authorization"], "excludes": ["x-secret*"]}
    cors = {
        "allow_origins": [ORIGIN],
        "allow_headers": ["X-Org"],
        "expose_headers": ["X-Webapp"],
        "max_age": 7,
    }
    write_project(
        tmp_path,
        app=APP,
        cors=cors,
        configurable_headers=rules,
        logging_headers={"includes": ["x-org", "cookie"]},
    )
    with serving(tmp_path) as server:
        said = server.stdout.read_text()
        assert said.index("webapp has started") < said.index("address")
        assert "http.app replaces 1 of Clew's routes: GET /threads/{thread_id}/state" in server.log

        hello = server.get("/hello")
        assert hello.headers["x-webapp"] == "none"
        assert "content-security-policy" not in hello.headers
        assert hello.json() | {"thread": ""} == {"found": 1, "word": "shared", "thread": "", "url": "/hello"}
        assert server.get("/hello/").headers["location"].endswith("/hello")
        assert server.get(f"/threads/{hello.json()['thread']}").json()["status"] == "idle"
        assert server.get("/threads/x/state").json() == "mine"
        # As in LangGraph some routes cannot be replaced.
        assert server.get("/ok").json() == {"ok": True}
        assert server.get("/ok").headers["x-webapp"] == "none"
        assert server.get("/blocked").json() == {"blocked": True}
        assert server.get("/nothing").status_code == 404

        assert (server.get("/empty").status_code, server.get("/empty").json()) == (410, {"empty": True})
        assert (server.get("/teapot").status_code, server.get("/teapot").json()["detail"]) == (
            418,
            "short and stout",
        )
        failed = server.get("/fails")
        assert failed.status_code == 500
        assert "private" not in failed.text
        assert "Traceback" not in failed.text
        with connect(f"{server.address.replace('http', 'ws')}/echo") as socket:
            socket.send("word")
            assert socket.recv() == "word"

        described = server.get("/openapi.json").json()
        schema = described["paths"]["/fails"]["get"]["responses"]["200"]["content"]["application/json"][
            "schema"
        ]
        name = schema["$ref"].rpartition("/")[2]
        assert described["components"]["schemas"][name]["required"] == ["reason"]
        assert "/threads/search" in described["paths"]
        assert "/openapi.json" in server.get("/docs").text

        asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
        preflight = await ask(
            "OPTIONS",
            f"{server.address}/threads",
            headers={**asked, "Access-Control-Request-Headers": "x-org"},
        )
        assert (preflight.status_code, preflight.headers["access-control-max-age"]) == (200, "7")
        other = await ask(
            "OPTIONS", f"{server.address}/threads", headers={**asked, "Origin": "https://evil.example.com"}
        )
        assert "access-control-allow-origin" not in other.headers
        exposed = server.get("/ok", Origin=ORIGIN).headers["access-control-expose-headers"].split(", ")
        assert {"Content-Location", "Location", "X-Pagination-Next", "X-Webapp"} <= set(exposed)

        sent = {"X-Org": "acme", "X-Secret-Word": "s", "Cookie": "a=1", "X-Tenant-Id": "t", "X-Two": "2"}
        async with get_client(url=server.address, api_key=None, headers=sent) as client:
            thread = await client.threads.create()
            parts = [
                part
                async for part in client.runs.stream(
                    thread["thread_id"],
                    "agent",
                    input=AGENT,
                    stream_mode="values",
                    config={"configurable": {"x-two": "0"}},
                )
            ]
            last = [part.data for part in parts if part.event == "values"][-1]
            assert last == {"words": ["x", "first", "second"], "seen": {"x-org": "acme", "x-two": "2"}}

            # A workflow of Clew's own API finds them too: those of each round.
            at, given = f"{server.address}/api/workflows/start", {"graph": "agent", "input": AGENT}
            begun = await ask("POST", at, json=given, params={"wait": 30}, headers=sent)
            assert begun.json()["state"]["values"]["seen"] == {"x-org": "acme", "x-two": "2"}
            again = {"id": begun.json()["id"], "wait": 30}
            begun = await ask("POST", at, json=given, params=again, headers={"X-Org": "umbrella"})
            assert begun.json()["state"]["values"]["seen"] == {"x-org": "umbrella"}

            # A client that goes away is noticed through the project's middleware.
            waits: Any = {"words": ["wait"]}
            stream = client.runs.stream(thread["thread_id"], "agent", input=waits, on_disconnect="cancel")
            async for part in stream:
                if part.event == "values" and "first" in part.data.get("words", [])[-1:]:
                    break
            await cast(AsyncGenerator[Any], stream).aclose()

            async def is_cancelled() -> bool:
                return (await client.runs.list(thread["thread_id"]))[0]["status"] == "interrupted"

            await until(is_cancelled)
        assert '"headers": "x-org=acme"' in server.log
        assert "a=1" not in server.log

        server.signal(signal.SIGTERM)
        assert server.wait()[0] == 0
        assert "webapp has ended" in server.stdout.read_text()


async def test_a_prefix_is_before_all_routes_and_disabled_routes_are_gone(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        app=APP,
        mount_prefix="/agents/v1",
        disable_store=True,
        disable_mcp=True,
        disable_webhooks=True,
    )
    with serving(tmp_path) as server:
        assert server.address.endswith("/agents/v1")
        root = server.address.removesuffix("/agents/v1")
        for path in ("/", "/ok", "/health", "/ready"):
            assert (await ask("GET", root + path)).status_code == 200
        outside = await ask("GET", f"{root}/threads/search")
        assert (outside.status_code, "/agents/v1" in outside.text) == (404, True)
        assert (await ask("GET", server.address)).headers["location"] == "/agents/v1/"
        page = server.get("/", Accept="text/html")
        assert page.status_code == 200
        assert 'src="/' not in page.text
        assert server.get("/web/app.js").status_code == 200
        assert server.get("/hello").json()["url"] == "/agents/v1/hello"
        described = server.get("/openapi.json").json()
        assert described["servers"] == [{"url": "/agents/v1"}]
        assert not [path for path in described["paths"] if path.startswith(("/store", "/mcp"))]
        assert server.get("/store/items").status_code == 404
        assert (await ask("POST", f"{server.address}/mcp", json={})).status_code == 404

        async with get_client(url=server.address, api_key=None) as client:
            thread_id = (await client.threads.create())["thread_id"]
            started: Any = client.runs.stream(
                thread_id, "agent", input=AGENT, stream_mode="values", stream_resumable=True
            )
            parts = [part async for part in started]
            (run,) = await client.runs.list(thread_id)
            again: Any = client.runs.join_stream(thread_id, run["run_id"], last_event_id="0")
            joined = [part async for part in again]
            assert [part.data for part in joined if part.event == "values"] == [
                part.data for part in parts if part.event == "values"
            ]
            with pytest.raises(httpx.HTTPStatusError) as refused:
                await client.runs.create(thread_id, "agent", input=AGENT, webhook="https://example.com/hook")
            assert refused.value.response.status_code == 422
            # The Location is relative to the address of the client, as the SDK takes it.
            location = (
                await ask(
                    "POST", f"{server.address}/runs/wait", json={"assistant_id": "agent", "input": AGENT}
                )
            ).headers["location"]
            assert location.startswith("/threads/")


async def test_the_example_of_the_guide(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "howto" / "custom-routes.md").read_text("utf-8")
    (webapp,) = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    write_project(tmp_path, webapp=webapp, app=APP)
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        hello = await client.get("/hello")
        assert (hello.json(), hello.headers["x-served-by"]) == ({"text": "hello", "threads": 0}, "my-agent")


async def test_authentication_of_custom_routes_and_the_order_of_middleware(tmp_path: Path) -> None:
    write_project(tmp_path, app=APP, enable_custom_route_auth=True, middleware_order="auth_first")
    async with opened_app(tmp_path, CLEW_AUTH="keys") as app:
        key = await new_key(app.stores.keys)
        async with client_of(app.http) as stranger, client_of(app.http, key) as caller:
            for path in ("/hello", "/threads/search", "/blocked"):
                refused = await stranger.get(path)
                assert refused.status_code == 401
                assert "x-webapp" not in refused.headers
            me = await caller.get("/me")
            assert me.json()["permissions"] == sorted(me.json()["permissions"])
            assert me.headers["x-webapp"] == me.json()["identity"] != ""
            searched = await caller.post("/threads/search", json={})
            assert (searched.status_code, searched.headers["x-webapp"]) == (200, me.json()["identity"])
            # Its client acts for the caller, whose thread this is.
            thread_id = (await caller.get("/hello")).json()["thread"]
            assert (await caller.get(f"/threads/{thread_id}")).status_code == 200
            described = (await caller.get("/openapi.json")).json()
            assert described["paths"]["/hello"]["get"]["security"]

    (tmp_path / "auth.py").write_text(AUTH)
    project = json.loads((tmp_path / "langgraph.json").read_text())
    (tmp_path / "langgraph.json").write_text(json.dumps({**project, "auth": {"path": "./auth.py:auth"}}))
    async with (
        opened_app(tmp_path) as app,
        client_of(app.http) as stranger,
        client_of(app.http, "ann") as ann,
    ):
        assert (await stranger.get("/me")).status_code == 401
        assert (await ann.get("/me")).json() == {"identity": "ann", "permissions": ["sing"]}
        assert (await ann.get("/hello")).status_code == 200

    write_project(tmp_path, app=APP)
    async with opened_app(tmp_path, CLEW_AUTH="keys") as app, client_of(app.http) as stranger:
        assert (await stranger.get("/blocked")).status_code == 403
        refused = await stranger.post("/threads/search", json={})
        assert (refused.status_code, refused.headers["x-webapp"]) == (401, "none")
        assert (await stranger.get("/hello")).status_code == 200


RUNS = tuple(f"/threads/{{thread_id}}/{rest}" for rest in ("runs", "commands", "stream/events"))
OWN = ("/api/", "/ws/", "/web/", "/workflows/")
GONE = {
    "assistants": ("/assistants", "/api/graphs"),
    "threads": ("/threads", *OWN),
    "runs": ("/runs", *RUNS, "/v1/", "/agui", *OWN),
    "store": ("/store",),
    "mcp": ("/mcp",),
    "meta": ("/info", "/metrics", "/openapi.json"),
}


async def test_what_is_disabled_is_not_there(tmp_path: Path) -> None:
    write_project(tmp_path)
    async with opened_app(tmp_path) as app:
        paths = {rule.path for rule in rules_of(app.http.routes)}
    for word, begins in GONE.items():
        gone = {path for path in paths if is_disabled(path, {word})}
        expected = {path for path in paths if path.startswith(begins)}
        if word in ("threads", "runs"):
            expected |= {"/"}
            expected -= {path for path in paths if path.startswith(("/api/audit", "/api/optimize/cleanup"))}
        if word == "threads":
            expected -= {path for path in paths if path.startswith(RUNS)}
        assert gone == expected, word

    write_project(tmp_path, disable_assistants=True, disable_runs=True, disable_meta=True)
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        for path in (
            "/assistants/x",
            "/threads/x/runs",
            "/v1/models",
            "/info",
            "/openapi.json",
            "/api/threads",
            "/",
        ):
            assert (await client.get(path)).status_code == 404, path
        assert (await client.post("/api/workflows/start", json={"prompt": "x"})).status_code == 404
        assert (await client.post("/threads", json={})).status_code == 200
        assert (await client.get("/ok")).json() == {"ok": True}


BROKEN = {
    "no app": ("app = 3", "is no Starlette or FastAPI application but int"),
    "no attribute": ("other = 3", "./webapp.py:app: it has no 'app'"),
    "import": ("import nothing_like_it", "No module named 'nothing_like_it'"),
    "exit": ("raise SystemExit(3)", "SystemExit"),
    "middleware": (
        "from starlette.applications import Starlette\napp = Starlette()\napp.add_middleware(dict, 1, 2)",
        "its middleware cannot be made",
    ),
}


@pytest.mark.parametrize(("webapp", "reason"), BROKEN.values(), ids=BROKEN)
async def test_a_server_does_not_start_with_a_broken_application(
    tmp_path: Path, webapp: str, reason: str
) -> None:
    write_project(tmp_path, webapp=webapp, app=APP)
    with pytest.raises(ConfigError, match=re.escape(reason)) as refused:
        async with opened_app(tmp_path):
            pass
    assert "langgraph.json: http.app: " in str(refused.value)


def test_a_lifespan_that_fails_is_one_line(tmp_path: Path) -> None:
    webapp = (
        "from fastapi import FastAPI\n"
        "async def lifespan(app):\n    raise RuntimeError('no postgresql://me:hunter22@db')\n    yield\n"
        "app = FastAPI(lifespan=lifespan)\n"
    )
    write_project(tmp_path, webapp=webapp, app=APP)
    refused = clew(tmp_path, "serve", "--port", "0")
    assert refused.returncode != 0
    line = one_line(refused)
    assert "http.app: its lifespan failed: RuntimeError: no postgresql://" in line
    assert "hunter22" not in line


@pytest.mark.parametrize(
    ("http", "reason"),
    [
        ({"app": "./app.ts:app"}, "http.app: expected ./file.py:app"),
        ({"mount_prefix": "agents/"}, "http.mount_prefix: expected a path like /agents"),
        ({"middleware_order": "last"}, "http.middleware_order: expected auth_first or middleware_first"),
        ({"disable_store": "yes"}, "http.disable_store: expected true or false"),
        ({"cors": {"allow_origin": []}}, "http.cors.allow_origin: no such key; did you mean allow_origins?"),
        (
            {"cors": {"allow_origin_regex": "("}},
            "http.cors.allow_origin_regex: expected a regular expression",
        ),
        (
            {"configurable_headers": {"includes": "x"}},
            "configurable_headers.includes: expected a list of texts",
        ),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, http: dict[str, Any], reason: str) -> None:
    write_project(tmp_path, **http)
    with pytest.raises(ConfigError, match=re.escape(reason)):
        load_settings({}, cwd=tmp_path)


async def test_a_pattern_of_origins_and_our_own_setting_both_count(tmp_path: Path) -> None:
    cors = {"allow_origin_regex": r"https://.*\.example\.com"}
    write_project(tmp_path, cors=cors)
    async with (
        opened_app(tmp_path, CLEW_ALLOWED_ORIGINS="https://own.test") as app,
        client_of(app.http) as client,
    ):
        for origin, status in {ORIGIN: 200, "https://own.test": 200, "https://example.org": 403}.items():
            answer = await client.get("/info", headers={"Origin": origin})
            assert (answer.status_code, answer.headers.get("access-control-allow-origin") == origin) == (
                status,
                status == 200,
            )
