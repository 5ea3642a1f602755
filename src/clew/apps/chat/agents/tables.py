"""Tables as data: columns with a kind, numbers in any notation, rows grouped and added up."""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from io import StringIO
from statistics import fmean, median
from typing import TypeAlias

from clew.domain.errors import Permanent

Row: TypeAlias = Sequence[str | float | int]

MAX_ROWS = 200_000
MAX_COLUMNS = 200
# The share of a column that must be numbers, or dates, for it to be one of numbers or dates.
_ENOUGH = 0.9

_CURRENCY = re.compile(r"[€$£¥₹%\s\u00a0\u202f'’]|CHF|EUR|USD|GBP|JPY|CNY|RMB", re.IGNORECASE)  # noqa: RUF001
_DIGITS = re.compile(r"[+-]?\d[\d.,]*")
_DECIMAL_COMMA = re.compile(r",\d{1,2}$|,\d{4,}$|\d\.\d{3},")
_DECIMAL_POINT = re.compile(r"\.\d{1,2}$|\.\d{4,}$|\d,\d{3}(\.|,|$)")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_DAY_FIRST = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y")
_DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y/%m/%d", "%Y-%m", *_DAY_FIRST, "%m/%d/%Y")


class ColumnKind(StrEnum):
    NUMBER = "number"
    DATE = "date"
    TEXT = "text"
    EMPTY = "empty"


class How(StrEnum):
    """How the numbers of a group are combined."""

    SUM = "sum"
    MEAN = "mean"
    MEDIAN = "median"
    MIN = "min"
    MAX = "max"
    COUNT = "count"


_REDUCE: dict[How, Callable[[Sequence[float]], float]] = {
    How.SUM: sum,
    How.MEAN: fmean,
    How.MEDIAN: median,
    How.MIN: min,
    How.MAX: max,
    How.COUNT: len,
}


@dataclass(frozen=True)
class Column:
    name: str
    cells: tuple[str, ...]

    @cached_property
    def filled(self) -> tuple[str, ...]:
        return tuple(cell for cell in self.cells if cell)

    @cached_property
    def numbers(self) -> tuple[float | None, ...]:
        """One a row; None where there is none."""
        comma = sum(bool(_DECIMAL_COMMA.search(cell)) for cell in self.filled)
        point = sum(bool(_DECIMAL_POINT.search(cell)) for cell in self.filled)
        return tuple(to_number(cell, decimal="," if comma > point else ".") for cell in self.cells)

    @cached_property
    def dates(self) -> tuple[datetime | None, ...]:
        """One a row, all in the notation that fits most of them."""
        sample = self.filled[:200]
        fits = {notation: sum(_date(cell, notation) is not None for cell in sample) for notation in _DATES}
        best = max(_DATES, key=lambda notation: fits[notation])
        return tuple(_date(cell, best) if cell else None for cell in self.cells)

    @cached_property
    def kind(self) -> ColumnKind:
        if not self.filled:
            return ColumnKind.EMPTY
        enough = len(self.filled) * _ENOUGH
        if sum(number is not None for number in self.numbers) >= enough:
            return ColumnKind.NUMBER
        return ColumnKind.DATE if sum(date is not None for date in self.dates) >= enough else ColumnKind.TEXT

    @cached_property
    def distinct(self) -> int:
        return len(set(self.filled))

    @property
    def common(self) -> list[str]:
        return [cell for cell, _ in Counter(self.filled).most_common(3)]

    @property
    def known_numbers(self) -> list[float]:
        return [number for number in self.numbers if number is not None]


@dataclass(frozen=True)
class Table:
    label: str
    columns: tuple[Column, ...]

    @property
    def rows(self) -> int:
        return len(self.columns[0].cells)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise Permanent(f"the table {self.label} has no column {name!r}", "validation")


@dataclass(frozen=True, slots=True)
class Groups:
    """The aggregated table: one number per group, the groups in display order."""

    group: str
    measure: str | None
    how: How
    values: tuple[tuple[str, float], ...]
    is_over_time: bool = False


