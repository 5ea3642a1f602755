"""`useStream` in Chromium, in a page of another origin than the server's: start, stream, reload, stop, answer."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.acceptance import door_graphs
from tests.acceptance.sdk import SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.browser import chromium
from tests.clients.node import installed, scripts
from tests.processes import until

pytestmark = pytest.mark.timeout(300)
SECONDS = 30.0
QUICK = {"CLEW_RUNNER_LEASE_SECONDS": "1", "CLEW_RUNNER_POLL_SECONDS": "0.05"}
HOOKS = ["@langchain/langgraph-sdk/react", "@langchain/react"]


@pytest.fixture(scope="module", params=HOOKS)
def pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page with this hook."""
    clients, folder = installed(), tmp_path_factory.mktemp("pages")
    with scripts(clients) as sources:
        bundled = subprocess.run(
            [
                str(next(clients.glob("node_modules/@esbuild/*/bin/esbuild"))),
                str(sources / "page.jsx"),
                "--bundle",
                "--jsx=automatic",
                f"--alias:stream-hook={request.param}",
                '--define:process.env.NODE_ENV="production"',
                f"--outfile={folder / 'page.js'}",
            ],
            cwd=sources,
            capture_output=True,
            text=True,
            check=False,
        )
    assert not bundled.returncode, bundled.stderr
    html = '<!doctype html><meta charset="utf-8"><div id="root"></div><script src="page.js"></script>'
    (folder / "index.html").write_text(html, "utf-8")
    with static(folder) as address:
        yield address


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def static(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def stage(
    pages: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with stage_on("sqlite", request, tmp_path_factory.mktemp("stage"), door_graphs, **QUICK) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage, pages: str) -> Iterator[SdkServer]:
    with stage.serving(CLEW_ALLOWED_ORIGINS=pages) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium.find()
    if path is None:
        pytest.fail(chromium.MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(SECONDS * 1000)
    expect.set_options(timeout=SECONDS * 1000)
    page = context.new_page()
    yield page
    context.close()


def visit(page: Page, pages: str, served: SdkServer, graph: str) -> None:
    given = {"api": served.server.address, "key": served.keys["ann"], "graph": graph}
    page.goto(f"{pages}/?{urlencode(given)}")


def press(page: Page, button: str, text: str = "") -> None:
    page.locator("input").fill(text)
    page.get_by_role("button", name=button).click()


def runs(page: Page, served: SdkServer) -> list[Any]:
    thread = str(page.evaluate("new URLSearchParams(location.search).get('thread')"))
    headers = {"X-Api-Key": served.keys["ann"]}
    answer = httpx.get(f"{served.server.address}/threads/{thread}/runs", headers=headers, timeout=SECONDS)
    found: list[Any] = answer.json()
    return found


def test_a_page_streams_is_loaded_again_and_rejoins(
    page: Page, pages: str, served: SdkServer, tmp_path: Path
) -> None:
    visit(page, pages, served, "held")
    press(page, "send", str(tmp_path / "go"))
    expect(page.locator("li").last).to_have_text("a slow ")
    expect(page.locator("p")).to_have_text("busy")
    page.reload()
    expect(page.locator("p")).to_have_text("busy")
    (tmp_path / "go").touch()
    expect(page.locator("li").last).to_have_text("a slow answer")
    expect(page.locator("p")).to_have_text("idle")
    expect(page.locator("li")).to_have_count(3)
    expect(page.locator("pre")).to_have_text("")
    assert [run["status"] for run in runs(page, served)] == ["success"]


def test_a_page_stops_its_run(page: Page, pages: str, served: SdkServer, tmp_path: Path) -> None:
    visit(page, pages, served, "held")
    press(page, "send", str(tmp_path / "go"))
    expect(page.locator("li").last).to_have_text("a slow ")
    press(page, "stop")
    expect(page.locator("p")).to_have_text("idle")
    until(lambda: [run["status"] for run in runs(page, served)] == ["interrupted"])


def test_a_page_shows_a_question_and_answers_it(page: Page, pages: str, served: SdkServer) -> None:
    visit(page, pages, served, "asker")
    press(page, "send", "hi")
    expect(page.locator("blockquote")).to_have_text('{"question":"Who are you?"}')
    press(page, "answer", "Ann")
    expect(page.locator("li").last).to_have_text("you are Ann")
    expect(page.locator("blockquote")).to_have_text("")


def test_a_page_rejoins_its_run_after_the_server_was_killed(
    page: Page, pages: str, stage: Stage, tmp_path: Path
) -> None:
    with stage.serving(CLEW_ALLOWED_ORIGINS=pages) as served:
        visit(page, pages, served, "held")
        press(page, "send", str(tmp_path / "go"))
        expect(page.locator("li").last).to_have_text("a slow ")
        served.server.signal(signal.SIGKILL)
        served.server.wait()
    with stage.serving("--port", str(served.server.port), CLEW_ALLOWED_ORIGINS=pages) as revived:
        page.reload()
        expect(page.locator("p")).to_have_text("busy")
        (tmp_path / "go").touch()
        expect(page.locator("li").last).to_have_text("a slow answer")
        expect(page.locator("p")).to_have_text("idle")
        expect(page.locator("li")).to_have_count(3)
        assert [run["status"] for run in runs(page, revived)] == ["success"]
