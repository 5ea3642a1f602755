"""Chat history by conversation key, in any store of LangGraph: rows in ours, chunk items in others."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

import orjson
from langgraph.store.base import BaseStore

from clew.domain.errors import ClewError, Conflict, Invalid
from clew.domain.items import check_namespace, history_namespace, storable
from clew.history import keys
from clew.history.chunks import ChunkItems
from clew.history.graph_store import GraphStore
from clew.ports.clock import Clock
from clew.ports.histories import (
    NAMESPACE,
    Histories,
    HistoryId,
    HistoryMessage,
    HistorySummary,
    NewMessage,
    Role,
    Shape,
    message_item,
)
from clew.telemetry import Metrics, channel_label, shared_metrics

logger = logging.getLogger(__name__)
T = TypeVar("T")

PAGE: Final = 500


class HistoryOutcome(StrEnum):
    """How a read or write of history went; also a label of its metrics."""

    OK = "ok"
    FALLBACK = "fallback"  # the store failed; the run goes on without
    CONFLICT = "conflict"  # other writers came first each time


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ChatHistory:
    """What was said in a conversation, whichever thread or process it was said in.

    On a GraphStore an append is atomic: every turn is stored, its messages side by side, and writers in any number of
    processes wait for each other. On any other store it is as good as that store allows; see clew.history.chunks.
    """

    def __init__(
        self,
        store: BaseStore,
        *,
        namespace: Sequence[str] = NAMESPACE,
        tenant: str | None = None,
        user_id: str = "",
        chunk_size: int = 200,
        value_field: str = "content",
        meta_key: str = "__meta__",
        metrics: Metrics | None = None,
        now: Clock = _utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """The tenant is the store's own unless one is named: a store of LangGraph's has none, there it is a label.

        So is the user, if the histories are one user's."""
        check_namespace(namespace)
        if isinstance(store, GraphStore) and tenant is not None and tenant != store.tenant:
            store = store.for_tenant(tenant)
        self._namespace = (
            (*store.root, *namespace)
            if isinstance(store, GraphStore)
            else history_namespace(namespace, tenant, user_id)
        )
        self._shape = Shape(chunk_size=chunk_size, value_field=value_field, meta_key=meta_key)
        self._metrics = metrics or shared_metrics()
        self._backend = backend_of(store)
        self._tenant = ""
        self._ours = store if isinstance(store, GraphStore) else None
        self._histories: Histories
        if isinstance(store, GraphStore):
            self._tenant = store.tenant
            self._histories = store.histories
        else:
            self._histories = ChunkItems(store=store, shape=self._shape, now=now, sleep=sleep, jitter=jitter)

    async def append(
        self, key: str, content: str, *, role: Role = "assistant", id: str | None = None
    ) -> bool:
        """Add one message from outside a turn, for example a notification. False if it could not be written.

        With an `id`, the same message sent twice is stored once.
        """
        return await self.extend(key, [NewMessage(role=role, content=content, id=id)]) is HistoryOutcome.OK

    async def extend(
        self,
        key: str,
        messages: Sequence[NewMessage],
        *,
        origin: str | None = None,
        thread_id: str | None = None,
        user_id: str = "",
    ) -> HistoryOutcome:
        """Add messages side by side. Never raises for a store that fails: it warns, counts, and says so.

        `thread_id` and `user_id` name the thread and the user that a new conversation belongs to, if it is to be deleted
        with them.

        `origin` names the work that wrote them, if it may run again after a crash: its second answer then replaces
        the first.
        """
        place = self._place(key)
        fit = [
            NewMessage(
                role=new.role, content=storable(new.content), id=None if new.id is None else storable(new.id)
            )
            for new in messages
        ]
        if not fit:
            return HistoryOutcome.OK
        outcome = HistoryOutcome.OK
        began = time.perf_counter()
        try:
            await self._run(
                self._histories.append(
                    place, fit, shape=self._shape, origin=origin, thread_id=thread_id, user_id=user_id
                )
            )
        except Exception as exc:  # noqa: BLE001 - a foreign store may raise anything, and the answer must still go out
            outcome = HistoryOutcome.CONFLICT if isinstance(exc, Conflict) else HistoryOutcome.FALLBACK
            self._failed("a turn was not added to its chat history", place, exc)
        labels = self._labels(key)
        self._metrics.history_write_ms.labels(*labels, outcome.value).observe(_ms_since(began))
        if outcome is not HistoryOutcome.OK:
            self._metrics.history_write_failures.labels(*labels, outcome.value).inc()
        return outcome

    async def tail(self, key: str, limit: int) -> Sequence[HistoryMessage]:
        """The newest messages, oldest first. Raises what the store raises, after counting it."""
        place = self._place(key)
        labels = self._labels(key)
        began = time.perf_counter()
        try:
            messages = await self._run(self._histories.tail(place, limit=limit))
        except Exception as exc:
            self._metrics.history_read_ms.labels(*labels, HistoryOutcome.FALLBACK.value).observe(
                _ms_since(began)
            )
            self._metrics.history_read_failures.labels(*labels, HistoryOutcome.FALLBACK.value).inc()
            self._failed("a chat history was not read", place, exc)
            raise
        self._metrics.history_read_ms.labels(*labels, HistoryOutcome.OK.value).observe(_ms_since(began))
        return messages

    async def reset(self, key: str, command: str) -> bool:
        """Let the next prompt begin here, as if the user had sent the reset command. Nothing is deleted."""
        return await self.append(key, command, role="user")

    async def summary(self, key: str) -> HistorySummary | None:
        """How many messages there are, and since when; None if there are none."""
        return await self._run(self._histories.summary(self._place(key)))

    async def transcript(self, key: str, *, after: int = 0) -> AsyncIterator[HistoryMessage]:
        """Every message in order, read page by page; what is added meanwhile comes too."""
        place = self._place(key)
        while page := await self._run(self._histories.read(place, after=after, limit=PAGE)):
            for message in page:
                yield message
            after = page[-1].seq

    async def export(self, key: str) -> AsyncIterator[str]:
        """The transcript as JSON lines."""
        async for message in self.transcript(key):
            yield orjson.dumps(message_item(message, self._shape.value_field)).decode() + "\n"

    async def forget(self, key: str) -> bool:
        """Delete a conversation for good; False if there was none."""
        return await self._run(self._histories.delete(self._place(key)))

    def count_truncation(self, key: str) -> None:
        self._metrics.history_truncations.labels(*self._labels(key), HistoryOutcome.OK.value).inc()

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work if self._ours is None else await self._ours.at_home(work)

    def _place(self, key: str) -> HistoryId:
        if keys.valid(key) is None:
            raise Invalid("a conversation key is 1 to 256 of letters, digits, ':', '_' and '-'", "key")
        return HistoryId(namespace=self._namespace, key=key, tenant=self._tenant)

    def _labels(self, key: str) -> tuple[str, str]:
        return self._backend, channel_label(key)

    def _failed(self, what: str, place: HistoryId, exc: Exception) -> None:
        """Logs where and what kind; never the error's own text, which may quote the message."""
        code = exc.code if isinstance(exc, ClewError) else type(exc).__name__
        where = {"namespace": list(place.namespace), "key": place.key, "backend": self._backend, "code": code}
        logger.warning(
            "%s: namespace=%s key=%s (%s)", what, "/".join(place.namespace), place.key, code, extra=where
        )


def backend_of(store: BaseStore) -> str:
    """The database under a store, as a label."""
    if isinstance(store, GraphStore):
        return store.backend
    names = " ".join(cls.__name__.lower() for cls in type(store).__mro__)
    return next((backend for backend in ("sqlite", "postgres", "memory") if backend in names), "other")


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
