"""docs/acceptance.md and the `accept` markers: every behaviour is carried by a test, every marker names a behaviour."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "acceptance.md"


def listed() -> list[str]:
    return re.findall(r"^- \*\*(\d{3}-\d+)\*\* ", PAGE.read_text("utf-8"), flags=re.MULTILINE)


def marked(source: str) -> Iterator[str]:
    """The ids in `pytest.mark.accept(...)` anywhere in a module but on tests that `make test` leaves out."""
    tree = ast.parse(source)
    left_out = {
        inner
        for node in ast.walk(tree)
        if any(ast.unparse(one) == "pytest.mark.long" for one in getattr(node, "decorator_list", ()))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and node not in left_out
            and ast.unparse(node.func) == "pytest.mark.accept"
        ):
            yield from (str(ast.literal_eval(argument)) for argument in node.args)


def test_a_test_that_is_left_out_carries_nothing() -> None:
    source = "@pytest.mark.long\n@pytest.mark.accept('000-1')\ndef one(): ...\n@pytest.mark.accept('000-2')\ndef two(): ..."
    assert list(marked(source)) == ["000-2"]


@cache
def carried() -> set[str]:
    modules = (ROOT / "tests").rglob("*.py")
    return {one for module in modules for one in marked(module.read_text("utf-8"))}


def test_a_behaviour_is_listed_once() -> None:
    assert [one for one, count in Counter(listed()).items() if count > 1] == []


def test_the_seed_documents_have_199_behaviours() -> None:
    assert Counter(one[:3] for one in listed()) == {"000": 40, "001": 39, "002": 40, "003": 36, "004": 44}


def test_every_listed_behaviour_is_carried_by_a_test() -> None:
    assert sorted(set(listed()) - carried()) == []


def test_every_marker_names_a_listed_behaviour() -> None:
    assert sorted(carried() - set(listed())) == []
