"""Followed runs: how an API beside the SDK API starts a run for its caller and reads it to its end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from uuid import uuid4

from pydantic_core import from_json, to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.events import EventStream, Tell
from clew.api.headers import with_headers
from clew.api.start_policy import said
from clew.api.streams import Streams, first_of
from clew.api.thread_access import ThreadAccess
from clew.domain.assistants import Assistant, furnished
from clew.domain.errors import ClewError, NotFound, Unavailable
from clew.domain.events import RunSpec
from clew.domain.records import StreamPart
from clew.domain.redaction import without
from clew.domain.runs import Run, RunRequest
from clew.domain.thread import Json, Owner, Thread
from clew.engine.assistants import AssistantCatalog
from clew.engine.redaction import redacted_texts
from clew.engine.runs import Runs
from clew.ports.streams import PartReader, StreamParts

# How often a run without a new part is read.
LOOK_SECONDS = 2.0
# After so many quiet looks the client gets a sign of life.
QUIET_LOOKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCall:
    """A run as a client of one of these APIs asks for it. Without a thread it gets a temporary one."""

    assistant: Assistant
    thread_id: str | None = None
    input: Json = None
    resumes: bool = False
    resume: Json = None
    modes: tuple[str, ...] = ()
    subgraphs: bool = False
    config: Mapping[str, Json] = field(default_factory=dict)
    metadata: Mapping[str, Json] = field(default_factory=dict)
    run_id: str = ""
    keeps_parts: bool = False  # for clients that connect later

    def request(self, caller: Principal, runs: Runs) -> RunRequest:
        spec = RunSpec(
            run_id=self.run_id or str(uuid4()),
            assistant_id=self.assistant.id,
            graph=self.assistant.graph,
            metadata=self.metadata,
            config=self.config,
            modes=self.modes,
            subgraphs=self.subgraphs,
            is_resumable=self.keeps_parts,
            is_followed=True,
            is_temporary=self.thread_id is None,
        )
        return RunRequest(
            spec=replace(with_headers(furnished(spec, self.assistant)), user=caller.stored_user),
            input=self.input,
            message=said(self.input),
            resumes=self.resumes,
            resume=self.resume,
            user_id=caller.user_id,
            asked_at=runs.clock(),
            creates_thread=True,
            is_chosen=self.thread_id is not None,
        )


class FollowedRun:
    """One run with a reader of its stream parts. `run` is its newest state that was read."""

    def __init__(self, runs: Runs, owner: Owner, run: Run, reader: PartReader, stack: ExitStack) -> None:
        self.run = run
        self._runs = runs
        self._owner = owner
        self._reader = reader
        self._stack = stack

    @property
    def is_over(self) -> bool:
        return self.run.status.is_over

    def close(self) -> None:
        self._stack.close()

    async def thread(self) -> Thread:
        return await self._runs.store.get(self.run.thread_id, self._owner)

    async def output(self) -> Json:
        return await self._runs.output(await self.thread())

    async def parts(self) -> AsyncGenerator[StreamPart | None]:
        """The parts until the run is over; None after some quiet time. Raises NotFound if the thread is deleted."""
        hidden = await redacted_texts(self._runs.store, await self.thread())
        looks = 0
        seconds = 0.0 if self.is_over else LOOK_SECONDS
        while True:
            part = await self._reader.next(seconds)
            if part is not None:
                looks = 0
                yield replace(part, data=to_json(without(from_json(part.data), hidden))) if hidden else part
                continue
            if self.run.status.is_over:
                return
            self.run = await self._runs.get(await self.thread(), self.run.id)
            # Parts published before the run's end was logged have arrived by now.
            seconds = 0.0 if self.run.status.is_over else LOOK_SECONDS
            looks += 1
            if looks % QUIET_LOOKS == 0:
                yield None

    async def cancel(self) -> None:
        with suppress(ClewError):
            thread = await self.thread()
            await self._runs.cancel(thread, await self._runs.get(thread, self.run.id), "interrupt")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRuns:
    """What these APIs share. `assistants` says what a caller may run."""

    runs: Runs
    assistants: AssistantCatalog
    parts: StreamParts
    access: ThreadAccess
    streams: Streams
    authenticator: Authenticator

    async def thread(self, thread_id: str, owner: Owner) -> Thread | None:
        """The caller's thread of this id; None if there is none yet."""
        try:
            return await self.access.at(await self.access.kept_as(thread_id, owner), owner)
        except NotFound:
            return None

    async def start(self, caller: Principal, call: RunCall) -> FollowedRun:
        """Raises NotFound, InvalidState, Invalid, and Forbidden for an answer of a caller who may not approve."""
        if call.resumes:
            caller.require("approve")
        request = call.request(caller, self.runs)
        thread_id = str(uuid4())
        if call.thread_id is not None:
            thread_id = await self.runs.threads.own_id(call.thread_id, caller.tenant)
        with ExitStack() as stack:
            # The reader is there before the first part is written.
            reader = stack.enter_context(self.parts.follow(thread_id, request.spec.run_id))
            run = await self.runs.start(thread_id, caller.owner, request)
            return FollowedRun(self.runs, caller.owner, run, reader, stack.pop_all())

    async def follow(self, caller: Principal, run: Run) -> FollowedRun:
        """A run from its first part that is kept."""
        with ExitStack() as stack:
            reader = stack.enter_context(self.parts.follow(run.thread_id, run.id, after=0))
            return FollowedRun(self.runs, caller.owner, run, reader, stack.pop_all())

    def stream(
        self,
        caller: Principal,
        followed: FollowedRun,
        tell_all: Callable[[Tell], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
        *,
        cancels: bool = True,
    ) -> Response:
        """Server-sent events; with `cancels`, the run is cancelled when its client disconnects."""
        return FollowedStream(self, caller, followed, tell_all, headers or {}, cancels=cancels)

    def answer(
        self, caller: Principal, followed: FollowedRun, answer: Callable[[], Awaitable[Response]]
    ) -> Response:
        """One answer once the run is over. The run is cancelled when its client disconnects."""
        return FollowedAnswer(self.streams, caller, followed, answer)


async def cut_off(followed: FollowedRun, streams: Streams) -> None:
    """Cancel a run whose client is gone, unless this process stops: then the run continues elsewhere."""
    if not followed.is_over and not streams.stopping.is_set():
        await asyncio.shield(followed.cancel())


class FollowedStream(EventStream):
    first = b""
    last = b""

    def __init__(
        self,
        door: FollowedRuns,
        caller: Principal,
        followed: FollowedRun,
        tell_all: Callable[[Tell], Awaitable[None]],
        headers: Mapping[str, str],
        *,
        cancels: bool,
    ) -> None:
        super().__init__(tell_all, caller, door.streams, door.authenticator, headers=headers)
        self._followed = followed
        self._cancels = cancels

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._followed.close()
            if self._cancels:
                await cut_off(self._followed, self._streams)


class FollowedAnswer(Response):
    def __init__(
        self,
        streams: Streams,
        caller: Principal,
        followed: FollowedRun,
        answer: Callable[[], Awaitable[Response]],
    ) -> None:
        super().__init__()
        self._streams = streams
        self._caller = caller
        self._followed = followed
        self._answer = answer
        self._made: Response | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def make() -> None:
            self._made = await self._answer()

        try:
            with self._streams.one("poll", self._caller):
                await first_of(make(), gone(), self._streams.stopping.wait())
        finally:
            self._followed.close()
            await cut_off(self._followed, self._streams)
        if self._made is not None:
            await self._made(scope, receive, send)
        elif self._streams.stopping.is_set():
            raise Unavailable("this process is stopping")
