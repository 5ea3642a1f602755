"""The example of a React page, in Chromium, on a server with the graph of the example beside it."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser import chromium
from tests.clients.node import installed
from tests.clients.test_browser import static
from tests.processes import ROOT, serving

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, built with the command of the example."""
    clients, folder = installed(), tmp_path_factory.mktemp("react") / "react"
    shutil.copytree(ROOT / "examples" / "react", folder)
    (folder / "node_modules").symlink_to(clients / "node_modules")
    built = subprocess.run(
        [
            str(next(clients.glob("node_modules/@esbuild/*/bin/esbuild"))),
            "page.jsx",
            "--bundle",
            "--jsx=automatic",
            "--outdir=.",
            "--preserve-symlinks",
            '--define:process.env.NODE_ENV="production"',
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not built.returncode, built.stderr
    with static(folder) as address:
        yield address


@pytest.fixture
def page() -> Iterator[Page]:
    path = chromium.find()
    if path is None:
        pytest.fail(chromium.MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        expect.set_options(timeout=30_000)
        yield browser.new_page()
        browser.close()


def test_a_refund_is_asked_for_reloaded_and_approved(site: str, page: Page, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "embedded", tmp_path / "embedded")
    with serving(tmp_path / "embedded", CLEW_ALLOWED_ORIGINS=site) as server:
        page.goto(f"{site}/?api={server.address}")
        page.get_by_label("Amount").fill("7")
        page.get_by_role("button", name="Ask for it").click()
        expect(page.get_by_text("Pay 7 back?")).to_be_visible()
        page.reload()
        expect(page.get_by_text("Pay 7 back?")).to_be_visible()
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("status")).to_have_text("Outcome: paid")
        expect(page.get_by_role("alert")).to_have_count(0)
