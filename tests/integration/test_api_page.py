"""The page over HTTP: who gets it, what it may do, how it is cached, and nothing but its own files."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from clew.api.auth import Authenticator
from clew.api.page import NOT_INSTALLED, page_router
from clew.server.app import WEB
from clew.server.database import utc_now
from tests.http_client import client_of, new_key, opened_app, small_api

pytestmark = pytest.mark.anyio

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        yield client


async def test_a_browser_gets_the_page_and_a_program_the_index(client: httpx.AsyncClient) -> None:
    page = await client.get("/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    for accept in ("*/*", "application/json", ""):
        index = await client.get("/", headers={"Accept": accept})
        assert index.json()["name"] == "Clew", accept
        assert index.headers["vary"] == "Accept"


async def test_the_page_is_for_everybody_and_the_index_is_not(tmp_path: Path) -> None:
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        key = await new_key(app.stores.keys)
        blind = await new_key(app.stores.keys, scopes=frozenset({"write"}))
        assert (await client.get("/", headers=BROWSER)).status_code == 200
        assert (await client.get("/web/app.js")).status_code == 200
        assert (await client.get("/")).status_code == 401
        assert (await client.get("/", headers={"X-API-Key": blind})).status_code == 403
        assert (await client.get("/", headers={"X-API-Key": key})).status_code == 200


async def test_nothing_in_it_can_run_or_load_but_what_is_served_here(client: httpx.AsyncClient) -> None:
    for path in ("/", "/web/app.js", "/web/style.css", "/web/icon.svg", "/web/vendor/preact.mjs"):
        answer = await client.get(path, headers=BROWSER)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';"), path
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"


async def test_what_a_browser_has_is_asked_for_again_and_not_sent_again(client: httpx.AsyncClient) -> None:
    for path in ("/", "/web/app.js", "/web/vendor/htm.mjs"):
        first = await client.get(path, headers=BROWSER)
        assert first.headers["cache-control"] == "no-cache"
        known = first.headers["etag"]
        for tags in (known, f'"other", W/{known}'):
            again = await client.get(path, headers={**BROWSER, "If-None-Match": tags})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == known
        assert (await client.get(path, headers={**BROWSER, "If-None-Match": '"other"'})).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/web/nothing.js",
        "/web/vendor",
        "/web/vendor/versions.json",
        "/web/..%2fapp.py",
        "/web/%2e%2e%2fapp.py",
        "/web/vendor/..%2findex.html",
        "/web/vendor/../../app.py",
        "/web/",
    ],
)
async def test_nothing_else_is_reached(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_types_are_what_browsers_insist_on(client: httpx.AsyncClient) -> None:
    for path in sorted([*WEB.iterdir(), *(WEB / "vendor").glob("*.mjs")]):
        if path.is_file():
            answer = await client.get(f"/web/{path.relative_to(WEB)}")
            wanted = {".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}.get(
                path.suffix, "text/javascript"
            )
            assert answer.headers["content-type"].partition(";")[0] == wanted, path.name
            assert answer.content == path.read_bytes()


async def test_without_its_libraries_it_says_so_and_the_api_is_there(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    async with small_api() as api:
        authenticator = Authenticator(api.keys, clock=utc_now, open_locally=True)
        router = page_router(tmp_path, authenticator=authenticator, version="1")
        async with small_api(router) as bare, client_of(bare.http) as client:
            answer = await client.get("/", headers=BROWSER)
            assert (answer.status_code, answer.text) == (503, NOT_INSTALLED)
            assert (await client.get("/")).json()["version"] == "1"
