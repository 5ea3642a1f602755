"""Measured store: counts and times commits, and the rounds and tool calls in them."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast, runtime_checkable

from clew.domain.errors import ClewError
from clew.domain.events import RoundFinished
from clew.domain.lifecycle import Change
from clew.ports.guards import Guard
from clew.ports.threads import Store
from clew.stores.sql.threads import ThreadRows
from clew.telemetry import Metrics


def measured(store: ThreadRows, metrics: Metrics, backend: str) -> Store:
    return cast(Store, _Measured(store, metrics, backend))


@runtime_checkable
class Gathers(Protocol):
    """A writer that puts several changes into one transaction, and reports how many."""

    on_batch: Callable[[int], None]


def observe_batches(parts: Iterable[object], metrics: Metrics, backend: str) -> None:
    """SQLite's writer gathers all writes, Postgres' store those to threads."""
    for part in parts:
        if isinstance(part, Gathers):
            part.on_batch = metrics.commit_batch.labels(backend).observe


class _Measured:
    """Stands before a store; everything but `commit` is the store's own."""

    def __init__(self, store: ThreadRows, metrics: Metrics, backend: str) -> None:
        self._store = store
        self._metrics = metrics
        self._backend = backend

    async def commit(self, change: Change, *guards: Guard) -> None:
        outcome = "failed"
        started = time.perf_counter()
        try:
            ended = await self._store.commit_calls(change, *guards)
            outcome = "saved"
        except ClewError as exc:
            outcome = exc.code.lower()
            raise
        finally:
            self._metrics.commits.labels(self._backend, outcome).inc()
            self._metrics.commit_seconds.labels(self._backend).observe(time.perf_counter() - started)
        for call in ended:
            self._metrics.tool_calls.labels(call.executor, call.status).inc()
        self._count_rounds(change)

    def _count_rounds(self, change: Change) -> None:
        if change.read_at == 0:
            return  # it may be made with a round that is over: then nothing has run
        for event in change.events:
            if isinstance(event.body, RoundFinished):
                graph, began = change.thread.graph, change.thread.round_started_at
                self._metrics.rounds.labels(graph, event.body.status).inc()
                if began is not None:
                    self._metrics.round_seconds.labels(graph).observe((event.at - began).total_seconds())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
