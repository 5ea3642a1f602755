"""Re-encryption: rewrites the values of private columns under the current key. Stopped at any moment, it goes on where it was."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clew.domain.errors import Corrupt, InvalidState
from clew.ports.queue import ALIVE
from clew.stores.codec import MICROSECOND
from clew.stores.sql.encryption_keys import retire_others
from clew.stores.sql.private import BINARY, HEAD, PRIVATE, context_of, head_of
from clew.stores.sql.work import (
    Many,
    Row,
    Statement,
    Tables,
    Update,
    Value,
    Work,
    placeholders,
    reads,
    writes,
)

# So many rows are rewritten in one transaction: few, since a part of a file may have a megabyte.
PAGE: Final = 20
_VECTOR: Final = "tenant, path, key, number, dims, vector"


@dataclass(frozen=True, slots=True)
class Reencrypted:
    rows: int
    """How many were rewritten."""
    unreadable: int
    """How many do not open with any of the keys. They stay as they are."""


class ReencryptionRows(Tables):
    """All private values of a database. Servers may go on: a value that changes meanwhile is left to its writer."""

    async def run(self, report: Callable[[int, int], None]) -> Reencrypted:
        """`report` is told how many rows are done, of how many. Raises InvalidState if a process would go on writing
        values that this key does not encrypt."""
        await self._require_same_key()
        total = sum([await self._left(table) for table in PRIVATE])
        rows = unreadable = 0
        report(rows, total)
        for table in PRIVATE:
            after: tuple[Value, ...] | None = ()
            while after is not None:
                after, done, bad = await self._rewrite(table, after)
                rows, unreadable = rows + done, unreadable + bad
                report(rows, max(total, rows))
        if not sum([await self._left(table) for table in PRIVATE]):
            await self._db.write(lambda: retire_others(self._db.cipher.current))
        return Reencrypted(rows, unreadable)

    @reads
    def _require_same_key(self) -> Work[None]:
        rows = yield Statement(
            "SELECT name, host FROM processes WHERE key_id <> $1 AND beat_at > clew_now() - $2 ORDER BY started_at",
            (self._db.cipher.current, ALIVE // MICROSECOND),
        )
        for name, host in rows:
            raise InvalidState(
                f"process {name} on {host} does not encrypt with key {self._db.cipher.current}: restart it with that key"
                f" first, or stop it; one that was killed counts for {ALIVE.total_seconds():g} seconds"
            )

    @reads
    def _left(self, table: str) -> Work[int]:
        ((number,),) = yield Statement(
            f"SELECT count(*) FROM {table} WHERE {_old(table, 1)}", (self._head(table),)
        )
        return int(number)

    def _head(self, table: str) -> str | bytes:
        head = head_of(self._db.cipher.current)
        return head.encode() if table in BINARY else head

    @writes
    def _rewrite(
        self, table: str, after: tuple[Value, ...]
    ) -> Work[tuple[tuple[Value, ...] | None, int, int]]:
        """The key of the last row of this page, if there may be more, and how many were rewritten and could not be."""
        spec, names = PRIVATE[table], _names(table)
        beyond = f" AND ({', '.join(spec.key)}) > ({placeholders(2, len(after))})" if after else ""
        # Under other names the values come as they are stored.
        values = ", ".join(f"{column} AS stored_{n}" for n, column in enumerate(spec.columns))
        rows = yield Statement(
            f"SELECT {', '.join(names)}, {values} FROM {table} WHERE {_old(table, 1)}{beyond}"
            f" ORDER BY {', '.join(spec.key)} LIMIT {PAGE}",
            (self._head(table), *after),
        )
        done = bad = 0
        for row in rows:
            try:
                changes = self._opened(table, row)
            except Corrupt:
                bad += 1
                continue
            done += yield from _replace(table, row, changes)
        last = tuple(rows[-1][: len(spec.key)]) if len(rows) == PAGE else None
        return last, done, bad

    def _opened(self, table: str, row: Row) -> list[Any]:
        spec, names = PRIVATE[table], _names(table)
        bound = [row[names.index(part)] for part in spec.bound_to]
        return [
            None if value is None else self._db.cipher.open(value, context_of(f"{table}.{column}", bound))
            for column, value in zip(spec.columns, row[len(names) :], strict=True)
        ]


def _names(table: str) -> list[str]:
    """The columns that say which row it is."""
    spec = PRIVATE[table]
    return list(dict.fromkeys((*spec.key, *spec.bound_to)))


def _old(table: str, n: int) -> str:
    """That a row has a value that is not encrypted with the key whose head is argument `n`."""
    columns = PRIVATE[table].columns
    return f"({' OR '.join(f'substr({column}, 1, {HEAD}) <> ${n}' for column in columns)})"


def _replace(table: str, row: Row, plain: Sequence[Any]) -> Work[int]:
    """Write the values again, which encrypts them, unless one of them has changed: the number of rows."""
    spec, names = PRIVATE[table], _names(table)
    stored = row[len(names) :]
    given = [n for n, value in enumerate(stored) if value is not None]
    args = [*row[: len(names)], *(plain[n] for n in given), *(stored[n] for n in given)]
    first = len(names) + 1
    setting = ", ".join(f"{spec.columns[n]} = ${first + i}" for i, n in enumerate(given))
    unchanged = " AND ".join(f"{spec.columns[n]} = ${first + len(given) + i}" for i, n in enumerate(given))
    which = " AND ".join(f"{name} = ${n}" for n, name in enumerate(names, 1))
    # A change of an item's value drops its vectors, and this is none.
    vectors = (
        (yield Statement(f"SELECT {_VECTOR} FROM store_vectors WHERE {which}", tuple(args[: len(names)])))
        if table == "store_items"
        else ()
    )
    ((done,),) = yield Update(f"UPDATE {table} SET {setting} WHERE {which} AND {unchanged}", tuple(args))
    if done and vectors:
        yield Many(
            f"INSERT INTO store_vectors ({_VECTOR}) VALUES ({placeholders(1, 6)})",
            [tuple(v) for v in vectors],
        )
    return int(done)
