"""Unit of database work: a generator that yields statements and receives rows, so that any database can drive it.

The SQL is written once. Both databases understand `$1, $2, ...`, `RETURNING`, `ON CONFLICT`, and `clew_now()`:
the database's own time in microseconds since the epoch. What only Postgres understands hides in a comment
(`SKIP_LOCKED`) that SQLite, which has a single writer, may ignore.
"""

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from clew.ports.cipher import Cipher


class Texts(list[str]):
    """Any number of texts as one argument, so that a statement is the same however many they are. See `among`."""


class Floats(list[float]):
    """A vector as one argument."""


Value: TypeAlias = str | int | float | bytes | Texts | Floats | None
Row: TypeAlias = Any  # as each database hands it out; all can be indexed and unpacked
Rows: TypeAlias = Sequence[Row]

SKIP_LOCKED = "/*+ FOR UPDATE SKIP LOCKED */"
# The same without the rows' keys: those that FOR_KEY_SHARE keeps from being deleted are not passed over.
SKIP_CHANGING = "/*+ FOR NO KEY UPDATE SKIP LOCKED */"
FOR_UPDATE = "/*+ FOR UPDATE */"
FOR_KEY_SHARE = "/*+ FOR KEY SHARE */"  # the row may change, and stays
FOR_SHARE = "/*+ FOR SHARE */"  # the row stays as it is


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement; what it returns is sent back into the generator."""

    sql: str
    args: Sequence[Value] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """One statement that changes rows and returns none; how many it changed comes back, in a row of its own."""

    sql: str
    args: Sequence[Value] = ()


@dataclass(frozen=True, slots=True)
class Many:
    """The same statement for every row of arguments; nothing comes back."""

    sql: str
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Script:
    """Many statements without arguments, as a migration has them; nothing comes back."""

    sql: str


P = ParamSpec("P")
T = TypeVar("T")
Work: TypeAlias = Generator[Statement | Update | Many | Script, Rows, T]


class Database(Protocol):
    """Runs units of work. All methods raise Unavailable when the database cannot be reached in time."""

    @property
    def cipher(self) -> Cipher:
        """What private columns are encrypted with."""
        ...

    async def write(self, work: Callable[[], Work[T]]) -> T:
        """Run the work in a transaction of its own effects: all of it is durable on return, or none of it happened.

        A caller that is cancelled leaves no open transaction; its work may still have been done.
        """
        ...

    async def read(self, work: Callable[[], Work[T]]) -> T:
        """Run the work on one consistent snapshot; it must not write."""
        ...

    async def glance(self, work: Callable[[], Work[T]]) -> T:
        """Run a read of one statement and a few rows, in the cheapest way there is."""
        ...


class Tables:
    """A group of tables on some database; its methods are units of work turned into coroutines."""

    def __init__(self, db: Database) -> None:
        self._db = db


S = TypeVar("S", bound=Tables)


def writes(
    method: Callable[Concatenate[S, P], Work[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Turn a method that is a unit of work into a coroutine that runs it in one transaction."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.write(lambda: method(self, *args, **kwargs))

    return run


def reads(
    method: Callable[Concatenate[S, P], Work[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Turn a method that is a unit of work into a coroutine that runs it on one snapshot."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.read(lambda: method(self, *args, **kwargs))

    return run


def glances(
    method: Callable[Concatenate[S, P], Work[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Turn a method that is one statement reading a few rows into a coroutine."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.glance(lambda: method(self, *args, **kwargs))

    return run


def among(column: str, n: int) -> str:
    """That `column` is one of the texts in argument `n`. To Postgres it is said in its own way: `= ANY`."""
    return f"{column} IN (SELECT value FROM json_each(${n}))"


def placeholders(first: int, count: int) -> str:
    """`$3, $4, $5` for first=3 and count=3."""
    return ", ".join(f"${n}" for n in range(first, first + count))
