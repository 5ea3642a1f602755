"""Access rules: a route states with a dependency what its caller needs; the guard reads it before the body is read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from fastapi import params
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Mount, WebSocketRoute

from clew.api.credentials import PRINCIPAL, SCOPES, Principal
from clew.api.errors import OURS, Wording
from clew.domain.errors import ClewError, Unauthenticated

# A thread is deleted, or the caller gets the error, within ten seconds on a busy machine too.
DELETION_SECONDS = 8.5


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
    context: RouteContext


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
    return [
        RouteRule(
            path=context.path or "",
            methods=frozenset(context.methods or ()),
            access=_access(context),
            context=context,
        )
        for context in iter_route_contexts(list(routes))
    ]


def _access(context: RouteContext) -> RouteAccess:
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
