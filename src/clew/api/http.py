"""HTTP application: the routers, and the middleware around them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.routing import Router as StarletteRouter
from starlette.types import ASGIApp, Receive, Scope, Send

from clew import __version__
from clew.api.access import RouteRule, needs, rules_of
from clew.api.answers import AnswerMiddleware
from clew.api.audit import Audit
from clew.api.auth import Authenticator
from clew.api.authorization import Authorization
from clew.api.bodies import BODY_SECONDS, Bodies
from clew.api.cors import Cors
from clew.api.custom_app import UNSHADOWED, CustomApp, warn_of_shadowed
from clew.api.disabled import is_disabled
from clew.api.guard import RULE, Guard
from clew.api.headers import HeaderFilter, RunHeaders
from clew.api.limits import RateLimits
from clew.api.mount_prefix import MountPrefix
from clew.api.observe import Observe
from clew.api.openapi import SecuritySchemes, add_custom, describe
from clew.api.routing import Router
from clew.api.tenant_ids import ChosenIds, TenantOf
from clew.telemetry import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """What a project says about the server's HTTP: `http` of langgraph.json."""

    cors: Cors = field(default_factory=Cors)
    custom: CustomApp | None = None
    run_headers: HeaderFilter = field(default_factory=HeaderFilter)
    logged_headers: HeaderFilter = field(default_factory=HeaderFilter)
    mount_prefix: str = ""
    disabled: frozenset[str] = frozenset()
    security: SecuritySchemes | None = None


def create_http(
    routers: Iterable[APIRouter],
    *,
    authenticator: Authenticator,
    metrics: Metrics,
    new_id: Callable[[], str],
    max_body_bytes: int,
    body_seconds: float = BODY_SECONDS,
    options: HttpOptions | None = None,
    limits: RateLimits | None = None,
    tenant_of: TenantOf | None = None,
    audit: Audit | None = None,
    authorization: Authorization | None = None,
) -> FastAPI:
    """Raises TypeError when a route does not say who may call it."""
    # FastAPI's own pages load scripts from elsewhere, and its document would have no rule: both are ours to serve.
    app = FastAPI(
        title="Clew",
        version=__version__,
        description="A durable backend for LangGraph agents.",
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours is in `Observe`
    )
    options = options or HttpOptions()
    rules: list[RouteRule] = []
    # Not included: that would make every route at once, and anew.
    for router in (*routers, _about(app, rules, options)):
        app.router.routes.extend(router.routes)
    rules += (rule for rule in rules_of(app.routes) if not is_disabled(rule.path, options.disabled))

    # From the inside out. FastAPI's own layers would log what was refused.
    way: ASGIApp = AsyncExitStackMiddleware(
        _to_route
    )  # FastAPI leaves in the stack what is to be closed at the end
    if tenant_of is not None:
        way = ChosenIds(way, tenant_of)
    if authorization is not None:
        way = authorization.around(way)
    if options.run_headers:
        way = RunHeaders(way, options.run_headers)
    if options.custom is not None:
        way = options.custom.around_routes(way)
    guard = Guard(
        way,
        authenticator=authenticator,
        limits=limits or RateLimits(),
        bodies=Bodies(max_bytes=max_body_bytes, seconds=body_seconds),
    )
    way = AnswerMiddleware(_router(guard, rules, options.custom, way), audit)
    way = options.cors.wrap(way)
    if options.custom is not None:
        way = options.custom.around_all(way)
    if options.mount_prefix:
        way = MountPrefix(way, options.mount_prefix)
    app.middleware_stack = Observe(way, metrics=metrics, new_id=new_id, headers=options.logged_headers)
    return app


def _router(
    guard: Guard, rules: Sequence[RouteRule], custom: CustomApp | None, inner: ASGIApp
) -> StarletteRouter:
    not_found = guard.not_found(rules)
    if custom is None:
        return StarletteRouter(guard.routes(rules), redirect_slashes=False, default=not_found)
    first = [rule for rule in rules if rule.path in UNSHADOWED]
    rest = [rule for rule in rules if rule.path not in UNSHADOWED]
    own = custom.routes(guard, inner)
    warn_of_shadowed(own, rest)
    # What nothing matches may be one of its paths with a slash too much or too few.
    redirects = StarletteRouter(own, redirect_slashes=custom.redirects_slashes, default=not_found)
    routes = [*guard.routes(first), *own, *guard.routes(rest)]
    return StarletteRouter(routes, redirect_slashes=False, default=redirects)


async def _to_route(scope: Scope, receive: Receive, send: Send) -> None:
    rule: RouteRule = scope[RULE]
    await rule.context.app(scope, receive, send)


def _about(app: FastAPI, rules: Sequence[RouteRule], options: HttpOptions) -> APIRouter:
    router = Router()

    @cache
    def document() -> dict[str, Any]:
        described = describe(app, rules, options.security)
        if options.custom is not None:
            add_custom(described, options.custom.openapi(), is_guarded=options.custom.is_guarded)
        if options.mount_prefix:
            described["servers"] = [{"url": options.mount_prefix}]
        return described

    @router.get("/openapi.json", dependencies=[needs("read")], include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return document()

    return router
