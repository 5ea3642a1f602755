"""Tables in a task: the sources of queries, a table in pieces for other agents, and groups to draw."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, TypeAlias

from clew.apps.chat.agents.tasks import Part, tables
from clew.apps.chat.plan import TaskDocument
from clew.documents.tables.cells import MAX_COLUMNS, Column, unique_names
from clew.domain.errors import Permanent
from clew.texts.phrases import Text, say

if TYPE_CHECKING:
    from clew.documents.tables.database import TableSource

Row: TypeAlias = Sequence[str | float | int | None]

MAX_TABLES = 20
_PLACES = {"page": Text.PAGE, "slide": Text.SLIDE, "sheet": Text.SHEET}


@dataclass(frozen=True)
class Table:
    """The first rows of a table."""

    label: str
    columns: tuple[Column, ...]
    # How many rows the whole table has, of which these are the first.
    all_rows: int

    @property
    def rows(self) -> int:
        return len(self.columns[0].cells)


@dataclass(frozen=True, slots=True)
class Groups:
    """One number per group, the groups in display order."""

    group: str
    measure: str | None
    values: tuple[tuple[str, float], ...]
    is_over_time: bool = False


def sources(documents: Sequence[TaskDocument], language: str) -> "list[TableSource]":
    """Every table in the documents, each under a name that says where it stands."""
    from clew.documents.tables.database import TableSource  # noqa: PLC0415 - 65 MB; most tasks ask for no table

    parts = list(tables(documents))[:MAX_TABLES]
    named = [_place(part, language) for part in parts]
    several = Counter(named)
    labels: list[str] = []
    for part, name in zip(parts, named, strict=True):
        label = name if several[name] == 1 else f"{name}, {part.content['name']}"
        labels.append(label if label not in labels else f"{label} ({len(labels) + 1})")
    return [TableSource(label, part.text, part.delimiter) for label, part in zip(labels, parts, strict=True)]


def _place(part: Part, language: str) -> str:
    """`report.pdf, page 2`: the place that is shown for what is computed."""
    if part.place is None:
        return part.label
    kind, number = part.place
    if kind == "sheet" and part.content["metadata"].get("sheets") == 1:
        return part.label
    return f"{part.label}, {say(_PLACES[kind], language, number=number)}"


def read_table(label: str, text: str, delimiter: str = ",", *, most: int = 1_000) -> Table | None:
    """The first rows of the table a text is; None where there is nothing under its header, or no header."""
    rows: list[list[str]] = []
    count = 0
    try:
        for row in csv.reader(StringIO(text, newline=""), delimiter=delimiter):
            if any(cell.strip() for cell in row):
                count += 1
                if count <= most + 1:
                    rows.append(row)
    except csv.Error as exc:
        if len(rows) < 2:
            raise Permanent(f"this is not a table: {exc}", "validation") from exc
    if len(rows) < 2:
        return None
    width = min(MAX_COLUMNS, max(len(row) for row in rows[:100]))
    header, *body = [[cell.strip() for cell in [*row[:width], *[""] * (width - len(row))]] for row in rows]
    names = unique_names(header)
    columns = tuple(Column(name, tuple(row[at] for row in body)) for at, name in enumerate(names))
    return Table(label, columns, count - 1)


def fold(groups: Groups, most: int, rest: str, *, adds_up: bool) -> Groups:
    """The first groups and, where they add up, all others as one."""
    if len(groups.values) <= most or groups.is_over_time:
        return groups
    kept = groups.values[: most - 1]
    if adds_up:
        kept = (*kept, (rest, sum(value for _, value in groups.values[most - 1 :])))
    return Groups(groups.group, groups.measure, kept)
