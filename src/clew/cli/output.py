"""Output of commands: tables and sentences for people, JSON for programs, one line for an error."""

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePath
from traceback import extract_tb
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

# To this many characters a column may be cut.
_NARROWEST = 4


def say(line: str = "") -> None:
    typer.echo(printable(line))


def progress(line: str) -> None:
    """On a terminal, in the place of the line before; elsewhere nothing."""
    if sys.stderr.isatty():
        typer.echo(f"\r{printable(line)}\033[K", nl=False, err=True)


def say_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=True))


def say_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: Collection[str] = ("id",),
    short: Collection[str] = (),
) -> None:
    """On a narrow terminal cells of `short` columns are cut, those of `whole` columns never: a cut id is of no use."""
    console = Console()
    if not console.is_terminal:
        console.width = 240  # into a file or a pipe nothing is cut
    cells = [[printable(cell) for cell in row] for row in rows]
    if console.is_terminal:
        _fit(columns, cells, short, console.width)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in whole or column in short, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _fit(columns: Sequence[str], cells: list[list[str]], short: Collection[str], width: int) -> None:
    """Cut the cells of short columns, the widest first, while the table is wider than the terminal."""
    widths = [max([len(column), *(len(row[n]) for row in cells)]) for n, column in enumerate(columns)]
    cut = [n for n, column in enumerate(columns) if column in short]
    while cut and sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max(cut, key=lambda n: widths[n])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    for row in cells:
        for n in cut:
            if len(row[n]) > widths[n]:
                row[n] = row[n][: widths[n] - 1] + "…"


def complain(error: Exception) -> None:
    typer.echo(f"clew: {printable(str(error))}", err=True)


def complain_of_bug(error: Exception) -> None:
    """The place and the type of the error; its message may hold a secret."""
    place = next(
        (
            f"{PurePath(frame.filename).name}:{frame.lineno}"
            for frame in reversed(extract_tb(error.__traceback__))
        ),
        "?",
    )
    typer.echo(f"clew: unexpected {type(error).__name__} at {place}; this is a bug in Clew", err=True)


def printable(text: str) -> str:
    """The text without terminal control sequences: untrusted users may have written it."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
