"""Table database: tables of documents in an SQL database in memory, for queries that only read.

Runs in a worker process with limits of its own. The database opens no file and no connection: that is switched off
before the first query and cannot be switched on again. A query has a limit of memory, of time and of rows.
"""

import csv
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from io import StringIO
from itertools import islice
from typing import Any, TypeAlias

import duckdb

from clew.documents.tables.cells import MAX_COLUMNS, NOISE, Column, ColumnKind, unique_names
from clew.documents.tables.sql import identifier, literal
from clew.domain.errors import Invalid, Permanent
from clew.domain.thread import Json

Cell: TypeAlias = str | float | int | None

MAX_ROWS = 10_000
QUERY_SECONDS = 30.0
_MEMORY = "400MB"
_HEAD_CHARACTERS = 65_536
_HEAD_ROWS = 100
_SAMPLE_ROWS = 2_000
_DAYS_AS_DAYS, _DAYS_AS_MONTHS = 62, 1_900
# Of a column with more different texts, a prompt cannot name one.
NAMED_VALUES = 500


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table as text, under the name that queries use."""

    label: str
    text: str
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    kind: ColumnKind
    distinct: int
    filled: int
    # Cells that do not fit the kind, such as a word among numbers. No query sees them.
    left_out: int = 0
    # The texts in it, where they are few.
    values: tuple[str, ...] = ()
    # Of dates, the length of time that makes as many groups as a chart can show.
    period: str = ""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    label: str
    rows: int
    columns: tuple[TableColumn, ...]
    # Lines that are no rows of the table.
    left_out: int = 0

    def described(self, *, with_values: bool) -> dict[str, Json]:
        return {
            "label": self.label,
            "rows": self.rows,
            "columns": [
                {"name": one.name, "kind": str(one.kind), "distinct": one.distinct}
                | ({"values": list(one.values), "period": one.period} if with_values else {})
                for one in self.columns
            ],
        }


@dataclass(frozen=True, slots=True)
class QueryResult:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_cut: bool = False


@contextmanager
def open_tables(sources: Sequence[TableSource]) -> Iterator["TableDatabase"]:
    """The sources that are tables; those without a row under their header are left out."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": _MEMORY,
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with closing(duckdb.connect(":memory:", config=settings)) as connection:
        loaded = [table for source in sources if (table := _load(connection, source)) is not None]
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield TableDatabase(connection, tuple(loaded))


class TableDatabase:
    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: tuple[LoadedTable, ...]) -> None:
        self._connection = connection
        self.tables = tables

    def query(self, sql: str, *, max_rows: int = MAX_ROWS, seconds: float = QUERY_SECONDS) -> QueryResult:
        """The rows of one SELECT. Raises Invalid for anything else, Permanent where it takes too much."""
        try:
            statements = self._connection.extract_statements(sql)
        except duckdb.Error as exc:
            raise Invalid(_reason(exc), "sql") from exc
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise Invalid("expected one SELECT", "sql")
        alarm = threading.Timer(seconds, self._connection.interrupt)
        alarm.start()
        try:
            cursor = self._connection.execute(statements[0])
            names = tuple(str(column[0]) for column in cursor.description or ())
            rows = cursor.fetchmany(max_rows + 1)
        except duckdb.InterruptException as exc:
            raise Permanent(f"the query takes longer than {seconds:g} seconds", "validation") from exc
        except duckdb.OutOfMemoryException as exc:
            raise Permanent(f"the query needs more than {_MEMORY} of memory", "validation") from exc
        except duckdb.Error as exc:
            raise Invalid(_reason(exc), "sql") from exc
        finally:
            alarm.cancel()
        cells = tuple(tuple(map(_plain, row)) for row in rows[:max_rows])
        return QueryResult(names, cells, is_cut=len(rows) > max_rows)


