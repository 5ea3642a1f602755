"""Guard: every request and every WebSocket passes it before a route sees it; what no rule allows is denied."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.access import RouteRule, RouteTable, principal_of
from clew.api.auth import Authenticator
from clew.api.credentials import PRINCIPAL, Principal
from clew.api.errors import WORDING, MethodNotAllowed
from clew.api.limits import RateLimits
from clew.domain.errors import NotFound, Unauthenticated, Unavailable

# Under this key a request's scope says which rule let it in.
RULE = "clew.rule"

_KEYS = frozenset({b"authorization", b"x-api-key", b"x-telegram-bot-api-secret-token"})
_SIGNATURE = b"msg_signature="  # of WeCom, in the address


class Guard:
    """Lets a request through when a rule allows it; raises the error otherwise. A path without a rule is not found."""

    def __init__(
        self, app: ASGIApp, *, rules: Sequence[RouteRule], authenticator: Authenticator, limits: RateLimits
    ) -> None:
        self._app = app
        self._limits = limits
        self._table = RouteTable(rules)
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rule, mismatch = self._find(scope)
        try:
            async with _in_time(rule):
                if rule is None or rule.access.scope is not None:
                    await self._admit(scope, rule, mismatch)
                await self._app(scope, receive, send)
        except Unauthenticated:
            # By Clew, or by a route that checks its own credential.
            if _shows_proof(scope):
                self._limits.count_wrong_key(address_of(scope))
            raise
        except Unavailable as exc:
            # Not what is only a kind of it: a full disk, or a caller who asks for too much.
            if rule is None or rule.access.outage is None or type(exc) is not Unavailable:
                raise
            raise rule.access.outage(**scope["path_params"]) from exc

    def _find(self, scope: Scope) -> tuple[RouteRule | None, MethodNotAllowed | None]:
        try:
            found = self._table.find(scope)
        except MethodNotAllowed as exc:
            scope[WORDING] = self._table.wording_of(scope)
            return None, exc
        if found is None:
            scope[WORDING] = self._table.wording_of(scope)
            return None, None
        rule, scope["path_params"] = found
        scope["endpoint"] = rule.endpoint
        scope[RULE] = rule
        scope[WORDING] = rule.access.wording
        return rule, None

    async def _admit(self, scope: Scope, rule: RouteRule | None, mismatch: MethodNotAllowed | None) -> None:
        # Before anything is said about the route: a caller without a key cannot even learn which routes exist.
        principal = await self._authenticator.caller(scope)
        scope[PRINCIPAL] = principal
        self._limits.count_request(principal)
        if mismatch is not None:
            raise mismatch
        if rule is None:
            raise NotFound("no such route")
        rule.access.check(principal)


@asynccontextmanager
async def _in_time(rule: RouteRule | None) -> AsyncGenerator[None]:
    """Raises Unavailable when the rule's time is over. What the database was asked by then it may still do."""
    deadline = asyncio.timeout(None if rule is None else rule.access.seconds)
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
