"""What operators see of the server: recent metrics and the settings, without secrets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from fastapi import APIRouter

from clew.api.access import needs
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.telemetry.recent import RecentMetrics


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting with its value as it may be shown, and where it comes from."""

    key: str
    value: str
    source: str


class SettingOut(WireModel):
    key: str
    value: str
    """`set` or `not set` for a secret."""
    source: str


class SettingsOut(WireModel):
    settings: list[SettingOut]


class MetricPointOut(WireModel):
    at: datetime
    seconds: float
    rounds: int
    failed_rounds: int
    round_p50: float | None
    round_p95: float | None
    requests: int
    errors: int
    request_p50: float | None
    request_p95: float | None
    running: int
    waiting: int


class RecentMetricsOut(WireModel):
    points: list[MetricPointOut]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRoutes:
    recent: RecentMetrics
    settings: Sequence[ShownSetting]

    def router(self) -> APIRouter:
        router = Router(prefix="/api", tags=["operation"])
        router.get("/metrics/recent", dependencies=[needs("metrics")])(self.recent_metrics)
        router.get("/settings", dependencies=[needs("operator")])(self.list_settings)
        return router

    async def recent_metrics(self) -> RecentMetricsOut:
        """Rounds, requests, errors and durations of this process, minute by minute, for the last six hours."""
        return RecentMetricsOut(points=[MetricPointOut(**asdict(point)) for point in self.recent.points()])

    async def list_settings(self) -> SettingsOut:
        """Every setting with its value and where it comes from. Secrets are not shown."""
        return SettingsOut(
            settings=[SettingOut(key=one.key, value=one.value, source=one.source) for one in self.settings]
        )


def operation_router(recent: RecentMetrics, settings: Sequence[ShownSetting]) -> APIRouter:
    return OperationRoutes(recent=recent, settings=settings).router()
