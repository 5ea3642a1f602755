"""How soon the page shows its list with 10,000 threads, of that with 10; how smoothly a long run scrolls.

Two servers, one with 10 threads and one with 10,000, are visited in turns by one Chromium, each time in a new context. A
visit is timed from the navigation to the first row of the list in the picture. The frames of a scroll through a run with
1,000 events are reported, not judged: they are the machine's.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser import chromium
from tests.browser.seeding import LONG
from tests.browser.visits import page_serving

COUNTS = (10, 10_000)
EVENTS = 1_000
GOAL = 1.5

# The time of the first frame after the first row is there.
SHOWN = """() => new Promise((resolve) => {
  const look = () => document.querySelector(".thread")
    ? requestAnimationFrame(() => resolve(performance.now()))
    : requestAnimationFrame(look);
  look();
})"""
SCROLL = """() => new Promise((resolve) => {
  const panel = document.querySelector(".panel");
  const frames = [];
  let last = performance.now();
  const step = (now) => {
    frames.push(now - last);
    last = now;
    panel.scrollTop += 60;
    frames.length < 240 ? requestAnimationFrame(step) : resolve(frames.slice(1));
  };
  requestAnimationFrame(step);
})"""


def main(visits: int) -> None:
    executable = chromium.find()
    if executable is None:
        sys.exit(chromium.MISSING)
    with ExitStack() as stack:
        servers = {}
        for count in COUNTS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            seed = [sys.executable, "-m", "tests.browser.seeding", str(folder), str(count), str(EVENTS)]
            subprocess.run(seed, check=True)
            servers[count] = stack.enter_context(page_serving(folder))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=executable, args=list(chromium.FLAGS))
        times: dict[int, list[float]] = {count: [] for count in COUNTS}
        for turn in range(visits + 1):
            for count in COUNTS if turn % 2 else reversed(COUNTS):
                shown = first_rows(browser, servers[count].address)
                if turn:  # the first visit of each warms the server up
                    times[count].append(shown)
        for count in COUNTS:
            print(f"{count:6} threads: first rows after {statistics.median(times[count]):.0f} ms")
        few, many = (times[count] for count in COUNTS)
        ratio = statistics.median(two / one for one, two in zip(few, many, strict=True))
        print(f"ratio {ratio:.2f}, goal {GOAL}")
        frames = sorted(scroll(browser, f"{servers[COUNTS[1]].address}/#/threads/{LONG}/run"))
        p50, p95 = (frames[int(share * (len(frames) - 1))] for share in (0.5, 0.95))
        print(
            f"scroll through {EVENTS} events: frames p50 {p50:.1f} ms, p95 {p95:.1f} ms, longest {frames[-1]:.1f} ms"
        )
        browser.close()


def first_rows(browser: Browser, address: str) -> float:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/", wait_until="commit")
    shown = float(page.evaluate(SHOWN))
    context.close()
    return shown


def scroll(browser: Browser, address: str) -> list[float]:
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.goto(address)
    page.locator(".span").first.wait_for()
    frames = [float(frame) for frame in page.evaluate(SCROLL)]
    page.close()
    return frames


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--visits", type=int, default=9)
    main(parser.parse_args().visits)
