"""Custom web application: a project's own Starlette or FastAPI app, whose routes, middleware and lifespan are served here.

As in LangGraph its routes come before Clew's, except before those of `UNSHADOWED`.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, UnauthenticatedUser
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.access import RouteRule
from clew.api.credentials import PRINCIPAL, Principal
from clew.api.errors import WORDING
from clew.api.guard import Guard
from clew.api.observe import CUSTOM
from clew.api.sdk.errors import LANGGRAPH
from clew.domain.errors import ConfigError
from clew.domain.thread import Owner
from clew.ports.users import AuthUser

logger = logging.getLogger(__name__)

# Routes of Clew that no custom route replaces.
UNSHADOWED = frozenset({"/ok", "/health", "/ready", "/metrics", "/openapi.json"})
# Whose threads the SDK's client without a URL reaches in a route without authentication, and in the lifespan.
SERVER = Owner(tenant="default", user_id="")

_MOST_NAMED = 10
_ROUTE = "clew.custom_route"
_owner: ContextVar[Owner | None] = ContextVar("custom_route_owner", default=None)


def custom_route_owner() -> Owner | None:
    """For whom the code of a custom app that calls this acts; None in any other code."""
    return _owner.get()


class CustomApp:
    def __init__(
        self,
        app: Starlette,
        *,
        refused: Callable[[str], ConfigError],
        is_guarded: bool = False,
        auth_first: bool = False,
    ) -> None:
        """`refused` makes the error for an app that cannot be served. `is_guarded`: its routes ask for a key, as Clew's
        do. `auth_first`: its middleware runs after that."""
        self._app = app
        self._refused = refused
        self._is_guarded = is_guarded
        self._auth_first = auth_first
        self._state: dict[str, Any] = {}
        handlers = {
            key: value for key, value in app.exception_handlers.items() if key not in (500, Exception)
        }
        # Never with `debug`, which would send tracebacks to clients.
        self._endpoint: ASGIApp = ExceptionMiddleware(
            AsyncExitStackMiddleware(_to_custom_route), handlers=handlers, debug=False
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Its lifespan. Raises ConfigError where its start fails."""
        token = _owner.set(SERVER)
        try:
            lifespan = self._app.router.lifespan_context(self._app)
            state = await lifespan.__aenter__()
        except Exception as exc:
            raise self._refused(f"its lifespan failed: {type(exc).__name__}: {exc}") from exc
        finally:
            _owner.reset(token)
        self._state = dict(state or {})
        try:
            yield
        finally:
            # A failure at its end must not keep the rest of the server from closing.
            try:
                await lifespan.__aexit__(None, None, None)
            except Exception:
                logger.exception("the lifespan of http.app failed at its end")

    def around_all(self, app: ASGIApp) -> ASGIApp:
        """Its middleware around the whole server, unless authentication comes first."""
        return app if self._auth_first else self._with_middleware(app)

    def around_routes(self, app: ASGIApp) -> ASGIApp:
        """What a route does, with the caller as `request.user`; and its middleware, where authentication comes first."""

        async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
            await (self._endpoint if _ROUTE in scope else app)(scope, receive, send)

        inner = self._with_middleware(endpoint) if self._auth_first else endpoint

        async def with_user(scope: Scope, receive: Receive, send: Send) -> None:
            caller: Principal | None = scope.get(PRINCIPAL)
            if caller is not None:
                scope["user"] = user = _user(caller)
                scope["auth"] = AuthCredentials(getattr(user, "permissions", ()))
            await inner(scope, receive, send)

        return with_user

    def routes(self, guard: Guard, inner: ASGIApp) -> list["CustomRoute"]:
        """`inner` is what `around_routes` returned."""
        return [
            CustomRoute(route, self._app, guard if self._is_guarded else None, inner)
            for route in self._app.routes
        ]

    @property
    def redirects_slashes(self) -> bool:
        return self._app.router.redirect_slashes

    def openapi(self) -> dict[str, Any]:
        """Its description, if it is FastAPI's; empty if it cannot be made."""
        if not isinstance(self._app, FastAPI):
            return {}
        try:
            return self._app.openapi()
        except Exception:
            logger.exception("http.app has no OpenAPI description")
            return {}

    @property
    def is_guarded(self) -> bool:
        return self._is_guarded

    def _with_middleware(self, app: ASGIApp) -> ASGIApp:
        try:
            for factory, arguments, options in reversed(self._app.user_middleware):
                app = factory(app, *arguments, **options)
        except Exception as exc:
            raise self._refused(f"its middleware cannot be made: {type(exc).__name__}: {exc}") from exc
        handlers = self._app.exception_handlers
        handler = handlers.get(500) or handlers.get(Exception)
        if handler is not None:
            app = ServerErrorMiddleware(app, handler=handler, debug=False)

        async def in_app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["app"] = self._app
            scope["state"] = dict(self._state)
            await app(scope, receive, send)

        return in_app


class CustomRoute(BaseRoute):
    """A route of the custom app, with or without authentication before it."""

    def __init__(self, route: BaseRoute, app: Starlette, guard: Guard | None, inner: ASGIApp) -> None:
        self.methods: Iterable[str] = getattr(route, "methods", None) or ()
        self.path: str = getattr(route, "path", "")
        self._route = route
        self._app = app
        self._guard = guard
        self._inner = inner

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return self._route.matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[WORDING] = LANGGRAPH
        scope[CUSTOM] = self.path or "custom"
        scope[_ROUTE] = self._route
        scope["router"] = self._app.router  # for `url_for`
        owner = SERVER
        if self._guard is not None:
            owner = (await self._guard.authenticate(scope)).owner
        token = _owner.set(owner)
        try:
            await self._inner(scope, receive, send)
        finally:
            _owner.reset(token)


def warn_of_shadowed(custom: Sequence[CustomRoute], rules: Iterable[RouteRule]) -> None:
    """Log which routes of Clew are replaced: those whose path, with its parameters as they are written, matches."""
    requests: list[Scope] = [
        {"type": "http", "method": method, "path": rule.context.path_format, "headers": []}
        for rule in rules
        for method in sorted(rule.methods)
    ]
    hit = [one for one in requests if any(route.matches(one)[0] is Match.FULL for route in custom)]
    if hit:
        named = ", ".join(f"{one['method']} {one['path']}" for one in hit[:_MOST_NAMED])
        logger.warning("http.app replaces %d of Clew's routes: %s", len(hit), named)


def _user(caller: Principal) -> AuthUser | UnauthenticatedUser:
    """`request.user` as in LangGraph. A caller on this machine while no key exists is unknown."""
    name = caller.user_id or caller.key_id
    if caller.user is not None or not name:
        return caller.user or UnauthenticatedUser()
    scopes = sorted(caller.scopes)
    return AuthUser({"identity": name, "display_name": name, "is_authenticated": True, "permissions": scopes})


async def _to_custom_route(scope: Scope, receive: Receive, send: Send) -> None:
    route: BaseRoute = scope[_ROUTE]
    await route.handle(scope, receive, send)
