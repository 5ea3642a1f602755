"""Ownership in SQL: the condition that hides rows of other owners, and of threads those an authorization filter excludes."""

from json import dumps

from clew.domain.thread import Owner
from clew.ports.authorization import AllOf, AnyOf, Contains, Equals, FilteredOwner, MetadataFilter
from clew.stores.sql.work import Value

# So much of a value is in the index; Postgres takes no more than 2,700 bytes for a row there.
INDEXED = 200


def owned(owner: Owner | None, first: int) -> tuple[str, tuple[Value, ...]]:
    """The condition that makes another owner's rows not exist. An empty user is the whole tenant."""
    if owner is None:
        return "", ()
    if not owner.user_id:
        return f" AND tenant = ${first}", (owner.tenant,)
    return f" AND tenant = ${first} AND user_id = ${first + 1}", (owner.tenant, owner.user_id)


def owned_threads(owner: Owner | None, first: int, *, is_one: bool = False) -> tuple[str, tuple[Value, ...]]:
    """The same for rows of `threads`: of those only what the owner's filter matches. `is_one`: one id is asked for."""
    mine, args = owned(owner, first)
    if not isinstance(owner, FilteredOwner):
        return mine, args
    condition = _Condition("threads.id", first + len(args), is_one=is_one)
    return f"{mine} AND {condition.of(owner.threads)}", (*args, *condition.args)


def seen_thread(owner: Owner, column: str, first: int) -> tuple[str, tuple[Value, ...]]:
    """That `column` names no thread, or one that the owner's filter matches."""
    if not isinstance(owner, FilteredOwner):
        return "", ()
    condition = _Condition(column, first, is_one=True)
    return f" AND ({column} IS NULL OR {condition.of(owner.threads)})", tuple(condition.args)


class _Condition:
    """One filter as a condition on the column with a thread's id."""

    def __init__(self, column: str, first: int, *, is_one: bool) -> None:
        self._column = column
        self._first = first
        self._here = f"thread_id = {column} AND " if is_one else ""
        self.args: list[Value] = []

    def of(self, wanted: MetadataFilter) -> str:
        match wanted:
            case Equals():
                return self._joined(" AND ", [self._leaf(*leaf) for leaf in wanted.leaves.items()], "1 = 1")
            case Contains():
                parts = [self._element(wanted.path, dumps(one, sort_keys=True)) for one in wanted.values]
                return self._joined(" AND ", [self._list(wanted.path), *parts], "1 = 1")
            case AllOf(parts):
                return self._joined(" AND ", [self.of(part) for part in parts], "1 = 1")
            case AnyOf(parts):
                return self._joined(" OR ", [self.of(part) for part in parts], "1 = 0")

    def _leaf(self, path: str, value: str) -> str:
        # By the value first: most names are in many threads, most values in few.
        return self._labelled(
            f"path = {self._arg(path)} AND substr(value, 1, {INDEXED}) = {self._arg(value[:INDEXED])}"
            f" AND value = {self._arg(value)}"
        )

    def _list(self, path: str) -> str:
        return self._labelled(f"path = {self._arg(path)} AND substr(value, 1, 1) = '['")

    def _element(self, path: str, element: str) -> str:
        # A list is stored as `["a", "b"]`: its inside between commas has each element between commas. A quotation mark
        # inside of a text is escaped, so that no text holds another element.
        inside = "', ' || substr(value, 2, length(value) - 2) || ', '"
        return self._labelled(
            f"path = {self._arg(path)} AND replace({inside}, {self._arg(f', {element}, ')}, '') <> {inside}"
        )

    def _labelled(self, condition: str) -> str:
        return f"{self._column} IN (SELECT thread_id FROM labels WHERE {self._here}{condition})"

    def _arg(self, value: str) -> str:
        self.args.append(value)
        return f"${self._first + len(self.args) - 1}"

    @staticmethod
    def _joined(word: str, parts: list[str], nothing: str) -> str:
        return f"({word.join(parts)})" if parts else nothing
