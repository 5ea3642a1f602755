"""/runs and /threads/{id}/runs: begin one, wait for it, stream it, cancel it."""

import re
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import JSONResponse, Response, StreamingResponse

from clew.api.auth import Authenticator
from clew.api.credentials import Principal
from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.run_schemas import CancelIn, Id, Mode, RunIn, RunOut
from clew.api.sdk.streaming import CutOff, JoinResponse, RunStream
from clew.api.start_policy import said
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.api.workflows import scope_of
from clew.domain.assistants import furnished
from clew.domain.errors import ClewError, Contradictory, Invalid, InvalidState, NotFound
from clew.domain.events import RunSpec
from clew.domain.runs import Run, RunStatus
from clew.domain.thread import Json
from clew.engine.assistants import AssistantCatalog
from clew.engine.run_hooks import RunHooks
from clew.engine.runs import Action, RunRequest, Runs
from clew.ports.streams import PartReader, StreamParts

ThreadId = Annotated[Id, Path()]
RunId = Annotated[Id, Path()]
MOST = 100
_PLACE = re.compile(r"[0-9]{1,18}", re.ASCII)

# Each of the events.
_PART = {"type": "object", "properties": {name: {"type": "string"} for name in ("event", "data", "id")}}
_STREAM: Mapping[int | str, dict[str, Any]] = {
    200: {"description": "The parts.", "content": {"text/event-stream": {"schema": _PART}}}
}


