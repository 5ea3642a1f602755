"""The page stays small: all that a browser loads, compressed as a proxy would."""

import gzip
from pathlib import Path

import pytest

import clew

WEB = Path(clew.__file__).parent / "web"
LOADED = {".html", ".css", ".js", ".mjs", ".svg"}
MOST = 200_000


def test_the_page_with_its_libraries_weighs_less_than_200_kb() -> None:
    if not (WEB / "vendor" / "versions.json").exists():
        pytest.fail("The page's libraries are not installed: make setup, or python tools/page_libraries.py")
    files = [path for path in WEB.rglob("*") if path.suffix in LOADED]
    assert len(files) > 30
    weight = sum(len(gzip.compress(path.read_bytes())) for path in files)
    assert weight < MOST, f"{weight} bytes"
