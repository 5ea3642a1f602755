"""/api/workflows: start, read, stop, resume, delete."""

import asyncio
import logging
from collections.abc import Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from clew.api.access import DELETION_SECONDS, needs
from clew.api.audit import note_thread
from clew.api.conditional import NOT_MODIFIED, answer_unless_known
from clew.api.credentials import Principal
from clew.api.direct import direct
from clew.api.guard import Caller
from clew.api.headers import run_headers
from clew.api.numbers import OwnerNumbers
from clew.api.once import IdempotencyKey, IdempotentRequest
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import ErrorDetail
from clew.api.start_policy import StartPolicy
from clew.api.streams import Streams, first_of
from clew.api.thread_access import ThreadAccess
from clew.api.threads import read_cursor, write_cursor
from clew.api.whole_messages import Include, read_include
from clew.api.workflow_apps import any_of
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
from clew.api.workflow_views import WorkflowViews
from clew.domain.errors import (
    AlreadyDone,
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
from clew.domain.events import Body, Log
from clew.domain.records import RunScope
from clew.domain.thread import Json, Status, Thread
from clew.engine.commands import Commands
from clew.ports.inbox import Inbox
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.telemetry import Metrics
from clew.telemetry.trace_context import caller_trace

logger = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 60
# A notification may be lost, or come from another process: the thread is read again this often without one.
LOOK_SECONDS = 2.0
BATCH = 1000

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait while it is running.")]

STOPPED = "Workflow stopped by user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflows:
    """The operations of the workflow routes."""

    commands: Commands
    store: Store
    inbox: Inbox
    notifier: Notifier
    access: ThreadAccess
    policy: StartPolicy
    views: WorkflowViews
    streams: Streams
    metrics: Metrics

    async def start(
        self, body: StartIn, caller: Principal, thread_id: str | None, wait: float, key: str | None
    ) -> StartedOut:
        """Start a workflow, or the next round of one; with `wait`, answer once it is no longer running."""
        given: Json = None
        request = IdempotentRequest.of(self.inbox, caller, key, self._asked(body, thread_id))
        # A stream slot is taken first: a caller that is refused one has started nothing.
        with self.streams.one("poll", caller) if wait else nullcontext():
            started = await request.stored_answer()
            if started is None:
                try:
                    started, given = await self._begin(body, caller, thread_id, request)
                except (AlreadyDone, InvalidState) as exc:
                    started = await request.answer_after(exc)
            note_thread(started["id"])
            if not wait:
                return started  # type: ignore[no-any-return]
            thread = await self.rested(started["id"], caller, wait)
        state: StateOut | None = None
        if thread.status is not Status.RUNNING:
            with suppress(Corrupt, SchemaMismatch):  # it has started all the same
                state = await self.views.state(thread)
        numbers = await self.views.numbering.owner(thread.owner)
        return self.views.started(thread, numbers, given, state)

    async def _begin(
        self, body: StartIn, caller: Principal, thread_id: str | None, request: IdempotentRequest
    ) -> tuple[Json, Json]:
        """The answer, and what the graph begins with."""
        owner_numbers, scope = self.views.numbering.owner, scope_of(caller)
        if thread_id is None:
            made = await self.policy.start(body, caller)
            given = made.request.graph_input
            answer = partial(self._started, numbers=await owner_numbers(caller.owner), given=given)
            thread = await self.commands.start(
                made.opening, made.request, request.storing(answer), held=body.hold, scope=scope
            )
            return answer(thread), given
        thread = await self.access.at(thread_id, caller.owner)
        asked = await self.policy.next_round(body, thread, caller)
        answer = partial(self._started, numbers=await owner_numbers(thread.owner), given=None)
        thread = await self.commands.next_round(
            thread_id, caller.owner, asked, request.storing(answer), scope=scope
        )
        return answer(thread), None

    def _started(self, thread: Thread, *, numbers: OwnerNumbers, given: Json) -> Json:
        return self.views.started(thread, numbers, given).model_dump(mode="json", by_alias=True)

    async def begin_all(self, ids: Collection[str] | None, caller: Principal) -> BatchOut:
        """Begin held workflows: these, or all of the caller's."""
        if ids is None:
            held = await self.store.find(caller.owner, status=(Status.PENDING,), limit=BATCH)
            ids = [thread.id for thread in held]
        started: list[str] = []
        refused: dict[str, ErrorDetail] = {}
        for thread_id in dict.fromkeys(ids):
            try:
                await self.commands.begin(thread_id, caller.owner, scope=scope_of(caller))
            except ClewError as exc:
                refused[thread_id] = ErrorDetail(code=exc.code, message=str(exc))
            else:
                started.append(thread_id)
        return BatchOut(started=started, errors=refused)

    async def rested(self, thread_id: str, caller: Principal, seconds: float) -> Thread:
        """The thread once it no longer runs, or after the timeout."""
        time = asyncio.get_running_loop().time
        stopping = self.streams.stopping
        deadline = time() + seconds
        with self.notifier.subscribe(thread_id, for_rest=True) as subscription:
            while True:
                thread = await self.store.get(thread_id, caller.owner)
                left = deadline - time()
                if thread.status is not Status.RUNNING or left <= 0 or stopping.is_set():
                    return thread
                await first_of(subscription.wait(min(left, LOOK_SECONDS)), stopping.wait())

    def farewell(self, thread: Thread) -> tuple[Body, ...]:
        """The line a stop leaves in the logs, unless the graph's app writes its own."""
        is_closed = thread.graph in self.policy.apps.closed
        return () if is_closed else (Log(message=STOPPED, progress=100),)

    def _asked(self, body: StartIn, thread_id: str | None) -> Json:
        """The content of the request, to compare with another one under the same key.

        Fields of apps that were left out are no part of it: a newly installed app changes no request.
        """
        asked = [
            "start",
            thread_id,
            body.model_dump(mode="json", include={*StartIn.model_fields}),
            self.policy.app_fields(body),
        ]
        if body.says_how_long and body.ttl_days is None:
            # A null ttl is another request than a ttl left out.
            asked.append("keep")
        return asked


def start_router(workflows: Workflows) -> APIRouter:
    router = Router(prefix="/api/workflows", tags=["workflows"])
    start_model: Any = workflows.policy.apps.start_model()

    @router.post(
        "/start",
        dependencies=[needs("write")],
        response_model=any_of(StartedOut, workflows.views.started_models),
        responses=errors(Invalid, NotFound, InvalidState, Duplicate, AtCapacity, Permanent),
    )
    async def start_workflow(
        caller: Caller,
        body: start_model,  # the fields of apps are known at start-up
        id: Annotated[
            str | None, Query(max_length=256, description="Go on with this workflow: its next round.")
        ] = None,
        wait: Wait = 0,
        idempotency_key: IdempotencyKey = None,
    ) -> StartedOut:
        """Start a workflow, or the next round of one. It runs in the background.

        With `wait`, the answer comes once it is no longer running, with the state of its graph.
        """
        return await workflows.start(body, caller, id, wait, idempotency_key)

    @router.post(
        "/start-batch",
        dependencies=[needs("write")],
        responses=errors(Invalid),
        response_model_exclude_none=True,
    )
    async def begin_workflows(caller: Caller, body: BatchIn) -> BatchOut:
        """Begin several workflows that were created with `hold`. An error of one does not affect the others."""
        return await workflows.begin_all(body.ids, caller)

    return router


def read_router(workflows: Workflows) -> APIRouter:
    router = Router(prefix="/api/workflows", tags=["workflows"])
    access, views = workflows.access, workflows.views

    @router.get("", dependencies=[needs("read")], responses=errors(Invalid))
    async def list_workflows(
        caller: Caller,
        status: Annotated[list[Status] | None, Query()] = None,
        graph: Annotated[str | None, Query(max_length=256)] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Query(max_length=1024, pattern="^[A-Za-z0-9_-]+$")] = None,
    ) -> WorkflowsOut:
        """The caller's workflows, newest first."""
        before = None if cursor is None else read_cursor(cursor)
        found = await workflows.store.find(
            caller.owner, status=status or (), graph=graph, before=before, limit=limit + 1
        )
        page = found[:limit]
        following = write_cursor(page[-1]) if len(found) > limit else None
        return WorkflowsOut(workflows=await views.page(page), next=following)

    @router.get(
        "/{workflow_id}",
        dependencies=[needs("read")],
        response_model=any_of(WholeWorkflowOut, views.whole_models),
        responses=errors(Invalid, NotFound),
    )
    async def get_workflow(caller: Caller, workflow_id: WorkflowId, include: Include = None) -> Response:
        """The whole workflow with its newest messages and logs, and the ids of all its messages."""
        wanted = read_include(include)
        return await views.whole(await access.at(workflow_id, caller.owner), wanted)

    @router.get(
        "/{workflow_id}/status",
        dependencies=[needs("read")],
        response_model=StatusOut,
        response_model_exclude_none=True,
        responses=errors(Invalid, NotFound) | NOT_MODIFIED,
    )
    @direct
    async def get_status(
        request: HttpRequest, caller: Caller, workflow_id: WorkflowId, wait: Wait = 0
    ) -> Response:
        """Only the status; with `wait`, once it is no longer running."""
        thread = await access.at(workflow_id, caller.owner)
        if wait and thread.status is Status.RUNNING:
            with workflows.streams.one("poll", caller):
                thread = await workflows.rested(thread.id, caller, wait)
        return answer_unless_known(request, thread.last_seq, lambda: views.status(thread), exclude_none=True)

    @router.get(
        "/{workflow_id}/state",
        dependencies=[needs("read")],
        responses=errors(SchemaMismatch, Invalid, NotFound),
    )
    async def get_state(caller: Caller, workflow_id: WorkflowId) -> StateOut:
        """The values of the graph's own state."""
        return await views.state(await access.at(workflow_id, caller.owner))

    return router


