"""Takes the pictures of the page for the README and the docs: `python -m tests.browser.screenshot FOLDER`."""

import re
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.browser import chromium
from tests.browser.samples import PROMPT, SALES, report
from tests.browser.visits import page_serving, visiting

SIZE: ViewportSize = {"width": 1200, "height": 1080}
LOW: ViewportSize = {"width": 1200, "height": 720}
OTHERS = (("agent", "tools: send_mail to=ann@example.com"), ("interview", "Our plan: more stores."))

# What shows that a view is there.
READY = {"Run": ".waterfall .bar", "Graph": ".graph-picture", "State": ".values pre"}
PLACES = {"Waiting for you": ".waiting", "Operate": ".figures"}


def main(images: Path) -> None:
    executable = chromium.find()
    if executable is None:
        sys.exit(chromium.MISSING)
    with TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "report.pdf").write_bytes(report())
        (folder / "sales.csv").write_bytes(SALES)
        browser = playwright.chromium.launch(executable_path=executable, args=list(chromium.FLAGS))
        with page_serving(folder) as server, visiting(browser, viewport=SIZE, device_scale_factor=2) as visit:
            visit.open(f"{server.address}/")
            for graph, prompt in OTHERS:
                visit.start(graph, prompt)
                visit.wait_for("blocked")
            visit.page.get_by_role("link", name="New thread").click()
            visit.page.locator(".composer").get_by_label("Graph").select_option("chat")
            visit.drop(folder / "report.pdf", folder / "sales.csv")
            visit.write(PROMPT)
            visit.page.get_by_role("button", name="Send").click()
            visit.wait_for("completed")
            visit.page.locator(".said.last .file").wait_for()
            visit.page.locator(".said.last").scroll_into_view_if_needed()
            save(visit.page, images / "dashboard.png")
            visit.page.set_viewport_size(LOW)
            for tab in ("Run", "Graph", "State"):
                visit.page.get_by_role("link", name=tab, exact=True).click()
                visit.page.locator(READY[tab]).first.wait_for()
                save(visit.page, images / f"dashboard-{tab.lower()}.png")
            for place, ready in PLACES.items():
                visit.page.get_by_role("link", name=re.compile(f"^{place}")).click()
                visit.page.locator(ready).first.wait_for()
                save(visit.page, images / f"dashboard-{place.split()[0].lower()}.png")
        browser.close()


def save(page: Page, target: Path) -> None:
    """With as many colours as the page needs, which is few: a sixth of the bytes."""
    page.mouse.move(0, 0)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
