"""Disk space of a SQLite file: by table, and how much of it can be returned to the system."""

import asyncio
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from clew.stores.sql.usage import UsageRows
from clew.stores.sql.work import Statement, Work
from clew.stores.sqlite import SQLiteDatabase, connect

# Fewer free pages than this are soon used again.
FEW = 256
# So many are given back at once; writers wait for it.
SLICE = 512
SHORT_MILLISECONDS = 50


class SQLiteSpace(UsageRows):
    """The Space port on a SQLite file, or on a database in memory, which gives nothing back."""

    def __init__(self, db: SQLiteDatabase, path: Path | None) -> None:
        super().__init__(db)
        self._path = path

    async def sizes(self) -> Mapping[str, int]:
        try:
            return await self._db.read(_sizes)
        except sqlite3.OperationalError:
            return {}  # a SQLite that was built without the dbstat table

    async def give_back(self, *, seconds: float) -> int:
        if self._path is None:
            return 0
        return await asyncio.to_thread(_shrink, self._path, seconds)


def wipe_free_pages(path: Path) -> bool:
    """Rewrite the file without what was deleted or replaced in it. False if another connection is in the way."""
    with closing(connect(path.absolute().as_uri())) as connection:
        try:
            connection.execute("VACUUM")
            ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError:
            return False
    return not is_busy


def _sizes() -> Work[Mapping[str, int]]:
    rows = yield Statement(
        "SELECT COALESCE(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat AS d"
        " LEFT JOIN sqlite_schema AS s ON s.name = d.name WHERE d.aggregate = TRUE GROUP BY 1 ORDER BY 1"
    )
    return {name: int(size) for name, size in rows}


def _shrink(path: Path, seconds: float) -> int:
    """On a connection of its own: inside our writer's transaction the file could not become shorter."""
    before = path.stat().st_size
    until = time.monotonic() + seconds
    with closing(connect(path.absolute().as_uri())) as connection:
        try:
            while time.monotonic() < until and _free(connection) > FEW:
                # A plain execute takes only the first step of this, which is one page.
                connection.executescript(f"PRAGMA incremental_vacuum({SLICE})")
            # The journal beside the file is as large as all that was deleted. Cutting it off keeps writers waiting for
            # readers, so it gives up soon.
            connection.execute(f"PRAGMA busy_timeout = {SHORT_MILLISECONDS}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError:
            pass  # another connection is writing; the next call tries again
    return max(0, before - path.stat().st_size)


def _free(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])
