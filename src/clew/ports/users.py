"""Authenticated users: who a project's own authentication handler says is calling."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Final

from clew.domain.thread import Json

BASIC: Final = ("identity", "display_name", "is_authenticated", "permissions")


class AuthUser:
    """A user as LangGraph's server hands it to handlers and nodes: fields by attribute and by key.

    `original` is the object a handler returned: it may have more attributes than fields.
    """

    def __init__(self, fields: Mapping[str, Json], original: object = None) -> None:
        """`fields` holds at least those of BASIC."""
        self._fields = dict(fields)
        self._original = original

    @property
    def identity(self) -> str:
        return str(self._fields["identity"])

    @property
    def display_name(self) -> str:
        return str(self._fields["display_name"])

    @property
    def is_authenticated(self) -> bool:
        return bool(self._fields["is_authenticated"])

    @property
    def permissions(self) -> list[str]:
        return list(self._fields["permissions"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        fields = object.__getattribute__(self, "_fields")
        if name in fields:
            return fields[name]
        return getattr(object.__getattribute__(self, "_original"), name)

    def __getitem__(self, name: str) -> Json:
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"AuthUser(identity={self.identity!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return AuthUser, (self._fields,)

    def get(self, name: str, default: Json = None) -> Json:
        return self._fields.get(name, default)

    def keys(self) -> KeysView[str]:
        return self._fields.keys()

    def values(self) -> ValuesView[Json]:
        return self._fields.values()

    def items(self) -> ItemsView[str, Json]:
        return self._fields.items()

    def model_dump(self) -> dict[str, Json]:
        return dict(self._fields)

    dict = model_dump
