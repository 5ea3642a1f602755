"""Takes the pictures of the page for the README and the docs: `python -m tests.browser.screenshot FOLDER`."""

import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.browser import chromium, demo
from tests.browser.samples import PROMPT, SALES, report
from tests.browser.visits import Visit, comes_to, start, visiting
from tests.processes import ROOT, Server, serving

SIZE: ViewportSize = {"width": 1280, "height": 860}
REFUND = "Refund for order {}: {}"
ENDED = (
    ("report", "Numbers of October for the board", "failed"),
    ("report", "Numbers of September for the board", "completed"),
    ("support", "Where is my order A-1039?", "completed"),
    ("support", "Is the oak shelf still available? Order A-1040", "completed"),
)


def main(images: Path) -> None:
    executable = chromium.find()
    if executable is None:
        sys.exit(chromium.MISSING)
    with TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "report.pdf").write_bytes(report())
        (folder / "sales.csv").write_bytes(SALES)
        (folder / "clew.yaml").write_text(demo.GRAPHS)
        browser = playwright.chromium.launch(executable_path=executable, args=list(chromium.FLAGS))
        with (
            serving(folder, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server,
            visiting(browser, viewport=SIZE, device_scale_factor=2) as visit,
        ):
            take(visit, server, folder, images)
        browser.close()


def take(visit: Visit, server: Server, folder: Path, images: Path) -> None:
    page = visit.page
    for graph, prompt, status in ENDED:
        comes_to(server, start(server, graph, prompt), status)
    paid = start(server, "support", REFUND.format("A-1043", "the lamp arrived broken"))
    comes_to(server, paid, "blocked")
    asked = start(server, "interview", "Our plan: open a third store in Bremen.")
    comes_to(server, asked, "blocked")
    waiting = start(server, "support", REFUND.format("A-1051", "the lamp flickers"))
    comes_to(server, waiting, "blocked")
    server.post(f"/api/workflows/{paid}/approve", {"feedback": "The photo shows it."}).raise_for_status()
    comes_to(server, paid, "completed")
    start(server, "report", "Numbers of November for the board")
    visit.open(f"{server.address}/")
    page.locator(".composer").get_by_label("Graph").select_option("chat")
    visit.drop(folder / "report.pdf", folder / "sales.csv")
    visit.write(PROMPT)
    page.get_by_role("button", name="Send").click()
    visit.wait_for("completed")
    page.locator(".said.last .file").wait_for()
    page.locator(".said img.preview").scroll_into_view_if_needed()
    save(page, images / "dashboard.png")

    def shown(place: str, ready: str) -> None:
        page.goto(f"{server.address}/#/{place}")
        page.locator(ready).first.wait_for()

    shown("waiting", ".waiting")
    page.locator("#main").focus()
    save(page, images / "dashboard-waiting.png")
    shown(f"threads/{paid}/run", ".waterfall .bar")
    save(page, images / "dashboard-run.png")
    shown(f"threads/{waiting}/graph", ".graph-picture")
    page.get_by_role("button", name="research").click()
    save(page, images / "dashboard-graph.png")
    shown(f"threads/{paid}/state", ".values pre")
    page.locator(".checkpoints button").nth(1).click()
    page.get_by_label("Compare with").select_option("3")
    page.locator(".difference").wait_for()
    save(page, images / "dashboard-state.png")
    shown("operate/storage", ".figures")
    save(page, images / "dashboard-operate.png")


def save(page: Page, target: Path) -> None:
    """With as many colours as the page needs, which is few: a sixth of the bytes."""
    page.mouse.move(0, 0)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
