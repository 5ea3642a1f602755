"""Output of commands: tables and sentences for people, JSON for programs, one line for an error."""

import json
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from traceback import extract_tb
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def say(line: str = "") -> None:
    typer.echo(printable(line))


def say_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=True))


def say_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = 240  # into a file or a pipe nothing is cut
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)


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