def langgraph_runs_router(
    ordering: Runs,
    roster: AssistantCatalog,
    chunks: StreamParts,
    run_hooks: RunHooks,
    *,
    access: ThreadAccess,
    streams: Streams,
    authenticator: Authenticator,
) -> APIRouter:
    router = Router(tags=["langgraph"])

    @router.post(
        "/threads/{thread_id}/runs", responses=errors(Contradictory, Invalid, NotFound, InvalidState)
    )
    @needs("write")
    async def create_run(caller: Caller, thread_id: ThreadId, body: RunIn, response: Response) -> RunOut:
        """Begin a run in the background."""
        run = await begin(caller, thread_id, body)
        response.headers["Content-Location"] = _path(run)
        return RunOut.of(run)

    @router.post("/runs", responses=errors(Contradictory, Invalid, NotFound))
    @needs("write")
    async def create_stateless_run(caller: Caller, body: RunIn, response: Response) -> RunOut:
        """Begin a run in the background, in a thread of its own."""
        run = await begin(caller, None, body)
        response.headers["Content-Location"] = _path(run)
        return RunOut.of(run)

    @router.post("/runs/batch", responses=errors(Contradictory, Invalid, NotFound))
    @needs("write")
    async def create_runs(caller: Caller, body: list[RunIn]) -> list[RunOut]:
        """Begin several, each in a thread of its own."""
        if len(body) > MOST:
            raise Invalid(f"more than {MOST} runs", field="body")
        for one in body:  # all of them, or none
            await roster.resolve(one.assistant_id, caller.owner)
            one.require_one_context()
            _require_no_answer(one)
        return [RunOut.of(await begin(caller, None, one)) for one in body]

    @router.post(
        "/threads/{thread_id}/runs/wait", responses=errors(Contradictory, Invalid, NotFound, InvalidState)
    )
    @needs("write")
    async def wait_run(caller: Caller, thread_id: ThreadId, body: RunIn) -> Response:
        """Begin a run and answer with the values it ends with."""
        run = await begin(caller, thread_id, body)
        return waits(run, caller, cancels=body.on_disconnect == "cancel")

    @router.post("/runs/wait", responses=errors(Contradictory, Invalid, NotFound))
    @needs("write")
    async def wait_stateless_run(caller: Caller, body: RunIn) -> Response:
        run = await begin(caller, None, body)
        return waits(run, caller, cancels=body.on_disconnect == "cancel")

    @router.post(
        "/threads/{thread_id}/runs/stream",
        response_class=StreamingResponse,
        responses={**_STREAM, **errors(Contradictory, Invalid, NotFound, InvalidState)},
    )
    @needs("write")
    async def stream_run(caller: Caller, thread_id: ThreadId, body: RunIn) -> Response:
        """Begin a run and stream it."""
        return await streamed(caller, thread_id, body)

    @router.post(
        "/runs/stream",
        response_class=StreamingResponse,
        responses={**_STREAM, **errors(Contradictory, Invalid, NotFound)},
    )
    @needs("write")
    async def stream_stateless_run(caller: Caller, body: RunIn) -> Response:
        return await streamed(caller, None, body)

    @router.post("/runs/cancel", status_code=204, responses=errors(Invalid, NotFound))
    @needs("write")
    async def cancel_runs(caller: Caller, body: CancelIn, action: Action = "interrupt") -> None:
        """Cancel runs of one thread: those named, or all of a status."""
        if body.thread_id is None:
            raise Invalid("needed here", field="thread_id")
        thread = await access.at(await access.kept_as(body.thread_id, caller.owner), caller.owner)
        # Those that wait first: their turn comes when the one under way has ended.
        for run in reversed(await ordering.of(thread)):
            named = body.run_ids is not None and run.id in body.run_ids
            if named or (not run.status.is_over and body.status in ("all", run.status)):
                await ordering.cancel(thread, run, action)

    @router.get("/threads/{thread_id}/runs", response_model=list[RunOut], responses=errors(Invalid, NotFound))
    @needs("read")
    async def list_runs(
        caller: Caller,
        thread_id: ThreadId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 10,
        offset: Annotated[int, Query(ge=0)] = 0,
        status: RunStatus | None = None,
        select: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006 - FastAPI copies it
    ) -> JSONResponse:
        """The newest first; of each all there is, or what is selected."""
        runs = await ordering.of(await access.at(thread_id, caller.owner))
        wanted = [run for run in reversed(runs) if status in (None, run.status)]
        shown = [RunOut.of(run).model_dump(mode="json") for run in wanted[offset : offset + limit]]
        if select:
            shown = [{name: one[name] for name in select if name in one} for one in shown]
        return JSONResponse(shown)

    @router.get("/threads/{thread_id}/runs/{run_id}", responses=errors(Invalid, NotFound))
    @needs("read")
    async def get_run(caller: Caller, thread_id: ThreadId, run_id: RunId) -> RunOut:
        return RunOut.of(await found(caller, thread_id, run_id))

    @router.delete(
        "/threads/{thread_id}/runs/{run_id}",
        status_code=204,
        responses=errors(Invalid, NotFound, InvalidState),
    )
    @needs("write")
    async def delete_run(caller: Caller, thread_id: ThreadId, run_id: RunId) -> None:
        """Tell of it no more. What it led to stays."""
        thread = await access.at(thread_id, caller.owner)
        await ordering.delete(thread, await ordering.get(thread, run_id))

    @router.post(
        "/threads/{thread_id}/runs/{run_id}/cancel", responses=errors(Invalid, NotFound, InvalidState)
    )
    @needs("write")
    async def cancel_run(
        caller: Caller,
        thread_id: ThreadId,
        run_id: RunId,
        wait: bool = False,  # noqa: ARG001 - it has always ended when we answer
        action: Action = "interrupt",
    ) -> Json:
        thread = await access.at(thread_id, caller.owner)
        await ordering.cancel(thread, await ordering.get(thread, run_id), action)
        return {}

    @router.get("/threads/{thread_id}/runs/{run_id}/join", responses=errors(Invalid, NotFound))
    @needs("read")
    async def join_run(caller: Caller, thread_id: ThreadId, run_id: RunId) -> Response:
        """The values a run ends with, once it is over."""
        return waits(await found(caller, thread_id, run_id), caller)

    @router.get(
        "/threads/{thread_id}/runs/{run_id}/stream",
        response_class=StreamingResponse,
        responses={**_STREAM, **errors(Invalid, NotFound)},
    )
    @needs("read")
    async def join_stream(
        caller: Caller,
        thread_id: ThreadId,
        run_id: RunId,
        stream_mode: Annotated[list[Mode | Literal[""]], Query(max_length=20)] = [],  # noqa: B006 - FastAPI copies it
        cancel_on_disconnect: bool = False,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> Response:
        """Stream a run from here on, or from where the client was."""
        with ExitStack() as stack:
            # Before it is looked at: if it ends in between, that is heard.
            follower = stack.enter_context(chunks.follow(thread_id, run_id, after=_after(last_event_id)))
            run = await found(caller, thread_id, run_id)
            return answer(
                run,
                follower,
                stack.pop_all(),
                caller,
                cancels=cancel_on_disconnect,
                names={mode.removesuffix("-tuple") for mode in stream_mode if mode},
            )

    async def begin(
        caller: Principal, thread_id: str | None, body: RunIn, run_id: str = "", *, fresh: str = ""
    ) -> Run:
        if thread_id is not None:
            with suppress(NotFound):  # the run may make it
                await access.at(thread_id, caller.owner)
        spec = await ordered(caller, body, run_id or str(uuid4()), followed=bool(run_id))
        if thread_id is None and body.on_completion == "delete":
            spec = replace(spec, is_temporary=True)
        wanted = RunRequest(
            spec=spec,
            input=body.input,
            message=said(body.input),
            resumes=body.command is not None and body.command.resumes,
            resume=body.command.resume if body.command else None,
            after=body.after,
            makes_thread=thread_id is None or body.if_not_exists == "create",
            is_chosen=thread_id is not None,
        )
        if thread_id is None:
            _require_no_answer(body)
        return await run_hooks.begin(
            thread_id or fresh or str(uuid4()), caller.owner, wanted, scope_of(caller)
        )

    async def ordered(caller: Principal, body: RunIn, run_id: str, *, followed: bool) -> RunSpec:
        assistant = await roster.resolve(body.assistant_id, caller.owner)
        spec = body.spec(run_id, assistant_id=assistant.id, graph=assistant.graph, is_followed=followed)
        return furnished(spec, assistant)

    async def streamed(caller: Principal, thread_id: str | None, body: RunIn) -> Response:
        # Somebody must listen before the first word is said.
        run_id, fresh = str(uuid4()), str(uuid4())
        with ExitStack() as stack:
            follower = stack.enter_context(chunks.follow(thread_id or fresh, run_id))
            run = await begin(caller, thread_id, body, run_id, fresh=fresh)
            return answer(run, follower, stack.pop_all(), caller, cancels=body.on_disconnect == "cancel")

    def answer(
        run: Run,
        follower: PartReader,
        stack: ExitStack,
        caller: Principal,
        *,
        cancels: bool,
        names: Collection[str] = (),
    ) -> Response:
        return RunStream(
            ordering,
            run,
            follower,
            stack,
            caller,
            streams=streams,
            authenticator=authenticator,
            headers={"Location": f"{_path(run)}/stream", "Content-Location": _path(run)},
            names=names,
            cut_off=cancelling(run, caller) if cancels else None,
        )

    def waits(run: Run, caller: Principal, *, cancels: bool = False) -> Response:
        headers = {"Location": f"{_path(run)}/join", "Content-Location": _path(run)}
        cut_off = cancelling(run, caller) if cancels else None
        return JoinResponse(ordering, run, caller, streams=streams, headers=headers, cut_off=cut_off)

    def cancelling(run: Run, caller: Principal) -> CutOff:
        async def cancel() -> None:
            with suppress(ClewError):
                thread = await ordering.store.get(run.thread_id, caller.owner)
                await ordering.cancel(thread, await ordering.get(thread, run.id), "interrupt")

        return cancel

    async def found(caller: Principal, thread_id: str, run_id: str) -> Run:
        return await ordering.get(await access.at(thread_id, caller.owner), run_id)

    return router


def _after(last_event_id: str | None) -> int | None:
    """The part after which to go on. An id that is none of ours is before all of them, so that nothing is missed."""
    if last_event_id is None:
        return None
    return int(last_event_id) if _PLACE.fullmatch(last_event_id) else 0


def _require_no_answer(body: RunIn) -> None:
    if body.command is not None and body.command.resumes:
        raise Invalid("only a run of a thread can be resumed", field="command.resume")


def _path(run: Run) -> str:
    return f"/threads/{run.thread_id}/runs/{run.id}"