def read_table(label: str, text: str, delimiter: str = ",") -> Table | None:
    """The table a text is; None where there is nothing under its header, or no header."""
    rows = [row for row in _rows(text, delimiter) if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        return None
    width = min(MAX_COLUMNS, max(len(row) for row in rows[:100]))
    header, *body = [[cell.strip() for cell in [*row[:width], *[""] * (width - len(row))]] for row in rows]
    names = _unique(header)
    columns = tuple(Column(name, tuple(row[at] for row in body)) for at, name in enumerate(names))
    return Table(label, columns)


def group(table: Table, by: str, measure: str | None, how: How) -> Groups:
    """Add up one column by another, or count the rows. Raises Permanent for columns that are not there."""
    keys = table.column(by)
    is_over_time = keys.kind is ColumnKind.DATE
    names = _periods(keys.dates) if is_over_time else keys.cells
    numbers: Iterable[float | None] = [1.0] * table.rows
    if measure is not None and how is not How.COUNT:
        numbers = table.column(measure).numbers
    grouped: defaultdict[str, list[float]] = defaultdict(list)
    for name, number in zip(names, numbers, strict=True):
        if name and number is not None:
            grouped[name].append(number)
    values = [(name, float(_REDUCE[how](found))) for name, found in grouped.items()]
    is_ordered = is_over_time or keys.kind is ColumnKind.NUMBER
    values.sort(key=(lambda pair: _in_order(pair[0])) if is_ordered else (lambda pair: (-pair[1], pair[0])))
    return Groups(by, None if how is How.COUNT else measure, how, tuple(values), is_over_time)


def fold(groups: Groups, most: int, rest: str) -> Groups:
    """The largest groups and, where that makes sense, all others as one."""
    if len(groups.values) <= most or groups.is_over_time:
        return groups
    kept = groups.values[: most - 1]
    left = groups.values[most - 1 :]
    if groups.how in (How.SUM, How.COUNT):
        kept = (*kept, (rest, sum(value for _, value in left)))
    return Groups(groups.group, groups.measure, groups.how, kept, groups.is_over_time)


def to_number(text: str, decimal: str = ".") -> float | None:
    """The number a cell shows, with its currency, its percent sign and whatever groups its thousands."""
    bare = _CURRENCY.sub("", text)
    sign = 1
    if bare.startswith("(") and bare.endswith(")"):  # accounting notation for a negative number
        bare, sign = bare[1:-1], -1
    if not _DIGITS.fullmatch(bare) or _LEADING_ZERO.match(bare):
        return None
    thousands = "." if decimal == "," else ","
    bare = bare.replace(thousands, "").replace(decimal, ".")
    try:
        return sign * float(bare)
    except ValueError:
        return None


def shown(number: float) -> str:
    """`1234.5` and `1234`: a number as a person would write it down."""
    rounded = round(number, 2)
    return f"{int(rounded):,}" if rounded == int(rounded) else f"{rounded:,.2f}"


def _rows(text: str, delimiter: str) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        for row in csv.reader(StringIO(text, newline=""), delimiter=delimiter):
            rows.append(row)
            if len(rows) > MAX_ROWS:
                raise Permanent(
                    f"a table of more than {MAX_ROWS} rows is too much for one task", "validation"
                )
    except csv.Error as exc:
        if len(rows) < 2:
            raise Permanent(f"this is not a table: {exc}", "validation") from exc
    return rows


def _unique(header: Sequence[str]) -> list[str]:
    names: list[str] = []
    for at, name in enumerate(header, 1):
        plain = " ".join(name.split())[:80] or f"column {at}"
        names.append(plain if plain not in names else f"{plain} ({at})")
    return names


def _date(cell: str, notation: str) -> datetime | None:
    try:
        return datetime.strptime(cell, notation)  # noqa: DTZ007 - a day in a table has no zone
    except ValueError:
        return None


def _periods(dates: Sequence[datetime | None]) -> list[str]:
    """Days, months or years: as many groups as a chart can show."""
    known = [date for date in dates if date is not None]
    span = max(known) - min(known) if known else timedelta()
    notation = "%Y-%m-%d" if span <= timedelta(days=62) else "%Y-%m" if span <= timedelta(days=1900) else "%Y"
    return [date.strftime(notation) if date else "" for date in dates]


def _in_order(name: str) -> tuple[float, str]:
    number = to_number(name)
    return (number if number is not None else 0.0, name)
