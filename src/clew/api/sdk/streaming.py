"""Run streams: server-sent events named by stream mode, as LangGraph's clients read them."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from fastapi.sse import format_sse_event
from pydantic_core import from_json, to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.events import EventStream, Tell
from clew.api.streams import Streams, first_of
from clew.domain.errors import Corrupt, NotFound, SchemaMismatch
from clew.domain.records import StreamPart
from clew.domain.redaction import without
from clew.domain.runs import Run, RunStatus
from clew.domain.thread import Json, Thread
from clew.engine.redaction import redacted_texts
from clew.engine.runs import Runs
from clew.ports.notifier import Subscription
from clew.ports.streams import PartReader

CutOff: TypeAlias = Callable[[], Awaitable[None]]

# How often a stream without a notification reads whether the run is over.
LOOK_SECONDS = 2.0
PING_SECONDS = 15.0
# How often a client that waits for an answer gets a line break.
HEARTBEAT_SECONDS = 5.0


class RunStream(EventStream):
    """Streams one run to its end; if the client disconnects before that, `cut_off` is called.

    Nothing but events: LangGraph's client for JavaScript takes a block with a `retry` for an event without data, and
    after the first id every block without an event, so that a comment must not end in an empty line.
    """

    first = b""
    last = b""

    def __init__(
        self,
        runs: Runs,
        run: Run,
        reader: PartReader,
        stack: ExitStack,
        caller: Principal,
        *,
        streams: Streams,
        authenticator: Authenticator,
        headers: dict[str, str],
        names: Collection[str] = (),
        cut_off: CutOff | None = None,
    ) -> None:
        """`names` are the parts that are wanted, if not all."""
        super().__init__(self._tell_run, caller, streams, authenticator, headers=headers)
        self._runs = runs
        self._run = run
        self._reader = reader
        self._stack = stack
        self._owner = caller.owner
        self._names = names
        self._cut_off = cut_off
        self._hidden: Sequence[str] = ()
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
        await tell(_frame("metadata", metadata))
        try:
            thread = await self._thread()
            # Nothing is redacted while a run is under way.
            self._hidden = await redacted_texts(self._runs.store, thread)
            run = await self._tell_parts(tell)
        except NotFound as exc:
            await tell(_frame("error", {"error": "NotFound", "message": str(exc)}))
        else:
            await tell(_last(run))
        self._is_over = True

    async def _tell_parts(self, tell: Tell) -> Run:
        """Until the run is over. Raises NotFound if it is deleted."""
        quiet = 0.0
        seconds = 0.0 if self._run.status.is_over else LOOK_SECONDS
        while True:
            chunk = await self._reader.next(seconds)
            if chunk is not None:
                quiet = 0.0
                await self._tell_part(tell, chunk)
                continue
            run = await self._runs.get(await self._thread(), self._run.id)
            if run.status.is_over:
                # Parts published before the run's end was logged have arrived by now.
                while (chunk := await self._reader.next(0)) is not None:
                    await self._tell_part(tell, chunk)
                return run
            quiet += LOOK_SECONDS
            if quiet >= PING_SECONDS:
                await tell(b": heartbeat\n")
                quiet = 0.0

    async def _tell_part(self, tell: Tell, chunk: StreamPart) -> None:
        if self._names and re.split(r"[/|]", chunk.name, maxsplit=1)[0] not in self._names:
            return
        data = to_json(without(from_json(chunk.data), self._hidden)) if self._hidden else chunk.data
        place = str(chunk.number) if self._run.spec.is_resumable else None
        await tell(format_sse_event(data_str=data.decode(), event=chunk.name, id=place))

    async def _thread(self) -> Thread:
        return await self._runs.store.get(self._run.thread_id, self._owner)


class JoinResponse(Response):
    """The values a run ends with, once it is over. Until then a line break at intervals, which JSON allows."""

    media_type = "application/json"

    def __init__(
        self,
        runs: Runs,
        run: Run,
        subscription: Subscription,
        stack: ExitStack,
        caller: Principal,
        *,
        streams: Streams,
        headers: dict[str, str],
        cut_off: CutOff | None = None,
    ) -> None:
        """The subscription, which the stack ends, is for the rest of the thread, and began before `run` was read."""
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._runs = runs
        self._run = run
        self._subscription = subscription
        self._stack = stack
        self._caller = caller
        self._streams = streams
        self._cut_off = cut_off
        self._is_over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - Starlette's
        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        with self._stack, self._streams.one("poll", self._caller):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            try:
                await first_of(self._answer(send), gone(), self._streams.stopping.wait())
            finally:
                if not self._is_over and self._cut_off is not None and not self._streams.stopping.is_set():
                    await asyncio.shield(self._cut_off())

    async def _answer(self, send: Send) -> None:
        try:
            values = await self._outcome(*await self._joined(send))
        except (NotFound, Corrupt, SchemaMismatch) as exc:
            values = {"__error__": {"error": type(exc).__name__, "message": str(exc)}}
        self._is_over = True
        await send({"type": "http.response.body", "body": to_json(values), "more_body": False})

    async def _joined(self, send: Send) -> tuple[Run, Thread | None]:
        """The run, once it is over; and its thread, if it had to be read."""
        run, thread = self._run, None
        loop = asyncio.get_running_loop()
        silent_since = loop.time()
        while not run.status.is_over:
            left = silent_since + HEARTBEAT_SECONDS - loop.time()
            if left <= 0:
                await send({"type": "http.response.body", "body": b"\n", "more_body": True})
                silent_since = loop.time()
                continue
            run, thread = await self._runs.join(run, self._caller.owner, self._subscription, left)
        return run, thread

    async def _outcome(self, run: Run, thread: Thread | None) -> Json:
        if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
            return {"__error__": failure(run)}
        if thread is None:
            thread = await self._runs.store.get(run.thread_id, self._caller.owner)
        return await self._runs.output(thread)


def _frame(name: str, data: Json) -> bytes:
    return format_sse_event(data_str=to_json(data).decode(), event=name)


def _last(run: Run) -> bytes:
    if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
        return _frame("error", failure(run))
    return _frame("end", {"status": run.status})


def failure(run: Run) -> dict[str, str]:
    """The exception's own name and message, where it had any."""
    name, _, words = run.error.partition(": ")
    if name.isidentifier():
        return {"error": name, "message": words}
    name = "TimeoutError" if run.status is RunStatus.TIMEOUT else "RunFailed"
    return {"error": name, "message": run.reason}
