"""Authorization: filters of metadata, as handlers of custom authentication return them, and an owner seen through them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from typing import TypeAlias

from clew.domain.errors import Invalid
from clew.domain.items import contains, same
from clew.domain.thread import Json, Owner
from clew.ports.thread_metadata import leaves

# Filters inside of filters, as in LangGraph.
DEEPEST = 2


@dataclass(frozen=True, slots=True, eq=False)
class Equals:
    """The metadata has this value under this name; an object has at least these fields."""

    name: str
    value: Json

    def matches(self, metadata: Mapping[str, Json]) -> bool:
        return contains(metadata, {self.name: self.value})

    @property
    def leaves(self) -> Mapping[str, str]:
        return leaves({self.name: self.value})


@dataclass(frozen=True, slots=True, eq=False)
class Contains:
    """The metadata has a list under this name, and all of these values are in it."""

    name: str
    values: Sequence[Json]

    def matches(self, metadata: Mapping[str, Json]) -> bool:
        found = metadata.get(self.name)
        return isinstance(found, list) and all(
            any(same(one, value) for one in found) for value in self.values
        )

    @property
    def path(self) -> str:
        return dumps([self.name])


@dataclass(frozen=True, slots=True, eq=False)
class AllOf:
    parts: Sequence["MetadataFilter"]

    def matches(self, metadata: Mapping[str, Json]) -> bool:
        return all(part.matches(metadata) for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf:
    parts: Sequence["MetadataFilter"]

    def matches(self, metadata: Mapping[str, Json]) -> bool:
        return any(part.matches(metadata) for part in self.parts)


MetadataFilter: TypeAlias = Equals | Contains | AllOf | AnyOf

EVERYTHING = AllOf(())
NOTHING = AnyOf(())


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredOwner(Owner):
    """What no handler was asked about is hidden: a filter that was not set matches nothing."""

    threads: MetadataFilter = NOTHING
    assistants: MetadataFilter = NOTHING
    crons: MetadataFilter = NOTHING
    # Written to each thread that is opened for this owner, in the same transaction.
    metadata: Mapping[str, Json] = field(default_factory=dict, compare=False)


def plain(owner: Owner) -> Owner:
    """Without filters: what is stored as the owner of something."""
    return Owner(tenant=owner.tenant, user_id=owner.user_id)


def read_filter(given: Mapping[str, Json], depth: int = 0) -> MetadataFilter:
    """A handler's filter. Raises Invalid for one that says something else than it may: ignored, it would let more in."""
    if depth > DEEPEST:
        raise Invalid(f"a filter has at most {DEEPEST} levels of $or and $and")
    parts: list[MetadataFilter] = []
    for name, value in given.items():
        if name in ("$or", "$and"):
            groups = [read_filter(group, depth + 1) for group in _groups(name, value)]
            parts.append(AnyOf(groups) if name == "$or" else AllOf(groups))
        else:
            parts += _conditions(name, value)
    return parts[0] if len(parts) == 1 else AllOf(parts)


def _groups(name: str, value: Json) -> Sequence[Mapping[str, Json]]:
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(one, Mapping) for one in value):
        raise Invalid(f"{name} of a filter is a list of at least two filters")
    return value


def _conditions(name: Json, value: Json) -> Sequence[MetadataFilter]:
    if not isinstance(name, str) or name.startswith("$"):
        raise Invalid(f"a filter has no operator {name!r} here")
    if not isinstance(value, Mapping) or not any(str(key).startswith("$") for key in value):
        return [_equals(name, value)]
    return [_condition(name, operator, wanted) for operator, wanted in value.items()]


def _condition(name: str, operator: Json, wanted: Json) -> MetadataFilter:
    match operator:
        case "$eq":
            return _equals(name, wanted)
        case "$contains":
            return Contains(name, tuple(wanted) if isinstance(wanted, list | tuple | set) else (wanted,))
        case _:
            raise Invalid(f"a filter has no operator {operator!r}")


def _equals(name: str, value: Json) -> Equals:
    found = Equals(name, value)
    try:
        _ = found.leaves  # what cannot be stored as metadata cannot be compared with it
    except TypeError as exc:
        raise Invalid(f"the value of {name!r} in a filter is not JSON") from exc
    return found
