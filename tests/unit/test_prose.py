"""Plain English in the docs and on the page, and one name per class in the source."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Name the actor instead: the client, the caller, the worker, the run, you.
VAGUE = re.compile(r"\b(whoever|somebody|nobody|shall|until\s+now)\b", re.IGNORECASE)

# Files whose prose is checked. The source joins with one more line: "src/**/*.py".
CHECKED = (
    "docs/**/*.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "src/clew/web/*.js",
    "src/clew/web/*.html",
    "src/**/*.py",
)


def vague_words(text: str) -> list[tuple[int, str]]:
    """Line and word of each vague word in a text."""
    return [(text.count("\n", 0, found.start()) + 1, found.group()) for found in VAGUE.finditer(text)]


def test_a_vague_word_is_found_with_its_line() -> None:
    text = "one line\nWhoever asks\nuntil\nnow; a marshalled nobody's\n"
    assert vague_words(text) == [(2, "Whoever"), (3, "until\nnow"), (4, "nobody")]


@pytest.mark.parametrize("pattern", CHECKED)
def test_prose_names_the_actor(pattern: str) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files, f"no file matches {pattern}"
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}"
        for path in files
        for line, word in vague_words(path.read_text("utf-8"))
    ]
    assert not found, "name the actor and say what happens:\n" + "\n".join(found)


def class_names(folder: Path) -> Counter[str]:
    """Names of all classes at the top of a module."""
    return Counter(
        node.name
        for path in folder.rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    )


def test_no_two_classes_of_the_source_share_a_name() -> None:
    names = class_names(ROOT / "src" / "clew")
    assert sorted(name for name, count in names.items() if count > 1) == []
