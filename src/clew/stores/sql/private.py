"""Private columns: which hold what people wrote, and the encryption of their values on the way to the database and back.

Statements are written without regard to it. Which of their arguments and results are private is read from the SQL, once
a statement: an argument that goes into a private column is `$n` in its INSERT or UPDATE, a result has the column's name.
A statement for which that cannot be said is refused, so that no private value is written as plain text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from operator import getitem
from typing import Any, Final, NamedTuple, TypeVar

from clew.domain.errors import Corrupt
from clew.ports.cipher import Cipher
from clew.stores.sql.work import Many, Rows, Script, Statement, Update


class PrivateTable(NamedTuple):
    """The key of a table, its columns that are encrypted, and those that a value is bound to: elsewhere it does not open."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    bound_to: tuple[str, ...]
    # Columns whose reader takes an empty text for damage, so that a value that does not open costs no more than its row.
    checked: tuple[str, ...] = ()


def _table(key: str, columns: str, *, checked: str = "", bound_to: str | None = None) -> PrivateTable:
    bound = key if bound_to is None else bound_to
    return PrivateTable(*(tuple(names.split()) for names in (key, columns, bound, checked)))


def _json(key: str, columns: str, *, bound_to: str | None = None) -> PrivateTable:
    return _table(key, columns, checked=columns, bound_to=bound_to)


# All other columns are plain, as docs/howto/encryption.md says. Checkpoints are copied from thread to thread as they are,
# and the database itself numbers the messages of a history: these are bound to no row.
PRIVATE: Final[Mapping[str, PrivateTable]] = {
    "threads": _json("id", "name settings fsm_state failure_reason"),
    "events": _json("thread_id seq", "content"),
    "tool_calls": _table("thread_id tool_call_id", "prompt args result", checked="args result"),
    "checkpoints": _table("seq", "body metadata apart", bound_to=""),
    "checkpoint_blobs": _table("thread_id ns channel version", "data", bound_to=""),
    "checkpoint_writes": _table("thread_id checkpoint_id ns task_id", "data", bound_to=""),
    "store_items": _json("tenant path key", "value"),
    "history_messages": _table("history_id seq", "content", bound_to=""),
    "model_calls": _json("id", "rendered_context evictions", bound_to="thread_id"),
    "summaries": _table("thread_id to_seq version", "content"),
    "blobs": _table("sha256 part", "data"),
    "files": _table("id", "name"),
    "documents": _table("id", "name"),
    "contents": _table("document_id sequence_nr", "name data metadata summary"),
    "assistant_versions": _table(
        "tenant id version", "name description config context metadata", checked="config context metadata"
    ),
    "chunks": _table("thread_id number", "data"),
    "run_hooks": _table("run_id", "webhook"),
    "crons": _json("id", "spec input"),
    "inbox": _json("source source_id", "payload"),
    "conversations": _json("source key", "cursor"),
    "idempotency": _json("tenant key", "response"),
}

# Tables whose private columns are bytes, and not text.
BINARY: Final = frozenset({"checkpoint_blobs", "checkpoint_writes", "blobs", "chunks"})

# A row of thread metadata, which is searched by its values: only a cipher that hides some of them changes it.
LABEL: Final = ("thread_id", "path", "value")
# What a server itself finds threads by.
SEARCHED: Final = frozenset({"graph_id", "assistant_id"})

# JSON never begins like this.
MARK: Final = "\x02clew1:"
HEAD: Final = len(MARK) + 9
# So much of a value tells how long it was.
START: Final = HEAD + 8

A = TypeVar("A", bound=Statement | Update | Many | Script)


class PrivateArgument(NamedTuple):
    """The place of an argument, its column, and the places of the arguments that are its row's key."""

    place: int
    column: str
    key: tuple[int, ...]


class PrivateResult(NamedTuple):
    """The place of a result, its column, and its row's key: each part is a place in the row, or in the arguments."""

    place: int
    column: str
    key: tuple[tuple[bool, int], ...]
    is_checked: bool


def head_of(key_id: str) -> str:
    """How every value begins that is encrypted with this key."""
    return f"{MARK}{key_id}:"


def context_of(column: str, key: Sequence[Any]) -> str:
    """Where a value belongs: `table.column`, and what of its row it is bound to."""
    return "\0".join((column, *map(str, key)))


