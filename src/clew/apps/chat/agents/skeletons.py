"""Code skeletons written by rules: they read the data, quote the request, and leave the logic open."""

import re

from clew.apps.chat.agents.tables import Table
from clew.documents.tables.cells import ColumnKind
from clew.domain.documents import split_name

_COMMENTS = {
    "sql": "--",
    "lua": "--",
    "js": "//",
    "ts": "//",
    "java": "//",
    "c": "//",
    "cpp": "//",
    "go": "//",
    "rs": "//",
}
_PYTHON_TYPES = {
    ColumnKind.NUMBER: "float",
    ColumnKind.DATE: "str",
    ColumnKind.TEXT: "str",
    ColumnKind.EMPTY: "str",
}
_SQL_TYPES = {
    ColumnKind.NUMBER: "NUMERIC",
    ColumnKind.DATE: "DATE",
    ColumnKind.TEXT: "TEXT",
    ColumnKind.EMPTY: "TEXT",
}


# How a column becomes one number, in Python.
SUMS = {"sum": "sum(values)", "mean": "sum(values) / len(values)", "max": "max(values)", "min": "min(values)"}


def skeleton(label: str, request: str, table: Table | None, wish: tuple[str, str] | None = None) -> str:
    """`wish` is what to compute: how, and of which column."""
    _, extension = split_name(label)
    match extension:
        case "py":
            return _python(request, table, wish)
        case "sql":
            return _sql(request, table)
        case "json":
            return "{}\n"
        case "sh" | "bash":
            return f"#!/usr/bin/env bash\n{_commented(request, '#')}\nset -euo pipefail\n"
        case "html" | "htm" | "xml":
            return f"<!-- {' '.join(request.split()).replace('--', '- -')} -->\n"
        case _:
            return f"{_commented(request, _COMMENTS.get(extension, '#'))}\n"


def _python(request: str, table: Table | None, wish: tuple[str, str] | None) -> str:
    said = _commented(request, "#")
    if table is None:
        return f'{said}\n\n\ndef main() -> None:\n    raise NotImplementedError\n\n\nif __name__ == "__main__":\n    main()\n'
    fields = [(column, _identifier(column.name, at)) for at, column in enumerate(table.columns, 1)]
    declared = "\n".join(f"    {name}: {_PYTHON_TYPES[column.kind]}" for column, name in fields)
    read = "\n".join(
        f"                {name}={_reader(column.kind)}(row[{column.name!r}])," for column, name in fields
    )
    computed = 'print(f"{len(rows)} rows")'
    if wish is not None:
        field = next(name for column, name in fields if column.name == wish[1])
        computed = f"values = [row.{field} for row in rows]\n    print({SUMS[wish[0]]})"
    return f"""{said}

import csv
import sys
from dataclasses import dataclass


@dataclass
class Row:
{declared}


def number(text: str) -> float:
    return float(text.replace(",", "") or 0)


def read(path: str) -> list[Row]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        return [
            Row(
{read}
            )
            for row in csv.DictReader(file)
        ]


def main() -> None:
    rows = read(sys.argv[1] if len(sys.argv) > 1 else {table.label!r})
    {computed}


if __name__ == "__main__":
    main()
"""


def _sql(request: str, table: Table | None) -> str:
    said = _commented(request, "--")
    if table is None:
        return f"{said}\n"
    name = _identifier(split_name(table.label)[0], 0)
    columns = ",\n".join(
        f"    {_identifier(column.name, at)} {_SQL_TYPES[column.kind]}"
        for at, column in enumerate(table.columns, 1)
    )
    return f"{said}\n\nCREATE TABLE {name} (\n{columns}\n);\n"


def _reader(kind: ColumnKind) -> str:
    return "number" if kind is ColumnKind.NUMBER else "str"


def _identifier(name: str, at: int) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")[:40]
    return plain if plain and not plain[0].isdigit() else f"column_{at}{plain and '_'}{plain}"


def _commented(text: str, sign: str) -> str:
    return "\n".join(f"{sign} {line}".rstrip() for line in text.strip().splitlines()[:40])