def command_router(workflows: Workflows) -> APIRouter:
    router = Router(prefix="/api/workflows", tags=["workflows"])
    access, commands, views = workflows.access, workflows.commands, workflows.views

    @router.post(
        "/{workflow_id}/begin",
        dependencies=[needs("write")],
        responses=errors(Invalid, NotFound, InvalidState),
    )
    async def begin_workflow(caller: Caller, workflow_id: WorkflowId) -> WorkflowOut:
        """Begin a workflow that was created with `hold`."""
        await access.at(workflow_id, caller.owner)
        return await views.short(await commands.begin(workflow_id, caller.owner, scope=scope_of(caller)))

    @router.post(
        "/{workflow_id}/stop",
        dependencies=[needs("write")],
        responses=errors(Invalid, NotFound, InvalidState),
    )
    async def stop_workflow(caller: Caller, workflow_id: WorkflowId) -> WorkflowOut:
        """Stop the round at once. It writes nothing afterwards."""
        thread = await access.at(workflow_id, caller.owner)
        return await views.short(await commands.stop(workflow_id, caller.owner, workflows.farewell(thread)))

    @router.post(
        "/{workflow_id}/resume",
        dependencies=[needs("write")],
        responses=errors(Invalid, NotFound, InvalidState),
    )
    async def resume_workflow(caller: Caller, workflow_id: WorkflowId) -> WorkflowOut:
        """Resume a failed round from its last checkpoint."""
        await access.at(workflow_id, caller.owner)
        return await views.short(await commands.resume(workflow_id, caller.owner, scope=scope_of(caller)))

    @router.delete(
        "/{workflow_id}",
        dependencies=[needs("write", seconds=DELETION_SECONDS)],
        responses=errors(Invalid, NotFound),
    )
    async def delete_workflow(caller: Caller, workflow_id: WorkflowId) -> DeletedOut:
        """Delete it with everything that belongs to it, permanently."""
        await commands.delete(workflow_id, caller.owner)
        workflows.metrics.deleted_threads.labels("request").inc()
        logger.info("thread deleted", extra={"thread_id": workflow_id, "key_id": caller.key_id})
        return DeletedOut(id=workflow_id)

    return router


def scope_of(caller: Principal) -> RunScope:
    return RunScope(
        user_id=caller.user_id,
        is_system=False,
        user=caller.stored_user,
        headers=run_headers(),
        trace=caller_trace(),
    )
