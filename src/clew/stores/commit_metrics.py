"""Commit metrics: how many commits there are and how long they take, with the rounds and tool calls that end in them."""

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Protocol, runtime_checkable

from clew.domain.errors import ClewError
from clew.domain.events import RoundFinished
from clew.domain.lifecycle import Change
from clew.domain.tool_calls import Call
from clew.telemetry import Metrics


@runtime_checkable
class Gathers(Protocol):
    """A writer that puts several changes into one transaction, and reports how many."""

    on_batch: Callable[[int], None]


class CommitMetrics:
    def __init__(self, metrics: Metrics, backend: str) -> None:
        self._metrics = metrics
        self._backend = backend
        # Finding one takes longer than counting.
        self._seconds = metrics.commit_seconds.labels(backend)
        self._counter = cache(lambda outcome: metrics.commits.labels(backend, outcome))
        self.observers: list[Callable[[Change], None]] = []

    def observe_batches(self, parts: Iterable[object]) -> None:
        """SQLite's writer gathers all writes, Postgres' store those to threads."""
        for part in parts:
            if isinstance(part, Gathers):
                part.on_batch = self._metrics.commit_batch.labels(self._backend).observe

    @contextmanager
    def timed(self) -> Generator[None]:
        outcome = "failed"
        started = time.perf_counter()
        try:
            yield
            outcome = "saved"
        except ClewError as exc:
            outcome = exc.code.lower()
            raise
        finally:
            self._counter(outcome).inc()
            self._seconds.observe(time.perf_counter() - started)

    def count(self, change: Change, ended: Iterable[Call]) -> None:
        for observe in self.observers:
            observe(change)
        for call in ended:
            self._metrics.tool_calls.labels(call.executor, call.status).inc()
        if change.read_at == 0:
            return  # it may be made with a round that is over: then nothing has run
        for event in change.events:
            if isinstance(event.body, RoundFinished):
                graph, began = change.thread.graph, change.thread.round_started_at
                self._metrics.rounds.labels(graph, event.body.status).inc()
                if began is not None:
                    self._metrics.round_seconds.labels(graph).observe((event.at - began).total_seconds())
