"""Deny by default: the one place every request and every WebSocket passes before a route sees it."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.access import Rule, match
from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.errors import MethodNotAllowed, refuse
from clew.domain.errors import ClewError, Forbidden, NotFound

PRINCIPAL = "clew.principal"
RULE = "clew.rule"


class Guard:
    """Lets a request through when a rule allows it. What has no rule does not exist."""

    def __init__(self, app: ASGIApp, *, rules: Sequence[Rule], authenticator: Authenticator) -> None:
        self._app = app
        self._rules = rules
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                await self._admit(scope)
            except ClewError as exc:
                await refuse(scope, receive, send, exc)
                return
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        rule, mismatch = self._find(scope)
        if rule is not None:
            scope[RULE] = rule
            if rule.access.scope is None:
                return
        # Before anything is said about the route: a stranger learns nothing, not even which routes there are.
        principal = await self._authenticator.principal(
            Headers(scope=scope), websocket=scope["type"] == "websocket"
        )
        scope[PRINCIPAL] = principal
        if mismatch is not None:
            raise mismatch
        if rule is None:
            raise NotFound("no such route")
        if rule.access.scope not in principal.scopes:
            raise Forbidden(f"this needs a key with the scope {rule.access.scope!r}")

    def _find(self, scope: Scope) -> tuple[Rule | None, MethodNotAllowed | None]:
        try:
            return match(self._rules, scope), None
        except MethodNotAllowed as exc:
            return None, exc


async def _caller(connection: HTTPConnection) -> Principal:  # async, or every request would wait for a thread
    principal: Principal = connection.scope[PRINCIPAL]
    return principal


Caller = Annotated[Principal, Depends(_caller)]
