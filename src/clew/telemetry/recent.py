"""Recent metrics: the counters of one process, minute by minute, kept in memory for a few hours."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from prometheus_client import Histogram

from clew.telemetry.metrics import Metrics

KEPT = timedelta(hours=6)
STEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """What happened between two readings. A quantile is None if nothing was timed."""

    at: datetime
    seconds: float
    rounds: int
    failed_rounds: int
    round_p50: float | None
    round_p95: float | None
    requests: int
    errors: int
    """Requests answered with a status of 500 or above."""
    request_p50: float | None
    request_p95: float | None
    running: int
    waiting: int
    """Threads that wait for a person or a client."""


@dataclass(frozen=True, slots=True)
class _Reading:
    at: datetime
    totals: Mapping[str, float]
    buckets: Mapping[str, Sequence[tuple[float, float]]]


class RecentMetrics:
    def __init__(self, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._points: deque[MetricPoint] = deque(maxlen=int(KEPT.total_seconds() / STEP_SECONDS))
        self._waiting = 0
        self._last = self._read()

    def sample(self, waiting: int) -> None:
        """Add the minute that ends now. `waiting` is how many threads wait."""
        self._waiting = waiting
        now = self._read()
        if now.at - self._last.at < timedelta(seconds=1):  # the server has just started
            return
        self._points.append(self._between(self._last, now))
        self._last = now

    def points(self) -> list[MetricPoint]:
        """The oldest first; the last one is the minute under way."""
        return [*self._points, self._between(self._last, self._read())]

    def _read(self) -> _Reading:
        metrics = self._metrics
        return _Reading(
            at=self._clock(),
            totals={
                "rounds": _total(metrics, "clew_rounds_total"),
                "failed": _total(metrics, "clew_rounds_total", lambda of: of["status"] == "failed"),
                "requests": _total(metrics, "clew_http_requests_total"),
                "errors": _total(metrics, "clew_http_requests_total", lambda of: of["status"] >= "500"),
                "running": _total(metrics, "clew_threads_running"),
            },
            buckets={"round": _buckets(metrics.round_seconds), "request": _buckets(metrics.http_seconds)},
        )

    def _between(self, old: _Reading, new: _Reading) -> MetricPoint:
        def grown(name: str) -> int:
            return int(new.totals[name] - old.totals[name])

        def quantile(name: str, share: float) -> float | None:
            before = dict(old.buckets[name])
            return quantile_of([(le, count - before.get(le, 0)) for le, count in new.buckets[name]], share)

        return MetricPoint(
            at=new.at,
            seconds=(new.at - old.at).total_seconds(),
            rounds=grown("rounds"),
            failed_rounds=grown("failed"),
            round_p50=quantile("round", 0.5),
            round_p95=quantile("round", 0.95),
            requests=grown("requests"),
            errors=grown("errors"),
            request_p50=quantile("request", 0.5),
            request_p95=quantile("request", 0.95),
            running=int(new.totals["running"]),
            waiting=self._waiting,
        )


def quantile_of(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """As Prometheus estimates it: between the limits of the bucket in which it lies. `buckets` count cumulatively."""
    total = buckets[-1][1] if buckets else 0
    if total <= 0:
        return None
    wanted, below, limit = share * total, 0.0, 0.0
    for le, count in buckets:
        if count >= wanted:
            if math.isinf(le) or count == below:
                return limit
            return limit + (le - limit) * (wanted - below) / (count - below)
        below, limit = count, le
    return limit


def _total(
    metrics: Metrics, name: str, wanted: Callable[[Mapping[str, str]], bool] = lambda _: True
) -> float:
    return sum(
        sample.value
        for family in metrics.registry.collect()
        if name.removesuffix("_total") == family.name
        for sample in family.samples
        if sample.name == name and wanted(sample.labels)
    )


def _buckets(histogram: Histogram) -> list[tuple[float, float]]:
    """Of all labels together."""
    counts: dict[float, float] = {}
    for family in histogram.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                le = float(sample.labels["le"])
                counts[le] = counts.get(le, 0) + sample.value
    return sorted(counts.items())
