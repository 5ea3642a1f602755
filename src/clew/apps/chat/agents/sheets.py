"""Workbooks: numbers as numbers, and text as text whatever it begins with."""

from collections.abc import Iterable, Sequence
from io import BytesIO

from openpyxl import Workbook
from openpyxl.cell import Cell
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from clew.apps.chat.agents.tables import Row

_MAX_WIDTH = 60
_CELL_CHARACTERS = 32_000


def workbook(sheets: Iterable[tuple[str, Sequence[Row]]]) -> bytes:
    """One sheet a name, its first row the header."""
    book = Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets:
        sheet: Worksheet = book.create_sheet(_sheet_name(name, book.sheetnames))
        for at, row in enumerate(rows, 1):
            for column, value in enumerate(row, 1):
                _fill(sheet.cell(at, column), value, is_header=at == 1)
        sheet.freeze_panes = "A2"
        for column, width in enumerate(_widths(rows), 1):
            sheet.column_dimensions[get_column_letter(column)].width = width
    out = BytesIO()
    book.save(out)
    return out.getvalue()


def _fill(cell: object, value: str | float | None, *, is_header: bool) -> None:
    if not isinstance(cell, Cell):
        return
    if isinstance(value, str):
        cell.value = _printable(value)
        # A text cell that begins with = would become a formula, and run in the program that opens the file.
        cell.data_type = "s"
    elif value is not None:
        cell.value = value
        cell.number_format = "#,##0" if value == int(value) else "#,##0.00"
    if is_header:
        cell.font = Font(bold=True)


def _printable(text: str) -> str:
    return "".join(c for c in text[:_CELL_CHARACTERS] if c >= " " or c in "\n\t")


def _sheet_name(name: str, taken: Sequence[str]) -> str:
    plain = "".join(" " if c in "[]:*?/\\'" else c for c in name).strip()[:28] or "Sheet"
    return plain if plain not in taken else f"{plain} {len(taken) + 1}"


def _widths(rows: Sequence[Row]) -> list[int]:
    columns = max((len(row) for row in rows), default=0)
    return [
        min(_MAX_WIDTH, 2 + max(len(str(row[at])) for row in rows[:200] if at < len(row)))
        for at in range(columns)
    ]
