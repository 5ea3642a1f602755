"""Open streams: how many are allowed, when they end, and the events sent through them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from clew.api.credentials import Principal
from clew.api.errors import TooMany
from clew.api.schemas import EventOut, WireModel
from clew.domain.errors import Forbidden, Unauthenticated, Unavailable
from clew.domain.events import Event, RoundFinished
from clew.domain.thread import Json, Status, Thread
from clew.domain.views import WIRE_TYPES, Token, wire_type
from clew.telemetry import Metrics

MOST = 2000
MOST_OF_ONE = 1000
CHECK_SECONDS = 5.0
TOKEN = "llm_token"  # noqa: S105 - the name of an event
DELETED = "workflow_deleted"

# Names some clients know an event by.
ALIASES = {"stage_started": "stage_changed"}
# What a client may ask for: what is in logs, and what is only live.
EVENT_TYPES = tuple(sorted({*WIRE_TYPES, TOKEN, DELETED, *ALIASES}))


def _known_type(name: str) -> str:
    """The canonical name. Raises for an unknown type: a client would wait for it for ever."""
    if name not in EVENT_TYPES:
        told = {"name": repr(name[:80]), "known": ", ".join(EVENT_TYPES)}
        raise PydanticCustomError("event_type", "there are no events of the type {name}, only {known}", told)
    return ALIASES.get(name, name)


EventType = Annotated[
    str, AfterValidator(_known_type), WithJsonSchema({"type": "string", "enum": list(EVENT_TYPES)})
]


class Streams:
    """Counts open streams. One caller gets at most a part of them, so that it cannot shut out the others."""

    def __init__(
        self,
        stopping: asyncio.Event,
        metrics: Metrics,
        *,
        most: int = MOST,
        most_of_one: int = MOST_OF_ONE,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self.stopping = stopping
        self._check_seconds = check_seconds
        self._metrics = metrics
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, kind: str, caller: Principal) -> Generator[None]:
        """Raises Unavailable when there are too many or the process stops; TooMany when the caller has its share."""
        name = f"{caller.tenant}/{caller.key_id}"
        if self.stopping.is_set():
            raise Unavailable("this process is stopping")
        if self._open[name] >= self._most_of_one:
            raise TooMany("this caller has reached its limit of open streams")
        if self._open.total() >= self._most:
            raise Unavailable("too many open streams")
        self._open[name] += 1
        self._metrics.streams.labels(kind).inc()
        try:
            yield
        finally:
            self._metrics.streams.labels(kind).dec()
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    async def until_over(self, check: Callable[[], Awaitable[object]]) -> None:
        """Until this process stops, or the caller's key is no longer valid: revoking a key ends its streams."""
        await first_of(self.stopping.wait(), self._until_refused(check))

    async def _until_refused(self, check: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(self._check_seconds)
            try:
                await check()
            except (Unauthenticated, Forbidden):
                return
            except Unavailable:
                continue


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Until one of them ends; the others are cancelled. Raises what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


class LiveEventOut(WireModel):
    """An event as clients receive it: camelCase in an HTTP stream, with underscores in a WebSocket."""

    id: str | None
    """The position to resume from: the workflow and the sequence. Live-only events have none."""
    workflow_id: str
    sequence: int | None
    event_type: str
    timestamp: datetime | None
    data: Json

    @classmethod
    def of(cls, thread: Thread, event: Event) -> Self:
        shown = EventOut.of(thread, event)
        data: dict[str, Json] = {"record_id": event.id, "round": event.round}
        if shown.redacted:
            data["redacted"] = True
        else:
            data |= shown.model_dump(mode="json")["content"]
        if isinstance(event.body, RoundFinished) and event.body.status is Status.FAILED:
            data["error"] = event.body.reason
        return cls(
            id=f"{event.thread_id}:{event.seq}",
            workflow_id=event.thread_id,
            sequence=event.seq,
            event_type=wire_type(event.body),
            timestamp=event.at,
            data=data,
        )

    @classmethod
    def of_token(cls, token: Token) -> Self:
        data = {
            "token": token.text,
            "message_id": token.message,
            "offset": token.offset,
            "agent": token.agent,
        }
        return cls(
            id=None,
            workflow_id=token.thread_id,
            sequence=None,
            event_type=TOKEN,
            timestamp=None,
            data=data,
        )

    @classmethod
    def of_deleted(cls, thread_id: str) -> Self:
        return cls(id=None, workflow_id=thread_id, sequence=None, event_type=DELETED, timestamp=None, data={})
