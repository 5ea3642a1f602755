"""A visit to the page in a real browser, with everything it asked for and complained about on record."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from tests.app import graphs_yaml
from tests.processes import ROOT, Server, serving, until

# What a page shows soon may be late on a busy machine. Whoever waits for it waits no longer than it takes.
PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)

# The browser itself reports every request that fails; with the server killed, or a key missing, some must.
NETWORK = "Failed to load resource"

# What the page has in memory, and what Chromium's own PDF viewer is made of, is asked of no host.
WITHIN = ("blob", "chrome", "chrome-extension")

# Whatever the policy refuses is remembered by the page itself, from before its first script.
_LISTEN = """
  window.violations = [];
  addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""


@dataclass  # without slots: Playwright leaves a mark on whose methods it calls
class Visit:
    page: Page
    hosts: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    network: list[str] = field(default_factory=list)

    def note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            (self.network if message.text.startswith(NETWORK) else self.complaints).append(message.text)

    def follow(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in WITHIN:
            self.hosts.add(address.netloc)

    def open(self, address: str) -> None:
        self.page.goto(address)
        self.page.get_by_role("main").wait_for()

    def write(self, text: str) -> None:
        self.page.get_by_role("textbox", name="Describe the task").fill(text)

    def start(self, graph: str, text: str) -> None:
        """A new thread."""
        self.page.get_by_role("link", name="New thread").click()
        self.page.locator(".composer").get_by_label("Graph").select_option(graph)
        self.write(text)
        self.page.get_by_role("button", name="Send").click()
        self.page.locator(".said.user").wait_for()

    @property
    def id(self) -> str:
        return self.page.url.rpartition("/")[2]

    def wait_for(self, status: str) -> None:
        """With all that led to it on the page: the status of a thread is shown before its log has been read."""
        self.wait_for_status(status)
        self.page.locator('.reading[aria-busy="false"]').wait_for()

    def wait_for_status(self, status: str) -> None:
        self.page.locator(f".head .status.{status}").wait_for(timeout=2 * PATIENCE)

    def until(self, condition: Callable[[], bool]) -> None:
        """While we wait, what the page asks of us is answered."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            self.page.wait_for_timeout(20)

    def drop(self, *files: Path) -> None:
        """As if dragged from a folder onto the page."""
        given = [{"name": file.name, "bytes": list(file.read_bytes())} for file in files]
        transfer = self.page.evaluate_handle(
            """(files) => {
              const transfer = new DataTransfer();
              for (const { name, bytes } of files) transfer.items.add(new File([new Uint8Array(bytes)], name));
              return transfer;
            }""",
            given,
        )
        for name in ("dragenter", "dragover", "drop"):
            self.page.dispatch_event("main", name, {"dataTransfer": transfer})

    def check(self, server: Server, *, network: bool = False) -> None:
        """Nobody else was asked for anything, and nothing went wrong; `network`: but for requests that had to fail."""
        assert self.hosts == {urlsplit(server.address).netloc}
        assert self.complaints == []
        assert self.page.evaluate("window.violations") == []
        assert network or self.network == []


def start(server: Server, graph: str, prompt: str) -> str:
    """A thread that the page has not started. Returns its id."""
    answer = server.post("/api/workflows/start", {"graph": graph, "prompt": prompt})
    return str(answer.raise_for_status().json()["id"])


def comes_to(server: Server, thread: str, status: str) -> None:
    until(lambda: server.get(f"/api/threads/{thread}").json()["status"] == status)


@contextmanager
def visiting(browser: Browser, **options: Any) -> Iterator[Visit]:
    context = browser.new_context(accept_downloads=True, locale="en-GB", **options)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.add_init_script(_LISTEN)
    visit = Visit(page)
    page.on("console", visit.note)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("request", visit.follow)
    try:
        yield visit
    finally:
        context.close()


@contextmanager
def page_serving(folder: Path, more: str = "", *, port: int = 0, **environ: str) -> Iterator[Server]:
    """`clew serve` with the graphs of the tests and `more`, which takes up quickly what a killed one left."""
    (folder / "clew.yaml").write_text(graphs_yaml() + more)
    settings: dict[str, str] = {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CLEW_RUNNER_LEASE_SECONDS": "1",
        "CLEW_RUNNER_POLL_SECONDS": "0.1",
        **environ,
    }
    with serving(folder, port=port, **settings) as server:
        yield server
