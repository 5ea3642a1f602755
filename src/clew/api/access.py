"""Access rules: a route states with a dependency what its caller needs; the guard reads it before the body is read."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import params
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import iter_route_contexts
from starlette.convertors import Convertor
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Mount, WebSocketRoute, compile_path
from starlette.types import ASGIApp, Scope

from clew.api.credentials import PRINCIPAL, SCOPES, Principal
from clew.api.direct import Direct, is_direct
from clew.api.errors import OURS, MethodNotAllowed, Wording
from clew.domain.errors import ClewError, Unauthenticated

# A thread is deleted, or the caller gets the error, within ten seconds on a busy machine too.
DELETION_SECONDS = 8.5

# The beginning of a parameter in the pattern of a path.
_NAMED = re.compile(r"\(\?P<\w+>")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAccess:
    """Who may call a route. As a dependency it checks the caller that the guard has authenticated.

    `scope` is what the caller's key must have, None for a public route.
    A `stream` of bytes is handed to the endpoint as it comes; any other body is read and checked before.
    `outage` makes the error for a database that does not answer, from the parameters in the path. It applies to the
    route and to the lookup of the caller's key; None sends the original error.
    `wording` sets the status and body of errors.
    `seconds` is the time limit for the answer, including the lookup of the caller's key; None for no limit.
    """

    scope: str | None
    body: Literal["whole", "stream"] = "whole"
    outage: Callable[..., ClewError] | None = None
    wording: Wording = OURS
    seconds: float | None = None

    async def __call__(
        self, connection: HTTPConnection
    ) -> None:  # async: FastAPI runs a plain one in a thread
        """Raises Unauthenticated where no guard was before the route, and what `check` raises."""
        if self.scope is not None:
            self.check(principal_of(connection))

    def check(self, principal: Principal) -> None:
        """Compare scopes. Raises Forbidden."""
        if self.scope is not None:
            principal.require(self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRule:
    """One route as the guard sees it. A WebSocket has no methods."""

    path: str
    methods: frozenset[str]
    access: RouteAccess
    pattern: re.Pattern[str]
    convertors: Mapping[str, Convertor[Any]]
    endpoint: Callable[..., Any]
    app: ASGIApp

    @property
    def is_websocket(self) -> bool:
        return not self.methods


def needs(
    scope: str,
    *,
    body: Literal["whole", "stream"] = "whole",
    outage: Callable[..., ClewError] | None = None,
    wording: Wording = OURS,
    seconds: float | None = None,
) -> params.Depends:
    """A dependency of a route, or of all routes of a router: they are for callers with this scope."""
    if scope not in SCOPES:
        raise ValueError(f"no scope {scope!r}; there are {', '.join(SCOPES)}")
    return params.Depends(
        RouteAccess(scope=scope, body=body, outage=outage, wording=wording, seconds=seconds)
    )


# The route needs no API key: it shows no user's data, or checks its own credential.
PUBLIC = params.Depends(RouteAccess(scope=None))


def principal_of(connection: HTTPConnection) -> Principal:
    """The caller that the guard has authenticated. Raises Unauthenticated where there was no guard."""
    principal: Principal | None = connection.scope.get(PRINCIPAL)
    if principal is None:
        raise Unauthenticated("this route is served without authentication")
    return principal


def rules_of(routes: Iterable[BaseRoute]) -> list[RouteRule]:
    """Raises TypeError for a route that does not say who may call it, so that such an app does not start."""
    return [_rule(context) for context in iter_route_contexts(list(routes))]


class RouteTable:
    """All routes, matched by method and path. Where two match, the first one handles the request."""

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self._rules = rules
        methods = frozenset().union(*(rule.methods for rule in rules))
        self._by_method = {
            method: _Choice([rule for rule in rules if method in rule.methods]) for method in methods
        }
        self._websockets = _Choice([rule for rule in rules if rule.is_websocket])

    def find(self, scope: Scope) -> tuple[RouteRule, dict[str, Any]] | None:
        """The route that takes the request with the parameters in its path, None if there is none.

        Raises MethodNotAllowed.
        """
        path = _path_inside(scope)
        if scope["type"] == "websocket":
            return self._websockets.find(path)
        choice = self._by_method.get(scope["method"])
        found = None if choice is None else choice.find(path)
        if found is None and (allowed := self._methods_of(path)):
            raise MethodNotAllowed(", ".join(sorted(allowed)))
        return found

    def wording_of(self, scope: Scope) -> Wording:
        """Of the routes that begin as this path does; ours if none does."""
        first = _first_part(_path_inside(scope))
        return next((rule.access.wording for rule in self._rules if _first_part(rule.path) == first), OURS)

    def _methods_of(self, path: str) -> frozenset[str]:
        return frozenset().union(*(rule.methods for rule in self._rules if rule.pattern.match(path)))


class _Choice:
    """One of several rules. All their patterns are one, so that a path is compared with all of them in one go."""

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self._rules = rules
        self._pattern = re.compile("|".join(f"({_NAMED.sub('(?:', rule.pattern.pattern)})" for rule in rules))

    def find(self, path: str) -> tuple[RouteRule, dict[str, Any]] | None:
        found = self._pattern.match(path)
        if found is None or found.lastindex is None:
            return None
        rule = self._rules[found.lastindex - 1]
        parts = rule.pattern.match(path) if rule.convertors else None
        if parts is None:
            return rule, {}
        return rule, {name: rule.convertors[name].convert(part) for name, part in parts.groupdict().items()}


def _rule(context: Any) -> RouteRule:
    access = _access(context)
    pattern, _, convertors = compile_path(context.path)
    # FastAPI leaves in the stack what is to be closed at the end.
    app: ASGIApp = AsyncExitStackMiddleware(context.app)
    if is_direct(context.endpoint):
        app = Direct(context.endpoint, convertors, app)
    return RouteRule(
        path=context.path,
        methods=frozenset(context.methods or ()),
        access=access,
        pattern=pattern,
        convertors=convertors,
        endpoint=context.endpoint,
        app=app,
    )


def _access(context: Any) -> RouteAccess:
    """Of the route, its router, and the routers that include it: one of them states it."""
    stated = [
        one.dependency
        for one in getattr(context, "dependencies", ())
        if isinstance(one.dependency, RouteAccess)
    ]
    route = context.original_route
    if len(stated) > 1:
        raise TypeError(f"the route {context.path} says more than once who may call it")
    if stated and (context.methods or isinstance(route, WebSocketRoute)):
        return stated[0]
    kind = "a mounted app" if isinstance(route, Mount) else "the route"
    raise TypeError(
        f"{kind} {context.path} does not say who may call it: add dependencies=[needs(scope)] or [PUBLIC]"
    )


def _first_part(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


def _path_inside(scope: Scope) -> str:
    """The path as the routes know it, without the prefix a proxy shows us under."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
