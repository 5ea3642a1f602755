"""Guard: every request and every WebSocket passes it between Starlette's router and its route; then the body is read."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, NoReturn

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.access import RouteRule, principal_of
from clew.api.auth import Authenticator
from clew.api.bodies import Bodies, Disconnected
from clew.api.credentials import PRINCIPAL, Principal
from clew.api.direct import is_direct
from clew.api.errors import OURS, WORDING, MethodNotAllowed, Wording
from clew.api.limits import RateLimits
from clew.domain.errors import ClewError, NotFound, Unauthenticated, Unavailable

# Under this key a request's scope says which rule let it in.
RULE = "clew.rule"

_KEYS = frozenset({b"authorization", b"x-api-key", b"x-telegram-bot-api-secret-token"})
_SIGNATURE = b"msg_signature="  # of WeCom, in the address


class Guard:
    """Lets a request through when its route allows it; raises the error otherwise."""

    def __init__(
        self, app: ASGIApp, *, authenticator: Authenticator, limits: RateLimits, bodies: Bodies
    ) -> None:
        self._app = app
        self._bodies = bodies
        self._limits = limits
        self._authenticator = authenticator

    def routes(self, rules: Sequence[RouteRule]) -> list[BaseRoute]:
        """The routes behind this guard. Those that are polled come first, as they are tried in order."""
        in_order = sorted(rules, key=lambda rule: not is_direct(rule.context.endpoint))
        return [GuardedRoute(rule, self) for rule in in_order]

    def not_found(self, rules: Sequence[RouteRule]) -> ASGIApp:
        return partial(self._not_found, rules)

    async def handle(self, scope: Scope, receive: Receive, send: Send, rule: RouteRule) -> None:
        scope[RULE] = rule
        scope[WORDING] = rule.access.wording
        try:
            async with _in_time(rule.access.seconds):
                if rule.access.scope is not None:
                    rule.access.check(await self._caller(scope))
                await self._to_route(scope, receive, send, rule)
        except Disconnected:
            return
        except Unauthenticated:
            # By Clew, or by a route that checks its own credential.
            self._count_wrong_key(scope)
            raise
        except Unavailable as exc:
            # Not what is only a kind of it: a full disk, or a caller who asks for too much.
            if rule.access.outage is None or type(exc) is not Unavailable:
                raise
            raise rule.access.outage(**scope["path_params"]) from exc

    async def _to_route(self, scope: Scope, receive: Receive, send: Send, rule: RouteRule) -> None:
        if not self._bodies.reads(rule.access, scope):
            await self._app(scope, receive, send)
            return
        async with self._bodies.whole(rule.access, scope, receive, send) as (body, answer):
            await self._app(scope, body, answer)

    async def refuse(self, scope: Scope, wording: Wording, error: ClewError) -> NoReturn:
        """Raises the error. A caller without a key gets another: it cannot even learn which routes exist."""
        scope[WORDING] = wording
        await self.authenticate(scope)
        raise error

    async def authenticate(self, scope: Scope) -> Principal:
        """The caller, also of a request that no rule is about. Raises what the authenticator raises."""
        try:
            return await self._caller(scope)
        except Unauthenticated:
            self._count_wrong_key(scope)
            raise

    async def _not_found(self, rules: Sequence[RouteRule], scope: Scope, *_: Receive | Send) -> None:
        first = _first_part(scope["path"].removeprefix(scope.get("root_path", "")))
        # Of the routes that begin as this path does; ours if none does.
        words = (rule.access.wording for rule in rules if _first_part(rule.path) == first)
        await self.refuse(scope, next(words, OURS), NotFound("no such route"))

    async def _caller(self, scope: Scope) -> Principal:
        scope[PRINCIPAL] = principal = await self._authenticator.caller(scope)
        self._limits.count_request(principal)
        return principal

    def _count_wrong_key(self, scope: Scope) -> None:
        if _shows_proof(scope):
            self._limits.count_wrong_key(address_of(scope))


class GuardedRoute(BaseRoute):
    """A route behind the guard. Starlette's router asks it as it asks any route; FastAPI's route answers."""

    def __init__(self, rule: RouteRule, guard: Guard) -> None:
        self.methods = rule.methods
        self._rule = rule
        self._guard = guard
        self._matches = rule.context.matches

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found: tuple[Match, Scope] = self._matches(scope)
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in self.methods:
            allowed = MethodNotAllowed(", ".join(sorted(_methods_of(scope))))
            await self._guard.refuse(scope, self._rule.access.wording, allowed)
        await self._guard.handle(scope, receive, send, self._rule)


def _methods_of(scope: Scope) -> set[str]:
    """Of all routes with this path."""
    found = (route for route in scope["router"].routes if route.matches(scope)[0] is not Match.NONE)
    return {method for route in found for method in route.methods}


def _first_part(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


@asynccontextmanager
async def _in_time(seconds: float | None) -> AsyncGenerator[None]:
    """Raises Unavailable when the time is over. What the database was asked by then it may still do."""
    if seconds is None:
        yield
        return
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield
    except TimeoutError:
        if not deadline.expired():
            raise
        raise Unavailable("the database did not answer in time") from None


def _shows_proof(scope: Scope) -> bool:
    return any(name in _KEYS for name, _ in scope["headers"]) or _SIGNATURE in scope.get("query_string", b"")


def address_of(scope: Scope) -> str:
    """The address of the connected peer, which may be a proxy. A peer on a Unix socket has none."""
    client = scope.get("client")
    return client[0] if client else ""


async def _caller(connection: HTTPConnection) -> Principal:  # async: FastAPI runs a plain one in a thread
    return principal_of(connection)


Caller = Annotated[Principal, Depends(_caller)]
