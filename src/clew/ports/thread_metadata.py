"""Thread metadata, by which clients find threads: an object, kept as the paths of its leaves and their values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps, loads
from typing import Literal, Protocol, TypeAlias

from clew.domain.errors import Invalid
from clew.domain.thread import Json, Owner, Status

SortKey: TypeAlias = Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"]

# Names inside of names; how long they may be, one inside of the other; and how many leaves one thread may have.
DEEPEST = 8
LONGEST = 1000
MOST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSearch:
    """A search for threads: filters, sort order and page."""

    owner: Owner
    labels: Mapping[str, Json] = field(default_factory=dict)
    ids: tuple[str, ...] | None = None
    statuses: tuple[Status, ...] = ()
    sort_by: SortKey = "created_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0


def leaves(labels: Mapping[str, Json]) -> dict[str, str]:
    """By path, both as JSON. An object that holds another holds each of its leaves. Raises Invalid."""
    found: dict[str, str] = {}
    _gather(labels, (), found)
    require_few(len(found))
    if any(len(path) > LONGEST for path in found):
        raise Invalid(f"names longer than {LONGEST} characters", field="metadata")
    return found


def require_few(leaves: int) -> None:
    """Raises Invalid for more than a thread may have."""
    if leaves > MOST:
        raise Invalid(f"more than {MOST} values", field="metadata")


def grown(found: Iterable[tuple[Sequence[str], Json]]) -> dict[str, Json]:
    """The object that has these leaves."""
    whole: dict[str, Json] = {}
    for (*way, name), value in found:
        inside = whole
        for step in way:
            below = inside.get(step)
            if not isinstance(below, dict):
                below = inside[step] = {}
            inside = below
        inside[name] = value
    return whole


def readable_leaf(leaf: tuple[str, str]) -> tuple[list[str], Json]:
    """The names that lead to a leaf, and what is there. Raises ValueError where it is not as `leaves` writes it."""
    path, value = loads(leaf[0]), loads(leaf[1])
    if not isinstance(path, list) or not path or not all(isinstance(name, str) for name in path):
        raise ValueError("not a path")
    return path, value


def _gather(value: Mapping[str, Json], path: tuple[str, ...], found: dict[str, str]) -> None:
    if len(path) >= DEEPEST:
        raise Invalid(f"objects inside of objects, more than {DEEPEST}", field="metadata")
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            _gather(inner, (*path, name), found)
        else:
            found[dumps([*path, name])] = dumps(inner, sort_keys=True)


class ThreadMetadata(Protocol):
    """Metadata that clients set on threads to find them by. Not part of the log."""

    async def put(self, thread_id: str, labels: Mapping[str, Json]) -> None:
        """Set these; others stay. Raises NotFound, Invalid."""
        ...

    async def of(self, thread_ids: Collection[str]) -> Mapping[str, Mapping[str, Json]]: ...

    async def find(self, wanted: ThreadSearch) -> Sequence[str]:
        """The ids of the threads that have these labels, and objects of them inside of theirs."""
        ...

    async def count(self, wanted: ThreadSearch) -> int: ...
