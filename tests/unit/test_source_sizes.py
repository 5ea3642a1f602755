"""The source stays in pieces a reader can take in: limits on the size of modules, functions, ports and the domain."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "clew"


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a module with its number of lines."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize(("folder", "most"), [(SOURCE, 500), (SOURCE / "ports", 180)])
def test_a_module_is_short(folder: Path, most: int) -> None:
    found = {str(path.relative_to(SOURCE)): lines(path) for path in folder.rglob("*.py")}
    assert found
    assert {name: count for name, count in found.items() if count > most} == {}


def test_a_function_is_short() -> None:
    found = [(path.name, *function) for path in SOURCE.rglob("*.py") for function in functions(path)]
    assert found
    assert [one for one in found if one[2] > 80] == []


def test_the_domain_is_what_is_true_about_a_thread_and_nothing_else() -> None:
    modules = [path.stem for path in (SOURCE / "domain").glob("*.py") if path.stem != "__init__"]
    assert 0 < len(modules) <= 18, modules
