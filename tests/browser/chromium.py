"""The machine's Chromium: found, or installed by `python -m tests.browser.chromium`, which `make test` runs first."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# What Playwright or puppeteer may have downloaded on a developer's machine.
CACHES = (
    ".cache/ms-playwright/chromium-*/chrome-linux*/chrome",
    ".cache/puppeteer/chrome/*/chrome-linux64/chrome",
    "Library/Caches/ms-playwright/chromium-*/chrome-mac*/Chromium.app/Contents/MacOS/Chromium",
)
# No sandbox: tests may run as root. No call home: every request a test sees is one of the page.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
MISSING = (
    "The browser tests need Chromium, and there is none: on Debian `apt-get install chromium`,"
    " elsewhere any Chrome or Chromium on the PATH."
)


def find() -> str | None:
    for name in NAMES:
        if path := shutil.which(name):
            return path
    return next((str(path) for cache in CACHES for path in sorted(Path.home().glob(cache))), None)


def install() -> str | None:
    """With apt-get, where we may. Returns why not, or None when it is there."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return "it cannot be installed from here"
    apt_get("update", "-qq")
    said = apt_get("install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core")
    return None if find() else (said.splitlines() or ["apt-get did not say why"])[-1]


def apt_get(*arguments: str) -> str:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}  # noqa: TID251 - a child's
    command = ["apt-get", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False).stderr.strip()


if __name__ == "__main__" and find() is None:
    print("Installing Chromium for the browser tests", flush=True)  # noqa: T201 - said by make
    if reason := install():
        # The tests say so again, each by its name.
        sys.stderr.write(f"{MISSING} ({reason})\n")
