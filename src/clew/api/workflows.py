"""/api/workflows: start, look, stop, take up again, delete."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext, suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

from clew.api.access import DELETION_SECONDS, needs
from clew.api.conditional import NOT_MODIFIED, answer_unless_known
from clew.api.credentials import Principal
from clew.api.direct import direct
from clew.api.guard import Caller
from clew.api.messages import log_outs, message_outs
from clew.api.numbers import Numbering, OwnerNumbers
from clew.api.once import IdempotencyKey, MakeOnce, only_once
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import ErrorDetail
from clew.api.start_policy import StartPolicy
from clew.api.streams import Streams, first_of
from clew.api.thread_access import ThreadAccess
from clew.api.threads import read_cursor, write_cursor
from clew.api.whole_messages import Include, object_without, read_include, whole_messages
from clew.api.workflow_apps import View, any_of, out_models
from clew.api.workflow_schemas import (
    BatchIn,
    BatchOut,
    DeletedOut,
    StartedOut,
    StartIn,
    StateOut,
    StatusOut,
    WholeWorkflowOut,
    WorkflowId,
    WorkflowOut,
    WorkflowsOut,
)
from clew.domain import views
from clew.domain.errors import (
    AtCapacity,
    ClewError,
    Corrupt,
    Duplicate,
    Invalid,
    InvalidState,
    NotFound,
    Permanent,
    SchemaMismatch,
)
from clew.domain.events import MESSAGES, Body, Log, RoundFinished, RoundStarted
from clew.domain.records import RunScope
from clew.domain.redaction import without
from clew.domain.thread import Json, Status, Thread
from clew.engine.commands import Commands
from clew.engine.redaction import redacted_texts
from clew.ports.files import Files
from clew.ports.graphs import GraphDriver
from clew.ports.inbox import Inbox
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.telemetry import Metrics

logger = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 60
# A subscription may be lost, or rung in another process: so often one looks without it.
LOOK_SECONDS = 2.0
# Of messages and of logs, in the whole object.
NEWEST = 200
BATCH = 1000

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait while it is running.")]

STOPPED = "Workflow stopped by user"


def workflows_router(
    commands: Commands,
    store: Store,
    inbox: Inbox,
    files: Files,
    graph_driver: GraphDriver,
    notifier: Notifier,
    *,
    access: ThreadAccess,
    numbering: Numbering,
    offer: StartPolicy,
    streams: Streams,
    metrics: Metrics,
) -> APIRouter:
    router = Router(prefix="/api/workflows", tags=["workflows"])
    apps = offer.apps
    start_model: Any = apps.start_model()
    started_models = out_models(apps, StartedOut, "Started{}Out")
    whole_models = out_models(apps, WholeWorkflowOut, "Whole{}Out")

    @router.post(
        "/start",
        response_model=any_of(StartedOut, started_models),
        responses=errors(Invalid, NotFound, InvalidState, Duplicate, AtCapacity, Permanent),
    )
    @needs("write")
    @direct
    async def start_workflow(
        caller: Caller,
        body: start_model,  # type: ignore[valid-type]  # fields of apps are known at start-up
        id: Annotated[
            str | None, Query(max_length=256, description="Go on with this workflow: its next round.")
        ] = None,
        wait: Wait = 0,
        idempotency_key: IdempotencyKey = None,
    ) -> StartedOut:
        """Start a workflow, or the next round of one. It runs in the background.

        With `wait`, the answer comes once it is no longer running, with the state of its graph.
        """
        given: Json = None
        numbers = await numbering.owner(caller.owner)

        async def start(once: MakeOnce | None) -> Thread:
            nonlocal given, numbers
            if id is None:
                made = await offer.start(body, caller)
                given = made.request.graph_input
                return await commands.start(
                    made.opening, made.request, held=body.hold, once=once, scope=scope_of(caller)
                )
            thread = await access.at(id, caller.owner)
            numbers = await numbering.owner(thread.owner)
            request = await offer.next_round(body, thread, caller)
            return await commands.next_round(id, caller.owner, request, once=once, scope=scope_of(caller))

        # Without the fields of apps that were left out: which apps are installed changes no request.
        asked = [
            "start",
            id,
            body.model_dump(mode="json", include={*StartIn.model_fields}),
            offer.app_fields(body),
        ]
        if body.says_how_long and body.ttl_days is None:
            # To keep it is another request than to say nothing.
            asked.append("keep")
        # A place to wait in is taken first: whoever is refused one has started nothing.
        with streams.one("poll", caller) if wait else nullcontext():
            started = await only_once(
                inbox,
                caller,
                idempotency_key,
                asked,
                start,
                lambda thread: _as_json(shown_start(thread, numbers, given)),
            )
            if not wait:
                return started  # type: ignore[no-any-return]
            thread = await rested(started["id"], caller, wait)
        state: StateOut | None = None
        if thread.status is not Status.RUNNING:
            with suppress(Corrupt, SchemaMismatch):  # it has started all the same
                state = await state_of(thread)
        return shown_start(thread, await numbering.owner(thread.owner), given, state)

    @router.post("/start-batch", responses=errors(Invalid), response_model_exclude_none=True)
    @needs("write")
    async def begin_workflows(caller: Caller, body: BatchIn) -> BatchOut:
        """Begin several that were made with `hold`. What goes wrong with one does not concern the others."""
        ids = body.ids
        if ids is None:
            held = await store.find(caller.owner, status=(Status.PENDING,), limit=BATCH)
            ids = [thread.id for thread in held]
        started: list[str] = []
        refused: dict[str, ErrorDetail] = {}
        for thread_id in dict.fromkeys(ids):
            try:
                await commands.begin(thread_id, caller.owner, scope=scope_of(caller))
            except ClewError as exc:
                refused[thread_id] = ErrorDetail(code=exc.code, message=str(exc))
            else:
                started.append(thread_id)
        return BatchOut(started=started, errors=refused)

    @router.get("", responses=errors(Invalid))
    @needs("read")
    async def list_workflows(
        caller: Caller,
        status: Annotated[list[Status] | None, Query()] = None,
        graph: Annotated[str | None, Query(max_length=256)] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Query(max_length=1024, pattern="^[A-Za-z0-9_-]+$")] = None,
    ) -> WorkflowsOut:
        """The caller's workflows, newest first."""
        before = None if cursor is None else read_cursor(cursor)
        found = await store.find(
            caller.owner, status=status or (), graph=graph, before=before, limit=limit + 1
        )
        page = found[:limit]
        numbers = await numbering.owners(thread.owner for thread in page)
        return WorkflowsOut(
            workflows=[WorkflowOut.of(thread, numbers[thread.owner], apps.status(thread)) for thread in page],
            next=write_cursor(page[-1]) if len(found) > limit else None,
        )

    @router.get(
        "/{workflow_id}",
        response_model=any_of(WholeWorkflowOut, whole_models),
        responses=errors(Invalid, NotFound),
    )
    @needs("read")
    @direct
    async def get_workflow(caller: Caller, workflow_id: WorkflowId, include: Include = None) -> Response:
        """The whole workflow with the newest of its messages and logs, and the ids of all its messages."""
        wanted = read_include(include)
        thread = await access.at(workflow_id, caller.owner)
        until = thread.last_seq + 1
        said = await store.read(thread.id, before=until, types=MESSAGES, limit=NEWEST + 1)
        logged = await store.read(thread.id, before=until, types=(Log.type,), limit=NEWEST + 1)
        messages = [] if wanted else await message_outs(thread, said[-NEWEST:], files, numbering)
        every = await store.message_ids(thread.id, before=until)
        more = await app_view(thread)
        kind = WholeWorkflowOut if more is None else whole_models[thread.graph]
        whole = kind.of(
            thread,
            await numbering.owner(thread.owner),
            apps.status(thread),
            messages=messages,
            message_ids=[message_id for message_id in every if message_id not in thread.redacted],
            logs=log_outs(thread, logged[-NEWEST:], apps),
            truncated=max(len(said), len(logged)) > NEWEST,
            **more or {},
        )
        if not wanted:
            return Response(whole.model_dump_json(by_alias=True), media_type="application/json")
        shown_messages = list(views.messages(thread, said[-NEWEST:]))
        pieces = whole_messages(thread, shown_messages, files, numbering, wanted)
        return StreamingResponse(_with_messages(whole, pieces), media_type="application/json")

    @router.get(
        "/{workflow_id}/status",
        response_model=StatusOut,
        response_model_exclude_none=True,
        responses=errors(Invalid, NotFound) | NOT_MODIFIED,
    )
    @needs("read")
    @direct
    async def get_status(
        request: HttpRequest,
        caller: Caller,
        workflow_id: WorkflowId,
        wait: Wait = 0,
    ) -> Response:
        """The status and nothing else; with `wait`, once it is no longer running."""
        thread = await access.at(workflow_id, caller.owner)
        if wait and thread.status is Status.RUNNING:
            with streams.one("poll", caller):
                thread = await rested(thread.id, caller, wait)
        return answer_unless_known(
            request, thread.last_seq, lambda: StatusOut.of(thread, apps.status(thread)), exclude_none=True
        )

    @router.get("/{workflow_id}/state", responses=errors(SchemaMismatch, Invalid, NotFound))
    @needs("read")
    @direct
    async def get_state(caller: Caller, workflow_id: WorkflowId) -> StateOut:
        """The values of the graph's own state."""
        return await state_of(await access.at(workflow_id, caller.owner))

    @router.post("/{workflow_id}/begin", responses=errors(Invalid, NotFound, InvalidState))
    @needs("write")
    async def begin_workflow(caller: Caller, workflow_id: WorkflowId) -> WorkflowOut:
        """Begin a workflow that was made with `hold`."""
        await access.at(workflow_id, caller.owner)
        return await shown(await commands.begin(workflow_id, caller.owner, scope=scope_of(caller)))

    @router.post("/{workflow_id}/stop", responses=errors(Invalid, NotFound, InvalidState))
    @needs("write")
    async def stop_workflow(caller: Caller, workflow_id: WorkflowId) -> WorkflowOut:
        """End the round at once. Nothing of it appears later."""
        thread = await access.at(workflow_id, caller.owner)
        return await shown(await commands.stop(workflow_id, caller.owner, farewell(thread)))

    @router.post("/{workflow_id}/resume", responses=errors(Invalid, NotFound, InvalidState))
    @needs("write")
    async def resume_workflow(caller: Caller, workflow_id: WorkflowId) -> WorkflowOut:
        """Take a failed round up again where it stood."""
        await access.at(workflow_id, caller.owner)
        return await shown(await commands.resume(workflow_id, caller.owner, scope=scope_of(caller)))

    @router.delete("/{workflow_id}", responses=errors(Invalid, NotFound))
    @needs("write", seconds=DELETION_SECONDS)
    async def delete_workflow(caller: Caller, workflow_id: WorkflowId) -> DeletedOut:
        """Delete it with everything that belongs to it, for good."""
        await commands.delete(workflow_id, caller.owner)
        metrics.deleted_threads.labels("request").inc()
        logger.info("thread deleted", extra={"thread_id": workflow_id, "key_id": caller.key_id})
        return DeletedOut(id=workflow_id)

    async def shown(thread: Thread) -> WorkflowOut:
        return WorkflowOut.of(thread, await numbering.owner(thread.owner), apps.status(thread))

    def shown_start(
        thread: Thread, numbers: OwnerNumbers, given: Json, state: StateOut | None = None
    ) -> StartedOut:
        """`given` is what its graph begins with."""
        view = view_of(thread)
        values = given if state is None else state.values
        more = None if view is None else view.fields(thread, values, None)
        kind = StartedOut if more is None else started_models[thread.graph]
        return kind.of(thread, numbers, apps.status(thread), state=state, **more or {})

    def view_of(thread: Thread) -> View | None:
        app = apps.apps.get(thread.graph)
        return None if app is None else app.show

    def farewell(thread: Thread) -> tuple[Body, ...]:
        """The line a stop leaves in the logs, unless the graph's app writes its own."""
        return () if thread.graph in apps.closed else (Log(message=STOPPED, progress=100),)

    async def state_of(thread: Thread) -> StateOut:
        state = await graph_driver.state(thread)
        values = without(state.values, await redacted_texts(store, thread))
        return StateOut(values=values, next=list(state.next))

    async def app_view(thread: Thread) -> Mapping[str, Any] | None:
        """The fields of its app; before its graph has a state, of what the graph will begin with."""
        view = view_of(thread)
        if view is None:
            return None
        until = thread.last_seq + 1
        begun = await store.read(thread.id, after=0, before=until, types=(RoundStarted.type,), limit=1)
        ended = await store.read(thread.id, before=until, types=(RoundFinished.type,), limit=1)
        given = [event.body.input for event in begun if isinstance(event.body, RoundStarted)]
        try:
            values = (await graph_driver.state(thread)).values
        except (NotFound, Corrupt, SchemaMismatch):
            values = None  # its graph is not here, or its state is damaged: the rest can be shown
        shown = without(values or (given[0] if given else {}), await redacted_texts(store, thread))
        return view.fields(thread, shown, ended[0].at if ended else None)

    async def rested(thread_id: str, caller: Principal, seconds: float) -> Thread:
        """The thread when it no longer runs, or when the time is over."""
        time = asyncio.get_running_loop().time
        deadline = time() + seconds
        with notifier.subscribe(thread_id, for_rest=True) as subscription:
            while True:
                thread = await store.get(thread_id, caller.owner)
                left = deadline - time()
                if thread.status is not Status.RUNNING or left <= 0 or streams.stopping.is_set():
                    return thread
                await first_of(subscription.wait(min(left, LOOK_SECONDS)), streams.stopping.wait())

    return router


async def _with_messages(whole: WholeWorkflowOut, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield object_without(whole, "messages") + b',"messages":'
    async for piece in messages:
        yield piece
    yield b"}"


def scope_of(caller: Principal) -> RunScope:
    return RunScope(user_id=caller.user_id, is_system=False)


def _as_json(started: StartedOut) -> Json:
    return started.model_dump(mode="json", by_alias=True)
