"""Health checks and metrics: whether this process lives, whether it can serve requests, and its counters."""

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from clew.api.access import PUBLIC, needs
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import HealthOut
from clew.domain.errors import Unavailable
from clew.telemetry import Metrics

READY_SECONDS = 2.0


class Readiness:
    """Asks the database whether it answers; concurrent requests share the answer."""

    def __init__(
        self, ping: Callable[[], Awaitable[object]], stopping: asyncio.Event, seconds: float = READY_SECONDS
    ) -> None:
        self._ping = ping
        self._stopping = stopping
        self._seconds = seconds
        self._asking: asyncio.Future[object] | None = None

    async def check(self) -> None:
        """Raises Unavailable."""
        if self._stopping.is_set():
            raise Unavailable("this process is stopping")
        # One question at a time: a database that hangs must not collect them.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ping())
        done, _ = await asyncio.wait([self._asking], timeout=self._seconds)
        if not done:
            raise Unavailable("the database did not answer in time")
        self._asking.result()


def health_router(readiness: Readiness, metrics: Metrics) -> APIRouter:
    router = Router(tags=["health"])

    @router.get("/health", dependencies=[PUBLIC])
    async def health() -> HealthOut:
        """The process is alive; says nothing about the database."""
        return HealthOut(status="ok")

    @router.get("/ready", dependencies=[PUBLIC], responses=errors(Unavailable))
    async def ready() -> HealthOut:
        """The database answers, so requests can be served."""
        await readiness.check()
        return HealthOut(status="ready")

    @router.get(
        "/metrics",
        dependencies=[needs("metrics")],
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def counters() -> Response:
        """Counters and timers for Prometheus."""
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return router
