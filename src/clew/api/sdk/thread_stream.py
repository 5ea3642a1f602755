"""/threads/{id}/stream: one thread over all its runs, as server-sent events."""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Header, Path, Query
from fastapi.sse import format_sse_event
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.events import EventStream, Tell
from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.run_schemas import Id
from clew.api.sdk.runs import STREAM
from clew.api.sdk.streaming import failure
from clew.api.sdk.thread_follower import Heard, Quiet, RunBegan, RunEnded, ThreadFollower
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import ClewError, Invalid, NotFound
from clew.domain.records import StreamPart
from clew.domain.runs import RunStatus
from clew.domain.thread import Json, Thread
from clew.engine.runs import Runs
from clew.engine.stream_parts import STATE_UPDATE
from clew.ports.streams import StreamParts

ThreadMode = Literal["run_modes", "lifecycle", "state_update"]
ThreadModes = Annotated[list[str], Query(max_length=20)]
# A greater number than any part has.
NEWEST = 2**62
_PLACE = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStreamRoutes:
    runs: Runs
    parts: StreamParts
    access: ThreadAccess
    streams: Streams
    authenticator: Authenticator
    read_state: Callable[[Thread], Awaitable[Json]]

    def router(self) -> APIRouter:
        router = Router(prefix="/threads", tags=["langgraph"])
        router.get(
            "/{thread_id}/stream",
            dependencies=[needs("read")],
            responses={**STREAM, **errors(Invalid, NotFound)},
            response_class=StreamingResponse,
        )(self.join_thread_stream)
        return router

    async def join_thread_stream(
        self,
        caller: Caller,
        thread_id: Annotated[Id, Path()],
        stream_mode: ThreadModes = [],  # noqa: B006 - FastAPI copies it
        stream_modes: ThreadModes = [],  # noqa: B006 - FastAPI copies it
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> Response:
        """Stream what all runs of a thread stream, from here on or from where the client was."""
        modes = _modes([*stream_mode, *stream_modes])
        await self.access.at(thread_id, caller.owner)
        newest = None
        if last_event_id is None:
            newest = await self.parts.newest(thread_id, NEWEST)
            after = newest.number if newest else 0
        else:
            after = int(last_event_id) if _PLACE.fullmatch(last_event_id) else 0
            newest = await self.parts.newest(thread_id, after)
        with ExitStack() as stack:
            reader = stack.enter_context(self.parts.follow_thread(thread_id, after=after))
            follower = ThreadFollower(self.runs, caller.owner, thread_id, reader, after=after, seen=newest)
            return ThreadStream(self, caller, thread_id, follower, modes, stack.pop_all())


class ThreadStream(EventStream):
    """Streams a thread until the client disconnects or the thread is deleted."""

    first = b""
    last = b""

    def __init__(
        self,
        routes: ThreadStreamRoutes,
        caller: Principal,
        thread_id: str,
        follower: ThreadFollower,
        modes: frozenset[str],
        stack: ExitStack,
    ) -> None:
        super().__init__(self._tell_thread, caller, routes.streams, routes.authenticator)
        self._routes = routes
        self._owner = caller.owner
        self._thread_id = thread_id
        self._follower = follower
        self._modes = modes
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._stack:
            await super().__call__(scope, receive, send)

    async def _tell_thread(self, tell: Tell) -> None:
        try:
            async for heard in self._follower.heard():
                match heard:
                    case Quiet():
                        await tell(b": heartbeat\n")
                    case StreamPart(name="state_update"):
                        if STATE_UPDATE in self._modes:
                            await tell(await self._update(heard))
                    case _:
                        for frame in self._frames(heard):
                            await tell(frame)
        except NotFound as exc:
            await tell(_frame("error", {"error": "NotFound", "message": str(exc)}))

    def _frames(self, heard: Heard) -> Iterator[bytes]:
        has_all = "run_modes" in self._modes
        match heard:
            case RunBegan(run=run) if has_all or "lifecycle" in self._modes:
                yield _frame("metadata", {"run_id": run.id, "attempt": 1})
            case StreamPart() if has_all:
                yield format_sse_event(data_str=heard.data.decode(), event=heard.name, id=str(heard.number))
            case RunEnded(run=run, number=number):
                if has_all and run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
                    yield _frame("error", failure(run))
                if has_all or "lifecycle" in self._modes:
                    yield _frame("metadata", {"status": "run_done", "run_id": run.id}, number)
            case _:
                pass

    async def _update(self, part: StreamPart) -> bytes:
        thread = await self._routes.runs.store.get(self._thread_id, self._owner)
        try:
            state = await self._routes.read_state(thread)
        except ClewError as exc:
            state = {"error": exc.code, "message": str(exc)}
        return _frame(STATE_UPDATE, {"state": state, "thread_id": self._thread_id}, part.number)


def _modes(named: Sequence[str]) -> frozenset[str]:
    """Each given alone, or several with commas between them."""
    modes = frozenset(mode.strip() for name in named for mode in name.split(",") if mode.strip())
    known = get_args(ThreadMode)
    if unknown := sorted(modes - {*known}):
        raise Invalid(
            f"there is no stream mode {unknown[0][:80]!r} of threads, only {', '.join(known)}",
            field="stream_mode",
        )
    return modes or frozenset({"run_modes"})


def _frame(name: str, data: Json, number: int | None = None) -> bytes:
    return format_sse_event(
        data_str=to_json(data).decode(), event=name, id=None if number is None else str(number)
    )
