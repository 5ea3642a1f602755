"""Items of the graph store: what may be asked of them, how filters match, and how namespaces become text and back."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import ge, gt, le, lt
from typing import Any, Final, Literal, TypeAlias

from clew.domain.errors import Invalid
from clew.domain.thread import Json

Namespace: TypeAlias = tuple[str, ...]
# An embedding of a text.
Vector: TypeAlias = tuple[float, ...]
# Which texts of an item are embedded: those that the index names, none, or those at these paths.
Fields: TypeAlias = Literal[False] | Sequence[str] | None

# `_x40` stands for "@". Ids of letters, digits, "_" and "-" stay as they are, but for one that already looks escaped.
_TO_ESCAPE = re.compile(rb"[^A-Za-z0-9_-]|_(?=x[0-9a-f]{2})")
_ESCAPED = re.compile(rb"_x([0-9a-f]{2})")

# Begins the first label of a namespace that is ours.
_TENANT = "tenant:"
_USER = "clew:user:"

# A read prolongs an item's life only when this part of it has passed: ten writes a lifetime, however often it is read.
REFRESH_AFTER: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    namespace: Namespace
    key: str
    value: Json
    created_at: datetime
    updated_at: datetime
    ttl: timedelta | None = None
    left: timedelta | None = None  # of its life, by the database's clock
    score: float | None = None  # how similar it is to what was asked for, at most 1

    @property
    def is_worn(self) -> bool:
        """Whether its life has run long enough to be worth prolonging."""
        if self.ttl is None or self.left is None:
            return False
        return timedelta(0) < self.left < self.ttl * (1 - REFRESH_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetItem:
    namespace: Namespace
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindItems:
    """Items in the namespace and below it: the newest change first, or of those with vectors the most similar first."""

    prefix: Namespace
    near: Vector | None = None
    filter: Mapping[str, Json] | None = None
    limit: int = 10
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Labels a namespace begins or ends with; `*` is any one label."""

    at: Literal["prefix", "suffix"]
    labels: Namespace

    def matches(self, namespace: Namespace) -> bool:
        if len(namespace) < len(self.labels):
            return False
        here = (
            namespace[: len(self.labels)]
            if self.at == "prefix"
            else namespace[len(namespace) - len(self.labels) :]
        )
        return all(wanted in ("*", label) for wanted, label in zip(self.labels, here, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNamespaces:
    """Namespaces that match every pattern, cut to `max_depth` labels, in order."""

    patterns: tuple[Pattern, ...] = ()
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutItem:
    """Write an item; it expires `ttl` after it was last written, or read with the wish to keep it."""

    namespace: Namespace
    key: str
    value: Json
    ttl: timedelta | None = None
    vectors: tuple[Vector, ...] = ()  # of its texts


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteItem:
    namespace: Namespace
    key: str


Question: TypeAlias = GetItem | FindItems | ListNamespaces
Answer: TypeAlias = Item | Sequence[Item] | Sequence[Namespace] | None
ItemChange: TypeAlias = PutItem | DeleteItem


def asked_below(question: Question, root: Namespace) -> Question:
    """The same question about what is below a namespace, asked as if that were all there is."""
    if not root:
        return question
    match question:
        case GetItem(namespace=namespace):
            return replace(question, namespace=(*root, *namespace))
        case FindItems(prefix=prefix):
            return replace(question, prefix=(*root, *prefix))
        case ListNamespaces(patterns=patterns, max_depth=depth):
            inside = tuple(
                replace(one, labels=(*root, *one.labels)) if one.at == "prefix" else one for one in patterns
            )
            return replace(
                question,
                patterns=(Pattern(at="prefix", labels=root), *inside),
                max_depth=None if depth is None else depth + len(root),
            )


def shown_below(answer: Answer, depth: int) -> Answer:
    """The answer to such a question, without the labels of the namespace."""
    match answer:
        case None:
            return None
        case Item():
            return replace(answer, namespace=answer.namespace[depth:])
        case _:
            return [
                replace(one, namespace=one.namespace[depth:]) if isinstance(one, Item) else one[depth:]
                for one in answer
            ]  # type: ignore[return-value]  # items or namespaces, as they came


def to_path(namespace: Namespace) -> str:
    """`("a", "b")` as `a.b.`: labels hold no period, so a text prefix that ends in one is a prefix of whole labels."""
    return "".join(f"{label}." for label in namespace)


def from_path(path: str) -> Namespace:
    return tuple(path.split(".")[:-1])


def below(prefix: Namespace) -> tuple[str, str | None]:
    """The paths in a namespace and below it: from the first text up to, not with, the second; None has no end."""
    path = to_path(prefix)
    return path, (path[:-1] + "/" if path else None)  # "/" comes right after "."


def common_prefix(patterns: Sequence[Pattern]) -> Namespace:
    """The plain labels every match begins with: as much as an index can help."""
    longest: Namespace = ()
    for pattern in patterns:
        if pattern.at == "prefix":
            labels = pattern.labels[: pattern.labels.index("*")] if "*" in pattern.labels else pattern.labels
            longest = max(longest, labels, key=len)
    return longest


_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
OPERATORS = frozenset({"$eq", "$ne", *_ORDER})


def check_filter(wanted: Json) -> None:
    """Raises Invalid for an unknown operator, or a name that is no text."""
    if isinstance(wanted, Mapping):
        for name, value in wanted.items():
            if not isinstance(name, str):
                raise Invalid("a filter names fields by text", "filter")
            if name.startswith("$") and name not in OPERATORS:
                raise Invalid(
                    f"no operator {name!r} in filters; there are {', '.join(sorted(OPERATORS))}", "filter"
                )
            check_filter(value)


def matches(value: Json, wanted: Json) -> bool:
    """Whether a JSON value is what a filter wants: for an object, every named field; for anything else, the same."""
    if isinstance(wanted, Mapping):
        if any(name.startswith("$") for name in wanted):
            return all(_holds(value, operator, other) for operator, other in wanted.items())
        return isinstance(value, Mapping) and all(
            matches(value.get(name), want) for name, want in wanted.items()
        )
    return same(value, wanted)


def _holds(value: Json, operator: str, other: Json) -> bool:
    if operator == "$eq":
        return same(value, other)
    if operator == "$ne":
        return not same(value, other)
    # Only numbers with numbers and texts with texts have an order.
    if (_is_number(value) and _is_number(other)) or (isinstance(value, str) and isinstance(other, str)):
        return _ORDER[operator](value, other)
    return False


def same(one: Json, two: Json) -> bool:
    """Equal as JSON: `true` is not 1, and a list is one however it was written."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    return bool(one == two) and isinstance(one, bool) == isinstance(two, bool)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def encode_part(text: str) -> str:
    """Any text as a part of a key; different texts never give the same part, and `decode_part` gives it back."""
    raw = text.encode("utf-8", "surrogatepass")
    return _TO_ESCAPE.sub(lambda found: b"_x%02x" % found[0][0], raw).decode("ascii")


def decode_part(part: str) -> str:
    """What `encode_part` was given, for example the user id inside `wecom_dm:zhang_x2esan`."""
    raw = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), part.encode("utf-8", "surrogatepass"))
    return raw.decode("utf-8", "surrogatepass")


def history_namespace(labels: Sequence[str], tenant: str | None = None, user_id: str = "") -> tuple[str, ...]:
    """The namespace of histories in a store that knows no tenants: the tenant, and the user if they are one user's, are
    labels of their own, so that no key can reach into another's."""
    if tenant is None:
        return tuple(labels)
    return (f"{_TENANT}{encode_part(tenant)}", *user_label(user_id), *labels)


def user_label(user_id: str) -> tuple[str, ...]:
    """The label that everything of one user begins with in the store of a tenant; none for what is the whole tenant's."""
    return (f"{_USER}{encode_part(user_id)}",) if user_id else ()


def is_of_histories(namespace: Sequence[str], usual: Sequence[str]) -> bool:
    """Whether histories are kept in there, or below: the usual namespace of theirs, or a tenant's, or a user's."""
    if namespace and namespace[0].startswith(_USER):
        namespace = namespace[1:]
    return bool(namespace) and (namespace[0] in usual[:1] or namespace[0].startswith(_TENANT))


def holds(whole: Json, part: Json) -> bool:
    """Whether one JSON value contains another as Postgres means it (`@>`): of an object these fields, of a list these
    elements in any order."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            name in whole and holds(whole[name], value) for name, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(holds(one, other) for one in whole) for other in part)
    return same(whole, part)


def contains(whole: Json, part: Json) -> bool:
    """Whether an object has every field of another, with objects inside of it treated likewise; else the same value."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(name in whole and contains(whole[name], value) for name, value in part.items())
    return same(whole, part)


def check_namespace(labels: Sequence[str]) -> None:
    """Raises Invalid for labels that could be taken for others: a path is labels with periods between them."""
    if not labels or labels[0] == "langgraph":
        raise Invalid("a namespace has at least one label, and the first is not 'langgraph'", "namespace")
    if any(not label or "." in label or storable(label) != label for label in labels):
        raise Invalid("a label of a namespace is a text without periods", "namespace")


def storable(text: str) -> str:
    """The text as every database can hold it: without NUL and without halves of characters."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", "\ufffd")
