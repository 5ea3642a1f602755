"""/runs and /threads/{id}/runs: start, wait for, stream, join, list, cancel and delete runs."""

import re
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import JSONResponse, Response, StreamingResponse

from clew.api.audit import note_thread
from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.direct import direct
from clew.api.guard import Caller
from clew.api.headers import with_headers
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.run_schemas import CancelIn, Id, Mode, RunIn, RunOut, Uuid
from clew.api.sdk.streaming import CutOff, JoinResponse, RunStream
from clew.api.start_policy import said
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.domain.assistants import furnished
from clew.domain.errors import ClewError, Contradictory, Invalid, InvalidState, NotFound
from clew.domain.events import PROTOCOL_MODE, RunSpec
from clew.domain.runs import Run, RunRequest, RunStatus
from clew.domain.thread import Json, Thread
from clew.engine.assistants import AssistantCatalog
from clew.engine.runs import Action, Runs
from clew.ports.notifier import Subscription
from clew.ports.streams import PartReader, StreamParts

ThreadId = Annotated[Id, Path()]
RunId = Annotated[Uuid, Path()]
# How many runs one request may start.
MOST = 100
_PLACE = re.compile(r"[0-9]{1,18}", re.ASCII)

# Each of the events.
_PART = {"type": "object", "properties": {name: {"type": "string"} for name in ("event", "data", "id")}}
STREAM: Mapping[int | str, dict[str, Any]] = {
    200: {"description": "The parts.", "content": {"text/event-stream": {"schema": _PART}}}
}


def langgraph_runs_router(routes: "RunRoutes") -> APIRouter:
    router = Router(tags=["langgraph"])
    stateless = errors(Contradictory, Invalid, NotFound)
    in_thread = errors(Contradictory, Invalid, NotFound, InvalidState)
    known = errors(Invalid, NotFound)
    busy = errors(Invalid, NotFound, InvalidState)
    stream: type[Response] = StreamingResponse
    of_thread, one = "/threads/{thread_id}/runs", "/threads/{thread_id}/runs/{run_id}"
    router.post(of_thread, dependencies=[needs("write")], responses=in_thread)(routes.create_run)
    router.post("/runs", dependencies=[needs("write")], responses=stateless)(routes.create_stateless_run)
    router.post("/runs/batch", dependencies=[needs("write")], responses=stateless)(routes.create_runs)
    router.post(f"{of_thread}/wait", dependencies=[needs("write")], responses=in_thread)(routes.wait_run)
    router.post("/runs/wait", dependencies=[needs("write")], responses=stateless)(routes.wait_stateless_run)
    router.post(
        f"{of_thread}/stream",
        dependencies=[needs("write")],
        responses={**STREAM, **in_thread},
        response_class=stream,
    )(routes.stream_run)
    router.post(
        "/runs/stream",
        dependencies=[needs("write")],
        responses={**STREAM, **stateless},
        response_class=stream,
    )(routes.stream_stateless_run)
    router.post("/runs/cancel", dependencies=[needs("write")], status_code=204, responses=known)(
        routes.cancel_runs
    )
    router.get(of_thread, dependencies=[needs("read")], response_model=list[RunOut], responses=known)(
        routes.list_runs
    )
    router.get(one, dependencies=[needs("read")], responses=known)(routes.get_run)
    router.delete(one, dependencies=[needs("write")], status_code=204, responses=busy)(routes.delete_run)
    router.post(f"{one}/cancel", dependencies=[needs("write")], responses=busy)(routes.cancel_run)
    router.get(f"{one}/join", dependencies=[needs("read")], responses=known)(routes.join_run)
    router.get(
        f"{one}/stream", dependencies=[needs("read")], responses={**STREAM, **known}, response_class=stream
    )(routes.join_stream)
    return router


