"""What a route asks of its caller, declared on its endpoint; and the table of all routes the guard reads it from."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, Mount, WebSocketRoute, compile_path
from starlette.types import Scope

from clew.api.credentials import SCOPES
from clew.api.errors import MethodNotAllowed

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_DECLARED = "__clew_access__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`scope` is what the caller's key must have, None for a route open to everybody.

    A `stream` of bytes is handed to the endpoint as it comes; any other body is read and checked before.
    """

    scope: str | None
    body: Literal["whole", "stream"] = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One route as the guard sees it. A WebSocket has no methods."""

    path: str
    methods: frozenset[str]
    access: Access
    pattern: re.Pattern[str]

    @property
    def is_websocket(self) -> bool:
        return not self.methods


def needs(scope: str, *, body: Literal["whole", "stream"] = "whole") -> Callable[[Endpoint], Endpoint]:
    """The endpoint is for callers with this scope."""
    if scope not in SCOPES:
        raise ValueError(f"no scope {scope!r}; there are {', '.join(SCOPES)}")
    return _declare(Access(scope=scope, body=body))


def public(endpoint: Endpoint) -> Endpoint:
    """The endpoint is for everybody: it tells nothing about anyone, or checks a proof of its own."""
    return _declare(Access(scope=None))(endpoint)


def rules_of(routes: Iterable[BaseRoute]) -> list[Rule]:
    """Raises TypeError for a route that does not say who may call it, so that such an app does not start."""
    return [
        Rule(
            path=context.path or "",
            methods=frozenset(context.methods or ()),
            access=_access(context),
            pattern=compile_path(context.path or "")[0],
        )
        for context in iter_route_contexts(list(routes))
    ]


def match(rules: Sequence[Rule], scope: Scope) -> Rule | None:
    """The first route that takes the request, None if there is none. Raises MethodNotAllowed."""
    path = _path_inside(scope)
    found = [rule for rule in rules if rule.pattern.match(path)]
    if scope["type"] == "websocket":
        return next((rule for rule in found if rule.is_websocket), None)
    found = [rule for rule in found if not rule.is_websocket]
    for rule in found:
        if scope["method"] in rule.methods:
            return rule
    if found:
        raise MethodNotAllowed(", ".join(sorted(frozenset().union(*(rule.methods for rule in found)))))
    return None


def _declare(access: Access) -> Callable[[Endpoint], Endpoint]:
    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARED, access)
        return endpoint

    return mark


def _access(context: Any) -> Access:
    access = getattr(context.endpoint, _DECLARED, None)
    route = context.original_route
    if isinstance(access, Access) and (context.methods or isinstance(route, WebSocketRoute)):
        return access
    kind = "a mounted app" if isinstance(route, Mount) else "the route"
    raise TypeError(
        f"{kind} {context.path} does not say who may call it: decorate its endpoint with @needs or @public"
    )


def _path_inside(scope: Scope) -> str:
    """The path as the routes know it, without the prefix a proxy shows us under."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