def sealed(step: A, cipher: Cipher) -> A:
    """The statement with its private arguments encrypted."""
    if isinstance(step, Script):
        return step
    if cipher.hides_metadata and isinstance(step, Many) and step.sql.startswith("INSERT INTO labels "):
        rows = [(thread_id, path, sealed_label(path, value, cipher)) for thread_id, path, value in step.rows]
        return replace(step, rows=rows)
    places = private_arguments(step.sql)
    if not places:
        return step
    if isinstance(step, Many):
        return replace(step, rows=[_sealed_args(row, places, cipher) for row in step.rows])
    return replace(step, args=_sealed_args(step.args, places, cipher))


def _sealed_args(args: Sequence[Any], places: Sequence[PrivateArgument], cipher: Cipher) -> tuple[Any, ...]:
    found = list(args)
    for place, column, key in places:
        if args[place] is not None:
            found[place] = cipher.seal(args[place], context_of(column, [args[part] for part in key]))
    return tuple(found)


def sealed_row(table: str, columns: Sequence[str], row: Sequence[Any], cipher: Cipher) -> tuple[Any, ...]:
    """A row of these columns with the private ones encrypted, for SQL that says less than `columns = $n`."""
    if not cipher.is_active:
        return tuple(row)
    spec = PRIVATE[table]
    key = [row[columns.index(part)] for part in spec.bound_to]
    return tuple(
        cipher.seal(value, context_of(f"{table}.{column}", key))
        if column in spec.columns and value is not None
        else value
        for column, value in zip(columns, row, strict=True)
    )


def opened(rows: Rows, names: Sequence[str], step: Statement, cipher: Cipher) -> Rows:
    """The rows with their private columns decrypted. Raises Corrupt, but not for a value that its reader checks."""
    if cipher.hides_metadata and tuple(names) == LABEL:
        return [(thread_id, path, opened_label(path, value, cipher)) for thread_id, path, value in rows]
    places = private_results(step.sql, tuple(names))
    if not places:
        return rows
    found = [list(row) for row in rows]
    for row in found:
        for place, column, key, is_checked in places:
            value: Any = row[place]
            if not isinstance(value, str | bytes):
                continue
            context = context_of(column, [row[at] if in_row else step.args[at] for in_row, at in key])
            try:
                row[place] = cipher.open(row[place], context)
            except Corrupt:
                if not is_checked:
                    raise
                row[place] = ""
    return [tuple(row) for row in found]


def sealed_label(path: Any, value: Any, cipher: Cipher) -> str:
    """A value that is hidden is an object with the name of the first label. No value that is not hidden has a name in it."""
    first, *below = json.loads(path)
    if first in SEARCHED:
        return str(value)
    whole: dict[str, Any] = {
        first: reduce(lambda inner, name: {name: inner}, reversed(below), json.loads(value))
    }
    hidden = cipher.seal_metadata(whole)
    return str(value) if hidden == whole else json.dumps(hidden)


def opened_label(path: Any, value: Any, cipher: Cipher) -> str:
    """Empty, which its reader takes for damage, where it cannot be opened."""
    try:
        hidden = json.loads(value)
        if not isinstance(hidden, dict) or not hidden:
            return str(value)
        return json.dumps(reduce(getitem, json.loads(path), cipher.open_metadata(hidden)), sort_keys=True)
    except (Corrupt, ValueError, LookupError, TypeError):
        return ""


_INSERT = re.compile(r"INSERT INTO (\w+) \(([^)]*)\)\s+(?:VALUES \(|SELECT )(.*)", re.DOTALL)
_UPDATE = re.compile(r"UPDATE (\w+)(?: AS \w+)? SET (.*)", re.DOTALL)
_WRITTEN = re.compile(r"\b(?:INTO|UPDATE)\s+(\w+)")
_ARGUMENT = re.compile(r"\$(\d+)(?=\s|$)")
# What a statement may write by itself: a constant, nothing, or what was to be inserted.
_CONSTANT = re.compile(r"'[^']*'|NULL\b|excluded\.")


