"""A store whose commits are counted and timed."""

import time
from typing import Any, cast

from clew.domain.errors import ClewError
from clew.domain.lifecycle import Change
from clew.ports import Store
from clew.telemetry import Metrics


def measured(store: Store, metrics: Metrics, backend: str) -> Store:
    return cast(Store, _Measured(store, metrics, backend))


class _Measured:
    """Stands before a store; everything but `commit` is the store's own."""

    def __init__(self, store: Store, metrics: Metrics, backend: str) -> None:
        self._store = store
        self._metrics = metrics
        self._backend = backend

    async def commit(self, change: Change, **more: Any) -> None:
        outcome = "failed"
        started = time.perf_counter()
        try:
            await self._store.commit(change, **more)
            outcome = "saved"
        except ClewError as exc:
            outcome = exc.code.lower()
            raise
        finally:
            self._metrics.commits.labels(self._backend, outcome).inc()
            self._metrics.commit_seconds.labels(self._backend).observe(time.perf_counter() - started)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
