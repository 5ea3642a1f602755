"""Cells of tables: numbers and dates in any notation, and the kind of a column."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property

MAX_COLUMNS = 200
# The share of a column that must be numbers, or dates, for it to be one of numbers or dates.
ENOUGH = 0.9

# What stands beside the digits of a number.
NOISE = "[€$£¥₹%\\s\u00a0\u202f'’]|CHF|EUR|USD|GBP|JPY|CNY|RMB"  # noqa: RUF001
_NOISE = re.compile(NOISE, re.IGNORECASE)
_DIGITS = re.compile(r"[+-]?\d[\d.,]*")
_DECIMAL_COMMA = re.compile(r",\d{1,2}$|,\d{4,}$|\d\.\d{3},")
_DECIMAL_POINT = re.compile(r"\.\d{1,2}$|\.\d{4,}$|\d,\d{3}(\.|,|$)")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_DAY_FIRST = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y")
_DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y/%m/%d", "%Y-%m", *_DAY_FIRST, "%m/%d/%Y")
_SAMPLE = 200
# Languages that write 1,234.50; the others write 1.234,50, and French 1 234,50.
_POINTS = frozenset({"en", "zh"})


class ColumnKind(StrEnum):
    NUMBER = "number"
    DATE = "date"
    TEXT = "text"
    EMPTY = "empty"


@dataclass(frozen=True)
class Column:
    """A column, or a sample of it."""

    name: str
    cells: tuple[str, ...]

    @cached_property
    def filled(self) -> tuple[str, ...]:
        return tuple(cell for cell in self.cells if cell)

    @cached_property
    def decimal(self) -> str:
        comma = sum(bool(_DECIMAL_COMMA.search(cell)) for cell in self.filled)
        point = sum(bool(_DECIMAL_POINT.search(cell)) for cell in self.filled)
        return "," if comma > point else "."

    @cached_property
    def numbers(self) -> tuple[float | None, ...]:
        """One a row; None where there is none."""
        return tuple(to_number(cell, decimal=self.decimal) for cell in self.cells)

    @cached_property
    def notation(self) -> str:
        """The notation of dates that fits most cells."""
        sample = self.filled[:_SAMPLE]
        fits = {notation: sum(to_date(cell, notation) is not None for cell in sample) for notation in _DATES}
        return max(_DATES, key=lambda notation: fits[notation])

    @cached_property
    def dates(self) -> tuple[datetime | None, ...]:
        return tuple(to_date(cell, self.notation) if cell else None for cell in self.cells)

    @cached_property
    def kind(self) -> ColumnKind:
        if not self.filled:
            return ColumnKind.EMPTY
        enough = len(self.filled) * ENOUGH
        if sum(number is not None for number in self.numbers) >= enough:
            return ColumnKind.NUMBER
        return ColumnKind.DATE if sum(date is not None for date in self.dates) >= enough else ColumnKind.TEXT


def to_number(text: str, decimal: str = ".") -> float | None:
    """The number a cell shows, with its currency, its percent sign and whatever groups its thousands."""
    bare = _NOISE.sub("", text)
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


def to_date(cell: str, notation: str) -> datetime | None:
    try:
        return datetime.strptime(cell, notation)  # noqa: DTZ007 - a day in a table has no zone
    except ValueError:
        return None


def shown(number: float, language: str = "en") -> str:
    """`1,234.50` and `1,234`, in the notation of the language."""
    rounded = round(number, 2)
    text = f"{int(rounded):,}" if rounded == int(rounded) else f"{rounded:,.2f}"
    if language in _POINTS:
        return text
    thousands = "\u202f" if language == "fr" else "."
    return text.replace(",", "\0").replace(".", ",").replace("\0", thousands)


def unique_names(header: Sequence[str]) -> list[str]:
    """Names for columns: none is empty, and none is there twice."""
    names: list[str] = []
    for at, name in enumerate(header, 1):
        plain = " ".join(name.split())[:80] or f"column {at}"
        names.append(plain if plain not in names else f"{plain} ({at})")
    return names