@lru_cache(maxsize=2048)
def private_arguments(sql: str) -> tuple[PrivateArgument, ...]:
    """The arguments that go into private columns. Raises LookupError where that cannot be said."""
    if sum(table in PRIVATE for table in _WRITTEN.findall(sql)) > 1:
        raise LookupError(f"more than one table is written by: {sql}")
    if (insert := _INSERT.search(sql)) and insert[1] in PRIVATE:
        columns = [column.strip() for column in insert[2].split(",")]
        given = dict(zip(columns, _expressions(insert[3]), strict=False))
        _, _, otherwise = insert[3].partition(" DO UPDATE SET ")
        for column, expression in _assignments(otherwise):
            if column in PRIVATE[insert[1]].columns and not _CONSTANT.match(expression):
                raise LookupError(f"{column} of {insert[1]} is not encrypted by: {sql}")
        return tuple(_arguments(insert[1], given, sql))
    if (update := _UPDATE.search(sql)) and update[1] in PRIVATE:
        table, changes = update.groups()
        given = dict(_assignments(changes))
        for part in PRIVATE[table].bound_to:
            if found := re.search(rf"\b{part} = (\$\d+)", _without_subqueries(changes)):
                given[part] = found[1]
        return tuple(_arguments(table, given, sql))
    if any(table in PRIVATE for table in _WRITTEN.findall(sql)):
        raise LookupError(f"which columns are written is not known in: {sql}")
    return ()


def _arguments(table: str, given: Mapping[str, str], sql: str) -> Iterator[PrivateArgument]:
    spec = PRIVATE[table]
    for column in spec.columns:
        expression = given.get(column)
        if expression is None or _CONSTANT.match(expression):
            continue
        if expression.split()[0] == column and not spec.bound_to:
            continue  # copied as it is
        found = _ARGUMENT.match(expression)
        key = [_ARGUMENT.match(given.get(part, "")) for part in spec.bound_to]
        if found is None or None in key:
            raise LookupError(f"{column} of {table} is not encrypted by: {sql}")
        yield PrivateArgument(
            int(found[1]) - 1, f"{table}.{column}", tuple(int(part[1]) - 1 for part in key if part)
        )


def _assignments(changes: str) -> Iterator[tuple[str, str]]:
    """`column = expression`, and `(column, ...) = (expression, ...)`."""
    if several := re.match(r"\(([^)]*)\) = \(", changes):
        columns = [column.strip() for column in several[1].split(",")]
        yield from zip(columns, _expressions(changes[several.end() :]), strict=False)
        return
    for change in _expressions(changes.partition(" WHERE ")[0]):
        column, equals, expression = change.partition(" = ")
        if equals:
            yield column, expression


def _expressions(text: str) -> Iterator[str]:
    """The parts between commas, up to the bracket that was opened before."""
    depth, begun = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth < 0 or (sign == "," and depth == 0):
            yield text[begun:at].strip()
            begun = at + 1
        if depth < 0:
            return
    yield text[begun:].strip()


@lru_cache(maxsize=2048)
def private_results(sql: str, names: tuple[str, ...]) -> tuple[PrivateResult, ...]:
    """The results that come from private columns. Raises LookupError where that cannot be said."""
    own = _without_subqueries(sql)
    tables = [table for table in PRIVATE if re.search(rf"\b{table}\b", own)]
    found = []
    for place, name in enumerate(names):
        of = [table for table in tables if name in PRIVATE[table].columns]
        if len(of) > 1:
            raise LookupError(f"{name} may be of {' or '.join(of)} in: {sql}")
        for table in of:
            spec = PRIVATE[table]
            key = tuple(_place_of(part, names, own) for part in spec.bound_to)
            found.append(PrivateResult(place, f"{table}.{name}", key, name in spec.checked))
    return tuple(found)


# A bracket that opens a table, and not a condition, a value or a list of columns.
_TABLE_OPENS = re.compile(r"\b(?:FROM|JOIN|LATERAL|AS|\*/)\s*$")


def _without_subqueries(sql: str) -> str:
    """The statement without what stands in brackets, unless that is one of its tables: only there its rows come from."""
    kept, hidden = [], 0
    opened_at: list[bool] = []
    for at, sign in enumerate(sql):
        if sign == "(":
            opened_at.append(hidden == 0 and _TABLE_OPENS.search(sql[max(0, at - 20) : at]) is not None)
            hidden += not opened_at[-1]
        if not hidden:
            kept.append(sign)
        if sign == ")" and opened_at:
            hidden -= not opened_at.pop()
    return "".join(kept)


def _place_of(part: str, names: Sequence[str], sql: str) -> tuple[bool, int]:
    if part in names:
        return True, names.index(part)
    arguments = {int(number) for number in re.findall(rf"\b{part} = \$(\d+)", sql)}
    if len(arguments) != 1:
        raise LookupError(f"{part} is not known in: {sql}")
    return False, arguments.pop() - 1
