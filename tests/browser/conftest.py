"""One server for the tests of a process, one browser for a module, a visit for each test."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import chromium
from tests.browser.samples import SALES
from tests.browser.samples import report as report_pdf
from tests.browser.visits import Visit, page_serving, visiting
from tests.processes import ROOT, Server

LIBRARIES = ROOT / "src" / "clew" / "web" / "vendor" / "versions.json"


# Not for the session: while it is open Playwright has an event loop in this thread, and async tests cannot have theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not LIBRARIES.exists():
        pytest.fail("The page's libraries are not installed: make setup, or python tools/page_libraries.py")
    path = chromium.find()
    if path is None:
        pytest.fail(chromium.MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with page_serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with 5,000 threads that ended, and one whose round has 1,000 events."""
    base = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have their folders beside each other. The first that gets here writes the threads.
    shared = base.parent if hasattr(request.config, "workerinput") else base
    with (shared / "crowded.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "crowd").exists():
            made = tmp_path_factory.mktemp("crowd")
            # In a process of its own: Playwright has an event loop in this thread.
            command = [sys.executable, "-m", "tests.browser.seeding", str(made), "5000", "1000"]
            subprocess.run(command, cwd=ROOT, check=True)
            made.rename(shared / "crowd")
    folder = tmp_path_factory.mktemp("crowded")
    shutil.copytree(shared / "crowd", folder, dirs_exist_ok=True)
    with page_serving(folder, CLEW_CLEANUP_CRON_SECRET="hush-hush") as server:
        yield server


@pytest.fixture
def visit(browser: Browser, server: Server) -> Iterator[Visit]:
    with visiting(browser) as visit:
        visit.open(f"{server.address}/")
        yield visit


@pytest.fixture
def report_and_sales(tmp_path: Path) -> tuple[Path, Path]:
    """A PDF to sum up and a table to chart."""
    report, sales = tmp_path / "report.pdf", tmp_path / "sales.csv"
    report.write_bytes(report_pdf())
    sales.write_bytes(SALES)
    return report, sales
