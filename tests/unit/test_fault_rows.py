"""tests/faults/rows.toml and the `fault` markers: every row has a test or says why not, every marker names a row."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.faults.report import Tally, Trials, lines, rows, upper_bound

ROOT = Path(__file__).parents[2]
FAMILIES = {"A": 12, "B": 11, "C": 12, "D": 5, "E": 8, "F": 12, "G": 11, "X": 5, "U": 3}
SPECIAL = {"test_fault_rows.py"}


@cache
def marked() -> dict[str, list[bool]]:
    """The ids of all markers, each with whether its test runs with every change."""
    found: dict[str, list[bool]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text("utf-8")
        if "mark.fault(" not in text or path.name in SPECIAL:
            continue
        tree = ast.parse(text)
        left_out = {
            inner
            for node in ast.walk(tree)
            if any(ast.unparse(one) == "pytest.mark.long" for one in getattr(node, "decorator_list", ()))
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                for argument in node.args:
                    found.setdefault(str(ast.literal_eval(argument)), []).append(node not in left_out)
    return found


def test_the_rows_are_all_there() -> None:
    assert list(rows()) == [f"{family}{n}" for family, count in FAMILIES.items() for n in range(1, count + 1)]


def test_the_rows_are_in_the_documentation() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    listed = re.findall(r"^\| ([A-Z]\d+) \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    assert listed == [(row.id, row.fault, row.holds) for row in rows().values()]


def test_every_row_has_a_test_or_says_why_not() -> None:
    assert [name for name, row in rows().items() if name not in marked() and not row.untested] == []


def test_every_marker_names_a_row() -> None:
    assert sorted(set(marked()) - set(rows())) == []


def test_a_row_of_every_change_is_shown_by_a_test_of_every_change() -> None:
    assert {row.tier for row in rows().values()} <= {"change", "night", "release"}
    assert [
        name
        for name, row in rows().items()
        if row.tier == "change" and not any(marked().get(name, ())) and not row.untested
    ] == []


@pytest.mark.parametrize(
    ("failures", "trials", "bound"),
    [(0, 0, 1.0), (0, 1000, 0.003), (0, 300, 0.00994), (1, 100, 0.0545), (10, 10, 1.0)],
)
def test_bounds(failures: int, trials: int, bound: float) -> None:
    assert upper_bound(failures, trials) == pytest.approx(bound, rel=0.02)


def test_trials_are_scaled_and_end_with_their_time() -> None:
    assert list(Trials(0.05).run(100)) == [0, 1, 2, 3, 4]
    assert list(Trials(0.001).run(100)) == [0]
    trials = Trials(1.0)
    assert list(trials.run(3)) == [0, 1, 2]
    assert trials.made == 3


def test_the_table_has_a_line_for_each_row_and_place() -> None:
    table = list(
        lines({("A1", "sqlite"): Tally(trials=1000), ("A1", "postgres"): Tally(trials=10, failures=1)})
    )
    first = [line.split()[:8] for line in table[1:3]]
    assert first[0][:7] == ["A1", "change", "postgres", "10", "1", "failed", "40.42%"]
    assert first[1][:6] == ["A1", "change", "sqlite", "1000", "held", "0.30%"]
    assert sum("not run" in line for line in table) == len(rows()) - 1
