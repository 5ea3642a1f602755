"""Lazy routes: built on their first request. Building all of them would take half of the start-up time."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send


class LateRoute(APIRoute):
    """Has its path and its access rule at once. FastAPI builds the rest on the first request, or to describe it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path = path
        self.endpoint = endpoint
        self.methods = set(options["methods"])
        self.name = endpoint.__name__
        self.dependencies = options["dependencies"]
        self.app = self._at_first
        self._options = options

    async def _at_first(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._make()
        await self.app(scope, receive, send)

    def __getattr__(self, name: str) -> Any:
        if not self._make():
            raise AttributeError(name)
        return getattr(self, name)

    def _make(self) -> bool:
        """Whether it is not built yet."""
        options = self.__dict__.pop("_options", None)
        if options is None:
            return False
        super().__init__(self.path, self.endpoint, **options)
        return True


class Router(APIRouter):
    """FastAPI's, with such routes. In its description a route is called as its endpoint is."""

    def __init__(self, *, prefix: str = "", tags: list[Any] | None = None) -> None:
        super().__init__(
            prefix=prefix,
            tags=tags,
            route_class=LateRoute,
            generate_unique_id_function=lambda route: route.name,
        )
