"""Statement counter: what a run asks of its database, on SQLite from its connections, on Postgres from the server's own log."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg import sql

from clew.stores import sqlite
from clew.stores.sql.work import Work
from clew.stores.sqlite import SQLiteDatabase

_WRITES = re.compile(r"\b(INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+\w+(\s+AS\s+\w+)?\s+SET)\b", re.IGNORECASE)
_CONTROL = re.compile(
    r"^\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|END|PRAGMA|SET|RESET|LISTEN)\b", re.IGNORECASE
)
_LOGGED = re.compile(r"\[(\d+)\] LOG:  (?:statement|execute [^:]*): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Counts:
    """`writes` are units of work that change rows, each of which would be a transaction without group commit."""

    statements: int
    writes: int


class StatementCounter:
    """Statements since it was last asked; BEGIN, COMMIT and settings are not counted."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.units = 0

    def take(self) -> Counts:
        counts = Counts(len(self.seen), self.units)
        self.seen, self.units = [], 0
        return counts

    def trace(self, statement: str) -> None:
        # SQLite names the inner statements of triggers and of its full-text index in comments or as its own.
        if not statement.startswith("--") and not _CONTROL.match(statement):
            self.seen.append(statement)


class LogCounter(StatementCounter):
    """Reads what a Postgres server has logged since it was last asked."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log
        self._at = log.stat().st_size

    def take(self) -> Counts:
        with self._log.open("rb") as file:
            file.seek(self._at)
            added = file.read()
        self._at += len(added)
        writing: dict[str, bool] = defaultdict(bool)
        inside: set[str] = set()
        for backend, statement in _entries(added.decode(errors="replace")):
            word = statement.lstrip().upper()
            if word.startswith("BEGIN"):
                inside.add(backend)
                writing[backend] = False
            elif word.startswith(("COMMIT", "ROLLBACK", "END")):
                inside.discard(backend)
                self.units += writing.pop(backend, False)
            elif not _CONTROL.match(statement):
                self.seen.append(statement)
                if _WRITES.search(statement):
                    writing[backend] = True
                    if backend not in inside:
                        self.units += writing.pop(backend)
        return super().take()


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Backend and text of each logged statement; the lines that continue one begin with a tab."""
    for entry in re.split(r"\n(?!\t)", text):
        if found := _LOGGED.search(entry):
            yield found[1], found[2]


@contextmanager
def counting(where: str, monkeypatch: pytest.MonkeyPatch) -> Generator[StatementCounter]:
    """Count what connections made in the block ask of this database: a path, or the URL of a Postgres of `tests.postgres`."""
    if not where.startswith("postgres"):
        yield _of_sqlite(monkeypatch)
        return
    parts = urlsplit(where)
    folder, name = Path(parse_qs(parts.query)["host"][0]), parts.path.lstrip("/")
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(sql.Identifier(name))
        )
    yield LogCounter(folder / "postgres.log")


def _of_sqlite(monkeypatch: pytest.MonkeyPatch) -> StatementCounter:
    counter, connect, write = StatementCounter(), sqlite.connect, SQLiteDatabase.write

    def connected(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.set_trace_callback(counter.trace)
        return connection

    def written(self: SQLiteDatabase, work: Callable[[], Work[Any]]) -> Awaitable[Any]:
        counter.units += 1
        return write(self, work)

    monkeypatch.setattr(sqlite, "connect", connected)
    monkeypatch.setattr(SQLiteDatabase, "write", written)
    return counter
