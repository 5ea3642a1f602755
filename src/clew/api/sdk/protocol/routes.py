"""/threads/{id}/commands and /threads/{id}/stream/events: LangGraph's thread protocol."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path
from fastapi.sse import format_sse_event
from pydantic import WithJsonSchema
from pydantic_core import to_json
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.events import EventStream, Tell
from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.protocol.commands import ProtocolCommands, error, is_command
from clew.api.sdk.protocol.events import EVENTS_PER_PART, ProtocolEvent, RunEvents
from clew.api.sdk.protocol.filters import FILTER_SCHEMA, EventFilter, whole_number
from clew.api.sdk.run_schemas import Id
from clew.api.sdk.runs import STREAM
from clew.api.sdk.thread_follower import CaughtUp, Heard, Quiet, RunBegan, RunEnded, ThreadFollower
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import StreamPart
from clew.engine.runs import Runs
from clew.engine.stream_parts import PARTS
from clew.ports.streams import StreamParts

ThreadId = Annotated[Id, Path()]
Command = Annotated[
    Any,
    Body(),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "method": {"type": "string"},
                "params": {"type": ["object", "null"]},
            },
            "required": ["id", "method"],
        }
    ),
]
Subscription = Annotated[Any, Body(), WithJsonSchema(dict(FILTER_SCHEMA))]
MALFORMED = "Protocol commands must include an integer id and string method; params is an object."
# The protocol's own form of an error, which `error` makes.
REFUSED: dict[int | str, dict[str, Any]] = {
    400: {
        "description": MALFORMED,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "type": {"const": "error"},
                        "id": {},
                        "error": {"type": "string"},
                        "message": {"type": "string"},
                    },
                    "required": ["type", "id", "error", "message"],
                }
            }
        },
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadEvents:
    """The events of one thread for one reader, after `since`."""

    follower: ThreadFollower
    since: int
    gap: Mapping[str, Any] | None  # the error to tell first, if events between are no longer kept

    async def events(self) -> AsyncGenerator[ProtocolEvent | Quiet | CaughtUp]:
        by_run: dict[str, RunEvents] = {}
        async for heard in self.follower.heard():
            if isinstance(heard, Quiet | CaughtUp):
                yield heard
                continue
            for event in _translated(by_run, heard):
                if event["seq"] > self.since:
                    yield event


def _translated(by_run: dict[str, RunEvents], heard: Heard) -> list[ProtocolEvent]:
    match heard:
        case RunBegan(run=run):
            by_run[run.id] = RunEvents(run)
            return []  # told with the first part: only then its number is known
        case StreamPart(run_id=run_id) if run_id in by_run:
            run_events = by_run[run_id]
            begun = [] if run_events.namespaces else run_events.begin(heard.number // PARTS * PARTS)
            return begun + run_events.feed(heard)
        case RunEnded(run=run, number=number) if run.id in by_run:
            run_events = by_run.pop(run.id)
            begun = [] if run_events.namespaces else run_events.begin(number - 1)
            return begun + run_events.end(run, number)
        case _:
            return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRoutes:
    runs: Runs
    parts: StreamParts
    commands: ProtocolCommands
    access: ThreadAccess
    streams: Streams
    authenticator: Authenticator

    def router(self) -> APIRouter:
        router = Router(prefix="/threads", tags=["langgraph"])
        router.post(
            "/{thread_id}/commands",
            dependencies=[needs("read")],
            responses={**REFUSED, **errors(Invalid, NotFound)},
        )(self.thread_command)
        router.post(
            "/{thread_id}/stream/events",
            dependencies=[needs("read")],
            responses={**STREAM, **errors(Invalid, NotFound)},
            response_class=StreamingResponse,
        )(self.thread_events)
        return router

    async def thread_command(self, caller: Caller, thread_id: ThreadId, message: Command) -> Response:
        """Carry out a command of the thread protocol. What is wrong with it is in the answer."""
        if not is_command(message):
            command_id = message.get("id") if isinstance(message, dict) else None
            return JSONResponse(error(command_id, "invalid_argument", MALFORMED), status_code=400)
        return JSONResponse(await self.commands.carry_out(caller, thread_id, message))

    async def thread_events(self, caller: Caller, thread_id: ThreadId, message: Subscription) -> Response:
        """Stream the events of the thread that the filter admits, from its oldest that is kept or after `since`."""
        if not isinstance(message, dict):
            raise Invalid("an object with channels is needed", field="body")
        wanted = EventFilter.of(message)
        since = whole_number(message, "since")
        await self.access.at(thread_id, caller.owner)
        with ExitStack() as stack:
            events = stack.enter_context(await self.follow(caller, thread_id, since))
            return ProtocolStream(self, caller, events, wanted, stack.pop_all())

    async def follow(
        self, caller: Principal, thread_id: str, since: int | None
    ) -> AbstractContextManager[ThreadEvents]:
        """From the beginning of the run that `since` is in: what its events are depends on those before."""
        number = (since or 0) // EVENTS_PER_PART
        # The beginning of a run has the number before that of its first part.
        seen = await self.parts.newest(thread_id, number + (number % PARTS == 0)) if since else None
        gap = None
        after = 0
        if since and (seen is None or seen.number // PARTS != number // PARTS):
            oldest = await self.parts.first(thread_id)
            gap = error(
                None,
                "resume_gap",
                f"Events after {since} are no longer kept; read the state of the thread.",
                since=since,
                min_available_seq=oldest * EVENTS_PER_PART if oldest else None,
            )
            seen = None
        elif seen is not None and seen.run_id:
            after = (await self.parts.first(thread_id, seen.run_id) or 1) - 1
        return self._following(caller, thread_id, after=after, since=since or 0, gap=gap)

    @contextmanager
    def _following(
        self, caller: Principal, thread_id: str, *, after: int, since: int, gap: Mapping[str, Any] | None
    ) -> Generator[ThreadEvents]:
        with self.parts.follow_thread(thread_id, after=after) as reader:
            follower = ThreadFollower(self.runs, caller.owner, thread_id, reader, after=after, seen=None)
            yield ThreadEvents(follower=follower, since=since, gap=gap)


class ProtocolStream(EventStream):
    """Streams events of a thread until the client disconnects or the thread is deleted."""

    first = b""
    last = b""

    def __init__(
        self,
        routes: ProtocolRoutes,
        caller: Principal,
        events: ThreadEvents,
        wanted: EventFilter,
        stack: ExitStack,
    ) -> None:
        super().__init__(self._tell_events, caller, routes.streams, routes.authenticator)
        self._events = events
        self._wanted = wanted
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._stack:
            await super().__call__(scope, receive, send)

    async def _tell_events(self, tell: Tell) -> None:
        if self._events.gap is not None:
            await tell(_frame("error", self._events.gap))
        try:
            async for event in self._events.events():
                match event:
                    case Quiet():
                        await tell(b": heartbeat\n")
                    case dict() if self._wanted.admits(event):
                        await tell(_frame(event["method"], event, event["seq"]))
                    case _:
                        pass
        except NotFound as exc:
            await tell(_frame("error", error(None, "no_such_run", str(exc))))


def _frame(name: str, data: Mapping[str, Any], number: int | None = None) -> bytes:
    return format_sse_event(
        data_str=to_json(data).decode(), event=name, id=None if number is None else str(number)
    )
