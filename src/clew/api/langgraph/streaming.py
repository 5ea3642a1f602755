"""What a run streams, as LangGraph's clients read it: server-sent events, named by mode."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack

from fastapi.sse import format_sse_event
from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.events import EventStream, Tell
from clew.api.streams import Streams
from clew.domain.records import Chunk
from clew.domain.runs import Run, RunStatus
from clew.domain.thread import Json
from clew.engine.ordering import Ordering
from clew.ports import Follower

# Without a bell one looks this often whether the run is over.
LOOK_SECONDS = 2.0
PING_SECONDS = 15.0
# A client that waits for an answer hears this often that somebody is there.
HEARTBEAT_SECONDS = 5.0


class RunStream(EventStream):
    """Follows one run to its end; if the client goes before that, `cut_off` is called."""

    def __init__(
        self,
        ordering: Ordering,
        run: Run,
        follower: Follower,
        stack: ExitStack,
        caller: Principal,
        *,
        streams: Streams,
        authenticator: Authenticator,
        headers: dict[str, str],
        cut_off: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(self._tell_run, caller, streams, authenticator, headers=headers)
        self._ordering = ordering
        self._run = run
        self._follower = follower
        self._stack = stack
        self._owner = caller.owner
        self._cut_off = cut_off
        self._is_over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stack.close()
            if not self._is_over and self._cut_off is not None and not self._streams.stopping.is_set():
                await asyncio.shield(self._cut_off())

    async def _tell_run(self, tell: Tell) -> None:
        metadata = {"run_id": self._run.id, "attempt": 1}
        await tell(_frame(Chunk(0, "metadata", to_json(metadata)), numbered=False))
        quiet = 0.0
        while True:
            chunk = await self._follower.next(LOOK_SECONDS)
            if chunk is not None:
                quiet = 0.0
                await tell(_frame(chunk, numbered=self._run.order.is_resumable))
                continue
            thread = await self._ordering.store.get(self._run.thread_id, self._owner)
            run = await self._ordering.get(thread, self._run.id)
            if run.status.is_over:
                # What was told before the end was in the log is here by now.
                while (chunk := await self._follower.next(0)) is not None:
                    await tell(_frame(chunk, numbered=run.order.is_resumable))
                await tell(_last(run))
                self._is_over = True
                return
            quiet += LOOK_SECONDS
            if quiet >= PING_SECONDS:
                await tell(b": heartbeat\n\n")
                quiet = 0.0


def waiting(
    ordering: Ordering, run: Run, caller: Principal, headers: dict[str, str], *, streams: Streams
) -> StreamingResponse:
    """The values the run ends with, once it is over. Until then now and then a line break, which JSON does not mind."""

    async def parts() -> AsyncGenerator[bytes]:
        with streams.one("poll", caller):
            while True:
                now = await ordering.rested(run.thread_id, caller.owner, run.id, HEARTBEAT_SECONDS)
                if now.status.is_over:
                    break
                yield b"\n"
            yield to_json(await outcome(ordering, now, caller))

    return StreamingResponse(parts(), media_type="application/json", headers=headers)


async def outcome(ordering: Ordering, run: Run, caller: Principal) -> Json:
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        return {"__error__": _failure(run)}
    thread = await ordering.store.get(run.thread_id, caller.owner)
    return await ordering.output(thread)


def _frame(chunk: Chunk, *, numbered: bool) -> bytes:
    place = str(chunk.number) if numbered else None
    return format_sse_event(data_str=chunk.data.decode(), event=chunk.name, id=place)


def _last(run: Run) -> bytes:
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        return format_sse_event(data_str=to_json(_failure(run)).decode(), event="error")
    return format_sse_event(data_str=to_json({"status": run.status}).decode(), event="end")


def _failure(run: Run) -> dict[str, str]:
    """The exception's own name and words, where it had any."""
    name, _, words = run.error.partition(": ")
    if name.isidentifier():
        return {"error": name, "message": words}
    name = "TimeoutError" if run.status is RunStatus.TIMEOUT else "RunFailed"
    return {"error": name, "message": run.reason}
