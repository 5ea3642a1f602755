"""docs/glossary.md: every exported name is in it, and every name in it exists in the source."""

import ast
import re
from pathlib import Path

import pytest

import clew

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text("utf-8")


def defined() -> set[str]:
    """Names of all classes and functions of the source."""
    return {
        node.name
        for path in (ROOT / "src" / "clew").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("name", clew.__all__)
def test_every_exported_name_is_in_the_glossary(name: str) -> None:
    assert re.search(rf"^\|.*`{name}`", PAGE, flags=re.MULTILINE)


def test_every_class_of_the_glossary_exists() -> None:
    columns = [row.split("|")[2] for row in PAGE.split("## Threads")[1].splitlines() if row.startswith("|")]
    named = {name for column in columns for name in re.findall(r"`([A-Z]\w+)(?:\.\w+)?`", column)}
    assert named
    assert sorted(named - defined()) == []
