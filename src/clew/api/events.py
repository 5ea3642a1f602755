"""/api/workflows/{id}/events: a thread's log as it grows, as server-sent events."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.sse import format_sse_event
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from clew.api.access import needs
from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.errors import error_body
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.streams import TOKEN, EventType, LiveEventOut, Streams, first_of
from clew.api.thread_access import ThreadAccess
from clew.api.threads import MAX_SEQ
from clew.api.workflow_schemas import WorkflowId
from clew.domain.errors import ClewError, Invalid, NotFound, Unavailable
from clew.domain.events import AssistantMessage, Event
from clew.domain.thread import Thread
from clew.domain.views import Token
from clew.failpoints import failpoint
from clew.ports.notifier import Notifier
from clew.ports.streams import TokenListener, Tokens
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

# So many events are read at a time: what a client that reads slowly costs at most.
PAGE = 50
CHUNK_BYTES = 65_536
# Without a notification the log is read this often: one can be lost, or be published in another process.
LOOK_SECONDS = 3.0
PING_SECONDS = 15.0
# A client that reads nothing for this long is disconnected; it reconnects with the last id it saw. `clew serve` has cut
# its connection by then, so this is for other servers.
SEND_SECONDS = 35.0
RETRY_MILLISECONDS = 2000

_STREAM: Mapping[int | str, dict[str, Any]] = {
    200: {
        "description": "The events, for as long as the client stays.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

Tell = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRoutes:
    store: Store
    notifier: Notifier
    live: Tokens
    authenticator: Authenticator
    access: ThreadAccess
    streams: Streams
    send_seconds: float = SEND_SECONDS

    def router(self) -> APIRouter:
        router = Router(prefix="/api/workflows", tags=["events"])
        router.get(
            "/{workflow_id}/events",
            dependencies=[needs("read")],
            response_class=StreamingResponse,  # for the description: it lets errors be JSON
            responses={**_STREAM, **errors(Invalid, NotFound, Unavailable)},
        )(self.stream_events)
        return router

    async def stream_events(
        self,
        caller: Caller,
        workflow_id: WorkflowId,
        since: Annotated[
            int | None, Query(ge=0, le=MAX_SEQ, description="Only what comes after this sequence.")
        ] = None,
        types: Annotated[
            list[EventType] | None, Query(max_length=50, description="Only events of these types.")
        ] = None,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)] = None,
    ) -> Response:
        """The events of a workflow from its beginning, or from where the client was, and on as they happen."""
        after = _sequence(last_event_id) if last_event_id else since or 0
        thread = await self.access.at(workflow_id, caller.owner)
        reader = Reader(
            self.store,
            self.notifier,
            self.live,
            self.access,
            thread,
            after,
            frozenset(types) if types else None,
        )
        return EventStream(reader.tell_all, caller, self.streams, self.authenticator, self.send_seconds)


def events_router(
    store: Store,
    notifier: Notifier,
    live: Tokens,
    *,
    authenticator: Authenticator,
    access: ThreadAccess,
    streams: Streams,
    send_seconds: float = SEND_SECONDS,
) -> APIRouter:
    return EventsRoutes(
        store=store,
        notifier=notifier,
        live=live,
        authenticator=authenticator,
        access=access,
        streams=streams,
        send_seconds=send_seconds,
    ).router()


class Reader:
    """Reads one thread's log to one client."""

    def __init__(
        self,
        store: Store,
        notifier: Notifier,
        live: Tokens,
        access: ThreadAccess,
        thread: Thread,
        after: int,
        wanted: Collection[str] | None,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self._live = live
        self._access = access
        self._thread = thread
        self._after = after
        self._wanted = wanted

    async def tell_all(self, tell: Tell) -> None:
        """Until the thread is deleted."""
        with self._live.listen(self._wants) as speech:
            await first_of(self._tell_events(tell, speech), _tell_tokens(tell, speech))

    async def _tell_events(self, tell: Tell, speech: TokenListener) -> None:
        time = asyncio.get_running_loop().time
        told_at = time()
        with self._notifier.subscribe(self._thread.id) as subscription:
            while True:
                try:
                    thread = await self._store.get(self._thread.id, self._thread.owner)
                except NotFound:
                    await tell(_frame(LiveEventOut.of_deleted(self._thread.id)))
                    return
                self._access.keep((thread.id,))
                if self._after > thread.last_seq:
                    # The log ends before the client's position: an older copy of the database was restored.
                    await tell(_event("gap", {"since": self._after, "lastSequence": thread.last_seq}))
                    self._after = 0
                page = await self._page(thread)
                if page:
                    await self._tell(tell, thread, page, speech)
                    told_at = time()
                if len(page) < PAGE:
                    if time() - told_at >= PING_SECONDS:
                        await tell(b": ping\n\n")
                        told_at = time()
                    await subscription.wait(PING_SECONDS if thread.status.is_terminal else LOOK_SECONDS)

    async def _page(self, thread: Thread) -> Sequence[Event]:
        """Reads up to the last seq of `thread`: later events may redact what this page would show."""
        if thread.last_seq <= self._after:
            return ()
        return await self._store.read(thread.id, after=self._after, before=thread.last_seq + 1, limit=PAGE)

    async def _tell(self, tell: Tell, thread: Thread, page: Sequence[Event], speech: TokenListener) -> None:
        """Send several small events in one write: a write costs more than its bytes."""
        frames = bytearray()
        for event in page:
            if isinstance(event.body, AssistantMessage):
                speech.forget(event.body.ref)
            out = LiveEventOut.of(thread, event)
            if self._wanted is None or out.event_type in self._wanted:
                failpoint("event_published_before_sse")
                frames += _frame(out)
            self._after = event.seq
            if len(frames) >= CHUNK_BYTES:
                await tell(bytes(frames))
                frames.clear()
        if frames:
            await tell(bytes(frames))

    def _wants(self, token: Token) -> bool:
        return token.thread_id == self._thread.id and (self._wanted is None or TOKEN in self._wanted)


class EventStream(Response):
    """Sends what the reader yields while the client reads and this process runs.

    `first` and `last` are for EventSource, which connects again by itself.
    """

    media_type = "text/event-stream"
    first: bytes = format_sse_event(retry=RETRY_MILLISECONDS, comment="events follow")
    last: bytes = format_sse_event(comment="reconnect with the last id")

    def __init__(
        self,
        tell_all: Callable[[Tell], Awaitable[None]],
        caller: Principal,
        streams: Streams,
        authenticator: Authenticator,
        send_seconds: float = SEND_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._tell_all = tell_all
        self._caller = caller
        self._streams = streams
        self._authenticator = authenticator
        self._send_seconds = send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        one_at_a_time = asyncio.Lock()

        async def tell(data: bytes, *, more: bool = True) -> None:
            async with one_at_a_time, asyncio.timeout(self._send_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": more})

        async def read() -> None:
            try:
                await self._tell_all(tell)
            except ClewError as exc:
                # The answer has begun, so its status cannot change.
                logger.warning("a stream ended early", extra={"code": exc.code})
                await tell(_event("stream_error", error_body(exc.code, str(exc))))

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def check() -> None:
            await self._authenticator.caller(scope)

        with self._streams.one("sse", self._caller):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            try:
                await tell(self.first)
                await first_of(read(), gone(), self._streams.until_over(check))
                await tell(self.last, more=False)
            except TimeoutError:
                # The client cannot be reached: the connection is cut, and EventSource reconnects by itself.
                logger.info("a slow stream was closed", extra={"key_id": self._caller.key_id})


async def _tell_tokens(tell: Tell, speech: TokenListener) -> None:
    while True:
        await tell(_frame(LiveEventOut.of_token(await speech.next())))


def _frame(out: LiveEventOut) -> bytes:
    data = out.model_dump_json(by_alias=True)
    place = None if out.sequence is None else str(out.sequence)
    return format_sse_event(data_str=data, event=out.event_type, id=place)


def _event(name: str, data: object) -> bytes:
    return format_sse_event(data_str=to_json(data).decode(), event=name)


def _sequence(last_event_id: str) -> int:
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= MAX_SEQ):
        raise Invalid("this is not a valid event id", field="Last-Event-ID")
    return int(last_event_id)
