"""Routes: FastAPI's, each built by its first request. Building all of them would take half of the start-up time."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.direct import Direct, is_direct


class LazyRoute(Route):
    """Has its path, methods and dependencies at once; `built` is FastAPI's route, from the first request on."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, methods=options["methods"], name=options.get("name"))
        self.methods = set(options["methods"])  # Starlette adds HEAD, FastAPI does not
        self.dependencies = options["dependencies"] or []
        self._build = partial(APIRoute, path, endpoint, **options)
        self.app: ASGIApp = self._to_built
        if is_direct(endpoint):
            self.app = Direct(endpoint, self.param_convertors, self._to_built)

    @cached_property
    def built(self) -> APIRoute:
        return self._build()

    async def _to_built(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.built.app(scope, receive, send)


class Router(APIRouter):
    """FastAPI's, with such routes. In its description a route is called as its endpoint is."""

    def __init__(self, *, prefix: str = "", tags: list[Any] | None = None) -> None:
        super().__init__(
            prefix=prefix,
            tags=tags,
            route_class=cast(type[APIRoute], LazyRoute),
            generate_unique_id_function=lambda route: route.name,
        )
