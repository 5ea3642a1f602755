"""Takes the picture of the page for the README: `python -m tests.browser.screenshot FILE`."""

import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser import chromium
from tests.browser.samples import PROMPT, SALES, report
from tests.browser.visits import page_serving, visiting

SIZE = {"width": 1200, "height": 1080}
OTHERS = (("agent", "tools: send_mail to=ann@example.com"), ("interview", "Our plan: more stores."))


def main(target: Path) -> None:
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
            visit.page.get_by_label("Graph").select_option("chat")
            visit.drop(folder / "report.pdf", folder / "sales.csv")
            visit.write(PROMPT)
            visit.page.get_by_role("button", name="Send").click()
            visit.wait_for("completed")
            visit.page.locator(".said.last .file").wait_for()
            save(visit.page, target)
        browser.close()


def save(page: Page, target: Path) -> None:
    """With as many colours as the page needs, which is few: a sixth of the bytes."""
    page.locator(".said.last").scroll_into_view_if_needed()
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