class RunRoutes:
    def __init__(
        self,
        runs: Runs,
        assistants: AssistantCatalog,
        parts: StreamParts,
        *,
        access: ThreadAccess,
        streams: Streams,
        authenticator: Authenticator,
    ) -> None:
        self._runs = runs
        self._assistants = assistants
        self._parts = parts
        self._access = access
        self._streams = streams
        self._authenticator = authenticator

    async def create_run(
        self, caller: Caller, thread_id: ThreadId, body: RunIn, response: Response
    ) -> RunOut:
        """Start a run in the background."""
        run = await self.start(caller, thread_id, body)
        response.headers["Content-Location"] = _path(run)
        return RunOut.of(run)

    async def create_stateless_run(self, caller: Caller, body: RunIn, response: Response) -> RunOut:
        """Start a run in the background, in a thread of its own."""
        run = await self.start(caller, None, body)
        response.headers["Content-Location"] = _path(run)
        return RunOut.of(run)

    async def create_runs(self, caller: Caller, body: list[RunIn]) -> list[RunOut]:
        """Start several, each in a thread of its own."""
        if len(body) > MOST:
            raise Invalid(f"more than {MOST} runs", field="body")
        for one in body:  # all of them, or none
            await self._assistants.resolve(one.assistant_id, caller.owner)
            one.require_one_context()
            _require_no_answer(one)
        return [RunOut.of(await self.start(caller, None, one)) for one in body]

    @direct
    async def wait_run(self, caller: Caller, thread_id: ThreadId, body: RunIn) -> Response:
        """Start a run and answer with the values it ends with."""
        return await self._wait(caller, thread_id, body)

    @direct
    async def wait_stateless_run(self, caller: Caller, body: RunIn) -> Response:
        return await self._wait(caller, None, body)

    @direct
    async def stream_run(self, caller: Caller, thread_id: ThreadId, body: RunIn) -> Response:
        """Start a run and stream it."""
        return await self._start_streaming(caller, thread_id, body)

    @direct
    async def stream_stateless_run(self, caller: Caller, body: RunIn) -> Response:
        return await self._start_streaming(caller, None, body)

    async def cancel_runs(self, caller: Caller, body: CancelIn, action: Action = "interrupt") -> None:
        """Cancel runs of one thread: those named, or all of a status."""
        if body.thread_id is None:
            raise Invalid("needed here", field="thread_id")
        kept = await self._access.kept_as(body.thread_id, caller.owner)
        thread = await self._access.at(kept, caller.owner)
        # Queued runs first: the next one starts when the one under way has ended.
        for run in reversed(await self._runs.list(thread)):
            named = body.run_ids is not None and run.id in body.run_ids
            if named or (not run.status.is_over and body.status in ("all", run.status)):
                await self._runs.cancel(thread, run, action)

    async def list_runs(
        self,
        caller: Caller,
        thread_id: ThreadId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 10,
        offset: Annotated[int, Query(ge=0)] = 0,
        status: RunStatus | None = None,
        select: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006 - FastAPI copies it
    ) -> JSONResponse:
        """The newest first; of each all there is, or what is selected."""
        runs = await self._runs.list(await self._access.at(thread_id, caller.owner))
        wanted = [run for run in reversed(runs) if status in (None, run.status)]
        shown = [RunOut.of(run).model_dump(mode="json") for run in wanted[offset : offset + limit]]
        if select:
            shown = [{name: one[name] for name in select if name in one} for one in shown]
        return JSONResponse(shown)

    async def get_run(self, caller: Caller, thread_id: ThreadId, run_id: RunId) -> RunOut:
        return RunOut.of(await self._find(caller, thread_id, run_id))

    async def delete_run(self, caller: Caller, thread_id: ThreadId, run_id: RunId) -> None:
        """Hide it. What it wrote stays."""
        thread = await self._access.at(thread_id, caller.owner)
        await self._runs.delete(thread, await self._runs.get(thread, run_id))

    async def cancel_run(
        self,
        caller: Caller,
        thread_id: ThreadId,
        run_id: RunId,
        wait: bool = False,  # noqa: ARG002 - it has always ended when we answer
        action: Action = "interrupt",
    ) -> Json:
        thread = await self._access.at(thread_id, caller.owner)
        await self._runs.cancel(thread, await self._runs.get(thread, run_id), action)
        return {}

    async def join_run(self, caller: Caller, thread_id: ThreadId, run_id: RunId) -> Response:
        """The values a run ends with, once it is over."""
        with ExitStack() as stack:
            bell = stack.enter_context(self._runs.notifier.subscribe(thread_id, for_rest=True))
            run = await self._find(caller, thread_id, run_id)
            return self._joined(run, bell, stack.pop_all(), caller)

    async def join_stream(
        self,
        caller: Caller,
        thread_id: ThreadId,
        run_id: RunId,
        stream_mode: Annotated[list[Mode | Literal[""]], Query(max_length=20)] = [],  # noqa: B006 - FastAPI copies it
        cancel_on_disconnect: bool = False,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> Response:
        """Stream a run from here on, or from where the client was."""
        with ExitStack() as stack:
            # Before the run is read: an end in between reaches the reader.
            reader = stack.enter_context(self._parts.follow(thread_id, run_id, after=_after(last_event_id)))
            run = await self._find(caller, thread_id, run_id)
            names = {mode.removesuffix("-tuple") for mode in stream_mode if mode}
            return self._streamed(
                run, reader, stack.pop_all(), caller, cancels=cancel_on_disconnect, names=names
            )

    async def start(
        self,
        caller: Principal,
        thread_id: str | None,
        body: RunIn,
        run_id: str = "",
        *,
        fresh: str = "",
        is_protocol: bool = False,
    ) -> Run:
        """`is_protocol` is for clients of the thread protocol: all is streamed, and kept."""
        thread: Thread | None = None
        if thread_id is not None:
            with suppress(NotFound):  # the run may create it
                thread, _ = await self._access.before(thread_id, caller.owner)
                if thread.pending and body.input is None and body.command is None:
                    caller.require("approve")  # it would lead the graph past its breakpoints
        if body.command is not None and body.command.resumes:
            caller.require("approve")
        spec = await self._spec(caller, body, run_id or str(uuid4()), followed=bool(run_id))
        if is_protocol:
            spec = replace(spec, modes=(PROTOCOL_MODE,), subgraphs=True, is_resumable=True)
        if thread_id is None:
            _require_no_answer(body)
            spec = replace(spec, is_temporary=body.on_completion == "delete")
        now = self._runs.clock()
        request = RunRequest(
            spec=spec,
            input=body.input,
            message=said(body.input),
            resumes=body.command is not None and body.command.resumes,
            resume=body.command.resume if body.command else None,
            user_id=caller.user_id,
            asked_at=now,
            not_before=now + body.after if body.after else None,
            creates_thread=thread_id is None or body.if_not_exists == "create",
            is_chosen=thread_id is not None,
        )
        run = await self._runs.start(thread_id or fresh or str(uuid4()), caller.owner, request, seen=thread)
        note_thread(run.thread_id)
        return run

    async def _spec(self, caller: Principal, body: RunIn, run_id: str, *, followed: bool) -> RunSpec:
        assistant = await self._assistants.resolve(body.assistant_id, caller.owner)
        spec = body.spec(run_id, assistant_id=assistant.id, graph=assistant.graph, is_followed=followed)
        return replace(with_headers(furnished(spec, assistant)), user=caller.stored_user)

    async def _start_streaming(self, caller: Principal, thread_id: str | None, body: RunIn) -> Response:
        # The reader is there before the first part is written.
        run_id, fresh = str(uuid4()), str(uuid4())
        with ExitStack() as stack:
            reader = stack.enter_context(self._parts.follow(thread_id or fresh, run_id))
            run = await self.start(caller, thread_id, body, run_id, fresh=fresh)
            return self._streamed(
                run, reader, stack.pop_all(), caller, cancels=body.on_disconnect == "cancel"
            )

    def _streamed(
        self,
        run: Run,
        reader: PartReader,
        stack: ExitStack,
        caller: Principal,
        *,
        cancels: bool,
        names: Collection[str] = (),
    ) -> Response:
        return RunStream(
            self._runs,
            run,
            reader,
            stack,
            caller,
            streams=self._streams,
            authenticator=self._authenticator,
            headers={"Location": f"{_path(run)}/stream", "Content-Location": _path(run)},
            names=names,
            cut_off=self._cancelling(run, caller) if cancels else None,
        )

    async def _wait(self, caller: Principal, thread_id: str | None, body: RunIn) -> Response:
        # Subscribed before the run begins: then no read is needed to see whether it is over already.
        fresh = str(uuid4())
        with ExitStack() as stack:
            bell = stack.enter_context(self._runs.notifier.subscribe(thread_id or fresh, for_rest=True))
            run = await self.start(caller, thread_id, body, fresh=fresh)
            cancels = body.on_disconnect == "cancel"
            return self._joined(run, bell, stack.pop_all(), caller, cancels=cancels)

    def _joined(
        self, run: Run, bell: Subscription, stack: ExitStack, caller: Principal, *, cancels: bool = False
    ) -> Response:
        return JoinResponse(
            self._runs,
            run,
            bell,
            stack,
            caller,
            streams=self._streams,
            headers={"Location": f"{_path(run)}/join", "Content-Location": _path(run)},
            cut_off=self._cancelling(run, caller) if cancels else None,
        )

    def _cancelling(self, run: Run, caller: Principal) -> CutOff:
        async def cancel() -> None:
            with suppress(ClewError):
                thread = await self._runs.store.get(run.thread_id, caller.owner)
                await self._runs.cancel(thread, await self._runs.get(thread, run.id), "interrupt")

        return cancel

    async def _find(self, caller: Principal, thread_id: str, run_id: str) -> Run:
        return await self._runs.get(await self._access.at(thread_id, caller.owner), run_id)


def _after(last_event_id: str | None) -> int | None:
    """The part after which to continue. A foreign id counts as before all parts, so that none is missed."""
    if last_event_id is None:
        return None
    return int(last_event_id) if _PLACE.fullmatch(last_event_id) else 0


def _require_no_answer(body: RunIn) -> None:
    if body.command is not None and body.command.resumes:
        raise Invalid("only a run of a thread can be resumed", field="command.resume")


def _path(run: Run) -> str:
    return f"/threads/{run.thread_id}/runs/{run.id}"
