"""The documentation as a site: it builds without a warning, has every page, and asks no other host for anything."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]


class Loaded(HTMLParser):
    """What a browser loads with a page, and what the page links to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") != "canonical":
            self.loads.append(given["href"])
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run([zensical, "build", "--strict"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), flags=re.MULTILINE))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["strict"] is True


def test_every_page_is_built_and_loads_nothing_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(list(ROOT.glob("docs/**/*.md")))
    for page in pages:
        assert not [url for url in Loaded(page).loads if urlsplit(url).netloc], page


def test_every_link_within_the_site_leads_to_a_file(site: Path) -> None:
    for page in site.rglob("*.html"):
        for link in Loaded(page).links:
            url = urlsplit(link)
            if page.name == "404.html" or url.scheme or url.netloc or not url.path:
                continue
            assert (page.parent / unquote(url.path)).exists(), (page, link)
