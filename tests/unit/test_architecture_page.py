"""docs/architecture.md names files and definitions that exist, and counts its hops right."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "clew"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py)`\s+`(\w+)`", PAGE)))
FILES = sorted(set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_definition_exists(path: str, name: str) -> None:
    text = (SOURCE / path).read_text("utf-8")
    assert re.search(rf"^ *(?:async )?(?:def|class) {name}\b", text, flags=re.MULTILINE), (
        f"{path} has no {name}"
    )


@pytest.mark.parametrize("path", FILES)
def test_a_named_file_exists(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists()


@pytest.mark.parametrize("walk", ["Start a workflow", "Stream a run", "Approve"])
def test_a_walk_has_as_many_hops_as_its_heading_says(walk: str) -> None:
    heading, text = PAGE.split(f"### {walk}: ")[1].split("\n", 1)
    hops = re.findall(r"^(\d+)\. ", text.split("\n##")[0], flags=re.MULTILINE)
    assert hops[-1] == re.findall(r"\d+(?= hops| until)", heading)[-1]