def _load(connection: duckdb.DuckDBPyConnection, source: TableSource) -> LoadedTable | None:
    text = source.text.lstrip("\r\n\ufeff")
    header = _header(text, source.delimiter)
    if header is None:
        return None
    names = unique_names(header)
    with _as_file(text) as path:
        columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE lines AS SELECT * FROM read_csv("
            f"{literal(path)}, columns = {{{columns}}}, delim = {literal(source.delimiter)}, header = true,"
            " auto_detect = false, null_padding = true, strict_mode = false, ignore_errors = true,"
            " store_rejects = true, quote = '\"', escape = '\"', max_line_size = 10000000, parallel = false)"
        )
    (lost,) = _one(connection, "SELECT count(DISTINCT line) FROM reject_errors")
    blank = " AND ".join(f"coalesce(trim({identifier(name)}), '') = ''" for name in names)
    connection.execute(f"DELETE FROM lines WHERE {blank}")
    (rows,) = _one(connection, "SELECT count(*) FROM lines")
    sample = connection.execute(
        f"SELECT * FROM lines USING SAMPLE reservoir({_SAMPLE_ROWS} ROWS) REPEATABLE (1)"
    )
    cells = list(zip(*sample.fetchall(), strict=True))
    if not rows:
        return None
    sampled = [
        Column(name, tuple((cell or "").strip() for cell in its))
        for name, its in zip(names, cells, strict=True)
    ]
    typed = ", ".join(f"{_typed(one)} AS {identifier(one.name)}" for one in sampled)
    connection.execute(f"CREATE TABLE {identifier(source.label)} AS SELECT {typed} FROM lines")
    described = tuple(_described(connection, source.label, one) for one in sampled)
    connection.execute("DROP TABLE lines")
    connection.execute("DROP TABLE reject_errors")
    connection.execute("DROP TABLE reject_scans")
    return LoadedTable(source.label, int(rows), described, int(lost))


def _header(text: str, delimiter: str) -> list[str] | None:
    """The names of the columns, as many as the widest of the first rows has; None where there is no second row."""
    rows = csv.reader(StringIO(text[:_HEAD_CHARACTERS], newline=""), delimiter=delimiter)
    try:
        first = [row for row in islice(rows, _HEAD_ROWS) if any(cell.strip() for cell in row)]
    except csv.Error as exc:
        raise Permanent(f"this is not a table: {exc}", "validation") from exc
    if len(first) < 2:
        return None
    width = min(MAX_COLUMNS, max(map(len, first)))
    return [*first[0][:width], *[""] * (width - len(first[0]))]


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The text where the database can read it in pieces: in memory where the system can, else in a temporary file."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("table")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()
    try:
        with open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as file:
            file.writelines(
                text[start : start + _HEAD_CHARACTERS] for start in range(0, len(text), _HEAD_CHARACTERS)
            )
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            os.unlink(path)


def _typed(column: Column) -> str:
    """The cells of a column as the values they show; what shows none is NULL."""
    text = f"trim({identifier(column.name)})"
    match column.kind:
        case ColumnKind.NUMBER:
            thousands = "." if column.decimal == "," else ","
            bare = f"regexp_replace({text}, {literal(NOISE)}, '', 'gi')"
            signed = f"regexp_replace({bare}, '^\\((.*)\\)$', '-\\1')"
            return (
                f"TRY_CAST(replace(replace({signed}, '{thousands}', ''), '{column.decimal}', '.') AS DOUBLE)"
            )
        case ColumnKind.DATE:
            has_time = "%H" in column.notation
            parsed = f"try_strptime({text}, {literal(column.notation)})"
            return parsed if has_time else f"CAST({parsed} AS DATE)"
        case _:
            return f"nullif({text}, '')"


def _described(connection: duckdb.DuckDBPyConnection, table: str, column: Column) -> TableColumn:
    name, source = identifier(column.name), identifier(table)
    distinct, filled = _one(connection, f"SELECT count(DISTINCT {name}), count({name}) FROM {source}")
    (shown,) = _one(connection, f"SELECT count(*) FROM lines WHERE trim({name}) <> ''")
    kind = column.kind
    values: tuple[str, ...] = ()
    if kind is ColumnKind.TEXT and distinct <= NAMED_VALUES:
        found = connection.execute(
            f"SELECT DISTINCT {name} FROM {source} WHERE {name} IS NOT NULL ORDER BY 1"
        )
        values = tuple(str(value) for (value,) in found.fetchall())
    period = _period(connection, column, table) if kind is ColumnKind.DATE else ""
    return TableColumn(column.name, kind, int(distinct), int(filled), int(shown - filled), values, period)


def _period(connection: duckdb.DuckDBPyConnection, column: Column, table: str) -> str:
    name = identifier(column.name)
    (days,) = _one(connection, f"SELECT date_diff('day', min({name}), max({name})) FROM {identifier(table)}")
    if (days or 0) > _DAYS_AS_MONTHS:
        return "year"
    return "month" if (days or 0) > _DAYS_AS_DAYS or column.notation == "%Y-%m" else "day"


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    row = connection.execute(sql).fetchone()
    return row if row is not None else ()


def _plain(value: object) -> Cell:
    match value:
        case None | str() | int() | float():
            return value
        case datetime() if value.hour or value.minute or value.second:
            return value.isoformat(" ", "minutes")
        case datetime() | date():
            return value.isoformat()[:10]
        case _:
            try:
                return float(value)  # type: ignore[arg-type]  # decimals and large integers
            except (TypeError, ValueError):
                return str(value)


def _reason(exc: Exception) -> str:
    return " ".join(str(exc).split())[:300]
