"""The reference of events and of the Python API is what `tools/reference_pages.py` makes of the source now."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    made: dict[str, str] = runpy.run_path(str(ROOT / "tools" / "reference_pages.py"))["pages"]()
    return made


@pytest.mark.parametrize("name", ["events.md", "python.md"])
def test_the_page_is_of_the_source_as_it_is(pages: dict[str, str], name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text("utf-8")
    assert page == pages[name], "run `python tools/reference_pages.py`"


def test_every_exported_name_is_described(pages: dict[str, str]) -> None:
    sections = pages["python.md"].split("\n## ")[1:]
    assert [section.split("`")[1] for section in sections if "\n\n" not in section.strip()] == []
