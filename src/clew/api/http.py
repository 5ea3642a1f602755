"""HTTP application: the routers, and the middleware around them."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from clew import __version__
from clew.api.access import RouteRule, needs, rules_of
from clew.api.auth import Authenticator
from clew.api.authorization import Authorization
from clew.api.bodies import BODY_SECONDS, Bodies
from clew.api.errors import ErrorMiddleware
from clew.api.guard import RULE, Guard
from clew.api.limits import RateLimits
from clew.api.observe import REQUEST_ID, Observe
from clew.api.openapi import SecuritySchemes, describe
from clew.api.routing import Router
from clew.api.sdk.wire import NEXT, TOTAL
from clew.api.tenant_ids import ChosenIds, ShownIds, TenantOf
from clew.telemetry import Metrics

# What a page of another origin may read of an answer's headers.
EXPOSED = ("Content-Location", "Location", "ETag", "Retry-After", "WWW-Authenticate", REQUEST_ID, TOTAL, NEXT)


def create_http(
    routers: Iterable[APIRouter],
    *,
    authenticator: Authenticator,
    metrics: Metrics,
    new_id: Callable[[], str],
    max_body_bytes: int,
    body_seconds: float = BODY_SECONDS,
    allowed_origins: Iterable[str] = (),
    limits: RateLimits | None = None,
    tenant_of: TenantOf | None = None,
    audit: Callable[[ASGIApp], ASGIApp] | None = None,
    authorization: Authorization | None = None,
    security: SecuritySchemes | None = None,
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
    # Not included: that would make every route at once, and anew.
    for router in (*routers, _about(app, security)):
        app.router.routes.extend(router.routes)

    # From the inside out. FastAPI's own layers would log what was refused.
    way: ASGIApp = AsyncExitStackMiddleware(
        _to_route
    )  # FastAPI leaves in the stack what is to be closed at the end
    if tenant_of is not None:
        way = ChosenIds(way, tenant_of)
    if authorization is not None:
        way = authorization.around(way)
    way = Bodies(way, max_bytes=max_body_bytes, seconds=body_seconds)
    guard = Guard(way, authenticator=authenticator, limits=limits or RateLimits())
    way = ErrorMiddleware(guard.router(rules_of(app.routes)))
    if tenant_of is not None:
        way = ShownIds(way)
    if audit is not None:
        way = audit(way)
    if origins := list(allowed_origins):
        way = CORSMiddleware(
            way,
            allow_origins=origins,
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            # Clients and proxies have headers of their own; none of them proves anything to us.
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    app.middleware_stack = Observe(way, metrics=metrics, new_id=new_id)
    return app


async def _to_route(scope: Scope, receive: Receive, send: Send) -> None:
    rule: RouteRule = scope[RULE]
    await rule.context.app(scope, receive, send)


def _about(app: FastAPI, security: SecuritySchemes | None) -> APIRouter:
    router = Router()

    @cache
    def document() -> dict[str, Any]:
        return describe(app, rules_of(app.routes), security)

    @router.get("/openapi.json", dependencies=[needs("read")], include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return document()

    return router
