"""`auth` of langgraph.json: where the project's Auth object is, and what it says about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clew.config.project_code import CodeSource, read_handlers
from clew.config.tree import ConfigNode

CACHED_SECONDS = 60.0
MOST_CACHED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectAuth:
    """The Auth object, and what langgraph.json says beside it."""

    source: CodeSource
    schemes: Mapping[str, Any] = field(default_factory=dict)
    security: Sequence[Mapping[str, Any]] = ()
    paths: Mapping[str, Any] = field(default_factory=dict)
    cached_headers: tuple[str, ...] = ()
    cached_seconds: float = CACHED_SECONDS
    most_cached: int = MOST_CACHED


def read_project_auth(place: ConfigNode) -> ProjectAuth | None:
    """None for a project without one. Raises ConfigError."""
    source = read_handlers("auth", place, "an Auth")
    if source is None:
        return None
    given = {name: entry for name, entry in place.entries().items() if entry.value is not None}
    openapi = given["openapi"].entries() if "openapi" in given else {}
    cache = given["cache"].entries() if "cache" in given else {}
    return ProjectAuth(
        source=source,
        schemes=_object(openapi.get("securitySchemes")),
        security=_objects(openapi.get("security")),
        paths={path: _methods(methods) for path, methods in _entries(openapi.get("paths")).items()},
        cached_headers=_headers(cache.get("cache_keys")) if cache else (),
        cached_seconds=_number(cache.get("ttl_seconds"), CACHED_SECONDS),
        most_cached=int(_number(cache.get("max_size"), MOST_CACHED)),
    )


def studio_warnings(place: ConfigNode) -> tuple[str, ...]:
    """LangGraph's server lets requests of Studio past the project's handler; Clew asks it about every request."""
    found = place.entries().get("disable_studio_auth") if isinstance(place.value, dict) else None
    if found is None or found.value is not False:
        return ()
    return (f"{place.file}: {found.key} has no effect: requests of Studio pass the handler like any other",)


def _entries(place: ConfigNode | None) -> Mapping[str, ConfigNode]:
    return {} if place is None else place.entries()


def _object(place: ConfigNode | None) -> Mapping[str, Any]:
    return {name: entry.value for name, entry in _entries(place).items()}


def _objects(place: ConfigNode | None) -> Sequence[Mapping[str, Any]]:
    if place is None or place.value is None:
        return ()
    if not isinstance(place.value, list) or not all(isinstance(one, dict) for one in place.value):
        raise place.expected("a list of objects")
    return tuple(place.value)


def _methods(place: ConfigNode) -> Mapping[str, Any]:
    return {method.lower(): _objects(entry) for method, entry in place.entries().items()}


def _headers(place: ConfigNode | None) -> tuple[str, ...]:
    names = place.value if place is not None else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise (place or ConfigNode(Path(), "auth.cache.cache_keys", None)).expected("a list of header names")
    return tuple(name.lower() for name in names)


def _number(place: ConfigNode | None, usual: float) -> float:
    if place is None or place.value is None:
        return usual
    if isinstance(place.value, bool) or not isinstance(place.value, int | float) or place.value <= 0:
        raise place.expected("a number above 0")
    return float(place.value)
