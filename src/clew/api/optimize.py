"""/api/optimize: an interview about a document, and the cleaning up of threads. Names are as its callers know them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path, Query
from pydantic import AliasChoices, BaseModel, Field, field_validator
from starlette.requests import Request as HttpRequest

from clew.api.access import DELETION_SECONDS, needs, public
from clew.api.cleanup_auth import CleanupAuth
from clew.api.errors import Internal, OutOfRange
from clew.api.guard import Caller
from clew.api.numbers import Numbering
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import StrictBody
from clew.api.thread_access import ThreadAccess
from clew.api.workflow_schemas import FileId
from clew.api.workflows import scope_of
from clew.domain import retention, views
from clew.domain.errors import Invalid, InvalidState, NotFound, Unauthenticated, Unavailable
from clew.domain.events import AssistantMessage, Event, Opening, Resolution, Suspension
from clew.domain.thread import Json, Owner, Status, SuspensionKind, Thread
from clew.engine.commands import Commands, Request
from clew.ports.clock import Clock
from clew.ports.files import Files
from clew.ports.graphs import Graphs
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.retention.cleanup import Cleanup, CleanupOutcome
from clew.telemetry import Metrics

logger = logging.getLogger(__name__)

INTERVIEW = "interview"
CLEANUP = "/api/optimize/cleanup"
# For so long an answer waits for the next question, which usually comes at once.
PATIENCE_SECONDS = 3.0
LOOK_SECONDS = 0.5
# Beyond its budget a cleanup may take as long as one portion does; cron services hang up after ten seconds.
SLACK_SECONDS = 1.5

DAYS_OLD = range(1, 366)
MOST_DIGITS = 20  # of a number that is looked at
STEPS = ("ingest", "discovery", "qa", "draft", "completed")
TOLD = (Suspension.type, Resolution.type, AssistantMessage.type)

ThreadId = Annotated[str, Path(max_length=256)]
DaysOld = Annotated[
    str | None,
    Query(
        description="Delete what nobody looked at for so many days, 1 to 365; what has expired if left out.",
    ),
]

DryRun = Annotated[bool, Query(description="Only say what would be deleted.")]
Soft = Annotated[bool, Query(description="Keep it for seven days, for the case of regret.")]
Force = Annotated[bool, Query(description="Even though the clock jumped lately.")]
Tenant = Annotated[str | None, Query(max_length=256, description="Only this tenant's.")]
UserId = Annotated[
    str, Query(max_length=256, description="Only this user's, of that tenant or of `default`.")
]


class OptimizeIn(StrictBody):
    """What to improve: a text, an uploaded file, or nothing yet, then the first question asks for it."""

    text: Annotated[str, Field(validation_alias=AliasChoices("text", "document", "resume_text"))] = ""
    goal: Annotated[str, Field(validation_alias=AliasChoices("goal", "job_text"))] = ""
    """What the document is for: what it should answer, whom it should convince."""
    file_id: FileId | None = None
    """The `fileId` of an uploaded file, or its `id`."""
    name: Annotated[str, Field(max_length=200)] = ""
    ttl_days: Annotated[int | None, Field(ge=1, le=3650)] = None
    """Days without access until it may be cleaned up; null keeps it, left out it is THREAD_TTL_DAYS."""


class AnswerIn(StrictBody):
    text: Annotated[str, Field(validation_alias=AliasChoices("text", "answer"))]
    """`skip` leaves the question out."""

    @field_validator("text")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("an answer must say something; say skip to leave the question out")
        return text


class MetadataOut(BaseModel):
    """A row of thread_metadata."""

    thread_id: str
    created_at: datetime
    last_accessed_at: datetime | None
    expires_at: datetime | None
    user_id: str | None
    status: str
    workflow_step: str
    metadata: Json

    @classmethod
    def of(cls, thread: Thread, *, now: datetime) -> Self:
        return cls(
            thread_id=thread.id,
            created_at=thread.created_at,
            last_accessed_at=thread.last_accessed_at,
            expires_at=thread.expires_at,
            user_id=thread.owner.user_id or None,
            status=views.retention_status(thread, now=now),
            workflow_step=thread.stage,
            metadata=dict(thread.settings),
        )


class QaOut(BaseModel):
    question: str
    answer: Json


class OptimizeOut(BaseModel):
    thread_id: str
    status: Literal["running", "waiting_input", "completed", "error"]
    current_step: str
    workflow_step: str
    pending_question: str | None
    interrupt_payload: Json
    """The question as the workflow asked it, with its number."""
    qa_round: int
    qa_history: list[QaOut]
    progress: dict[str, str]
    result: Json
    """The improved document, once it is there."""
    errors: list[str]
    thread_metadata: MetadataOut

    @classmethod
    def of(cls, thread: Thread, told: Sequence[Event], *, now: datetime) -> Self:
        asked = {event.body.call_id: event.body for event in told if isinstance(event.body, Suspension)}
        history = [
            QaOut(question=question_of(asked[event.body.call_id].prompt), answer=event.body.answer)
            for event in told
            if isinstance(event.body, Resolution) and event.body.call_id in asked
        ]
        payload = next((call.prompt for call in thread.pending.values()), None)
        said = [message.content for message in views.messages(thread, told) if message.role == "assistant"]
        return cls(
            thread_id=thread.id,
            status=_STATUS.get(thread.status, "running"),
            current_step=thread.stage,
            workflow_step=thread.stage,
            pending_question=question_of(payload) if thread.pending else None,
            interrupt_payload=payload,
            qa_round=len(history),
            qa_history=history,
            progress=_progress(thread),
            result=said[-1] if said and thread.status is Status.COMPLETED else None,
            errors=[thread.failure_reason] if thread.failure_reason else [],
            thread_metadata=MetadataOut.of(thread, now=now),
        )


class OptimizeDeletedOut(BaseModel):
    success: bool = True
    thread_id: str
    message: str


class CleanupOut(BaseModel):
    status: Literal["completed", "more", "already_running", "dry_run"]
    deleted: int
    preserved: int
    errors: int
    due: int
    """How many are left to be deleted."""
    more: bool
    """Whether the rest goes on by itself."""
    continuation: str | None
    """The cleanup that goes on."""
    thread_ids: list[str]
    """Up to a thousand of them; all are in the log."""
    message: str

    @classmethod
    def of(cls, outcome: CleanupOutcome, what: str) -> Self:
        job = outcome.job
        return cls(
            status=outcome.status,
            deleted=job.deleted if job else 0,
            preserved=outcome.preserved,
            errors=job.failed if job else 0,
            due=outcome.due,
            more=outcome.more,
            continuation=job.id if job and outcome.more else None,
            thread_ids=list(outcome.thread_ids),
            message=_MESSAGES[outcome.status].format(what),
        )


_STATUS: dict[Status, Literal["running", "waiting_input", "completed", "error"]] = {
    Status.BLOCKED: "waiting_input",
    Status.COMPLETED: "completed",
    Status.FAILED: "error",
    Status.STOPPED: "error",
}
_MESSAGES = {
    "completed": "{}",
    "more": "{}; there is more, which goes on by itself",
    "already_running": "A cleanup is under way already",
    "dry_run": "Nothing was deleted: a dry run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """How the cleanup endpoint runs one."""

    cleanup: Cleanup
    gate: CleanupAuth
    clock: Clock
    is_memory: bool

    async def __call__(
        self,
        days_old: int | None,
        *,
        owner: Owner | None,
        dry_run: bool,
        soft: bool,
        force: bool,
    ) -> CleanupOut:
        wanted = retention.selection(now=self.clock(), days_old=days_old, owner=owner, soft=soft)
        if self.is_memory:
            what = "No database configured, memory-only cleanup"
        elif days_old is None:
            what = "Cleaned up expired threads"
        else:
            what = f"Cleaned up threads not accessed in {days_old} days"
        if dry_run:
            return CleanupOut.of(await self.cleanup.preview(wanted), what)
        return CleanupOut.of(await self.cleanup.run(wanted, force=force), what)

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None]:
        """Whoever asked is answered before it hangs up, with Unavailable at the latest."""
        try:
            async with asyncio.timeout(self.cleanup.budget_seconds + SLACK_SECONDS):
                yield
        except TimeoutError:
            raise Unavailable("the database is slow; a cleanup that has begun goes on by itself") from None


def optimize_router(
    commands: Commands,
    store: Store,
    files: Files,
    graphs: Graphs,
    notifier: Notifier,
    *,
    access: ThreadAccess,
    numbering: Numbering,
    clock: Clock,
    ttl: timedelta,
    sweep: Sweep,
    metrics: Metrics,
) -> APIRouter:
    router = Router(prefix="/api/optimize", tags=["optimize"])

    @router.post("/start", responses=errors(Invalid))
    @needs("write")
    async def start_optimization(caller: Caller, body: OptimizeIn | None = None) -> OptimizeOut:
        """Begin an interview about a document."""
        given = body or OptimizeIn()
        file_id = ""
        if given.file_id is not None:
            try:
                named = await numbering.file_id(caller.tenant, given.file_id)
                file_id = (await files.get_file(named, caller.owner)).id
            except NotFound as exc:
                raise Invalid(str(exc), field="file_id") from exc
        opening = Opening(
            owner=caller.owner,
            graph=INTERVIEW,
            name=given.name or given.text.strip().partition("\n")[0].lstrip("# ")[:80],
            ttl=_ttl(given),
        )
        request = Request(
            message=given.text if given.text.strip() else None,
            graph_input={"goal": given.goal, "file_id": file_id},
            documents=(file_id,) if file_id else (),
        )
        thread = await commands.start(opening, request, scope=scope_of(caller))
        return await shown(await rested(thread))

    @router.get("/status/{thread_id}", responses=errors(Invalid, NotFound))
    @needs("read")
    async def get_optimization(caller: Caller, thread_id: ThreadId) -> OptimizeOut:
        """Where it stands, the question it waits with, and the result."""
        return await shown(await access.at(thread_id, caller.owner))

    @router.post("/{thread_id}/answer", responses=errors(Invalid, NotFound, InvalidState))
    @needs("write")
    async def answer_question(caller: Caller, thread_id: ThreadId, body: AnswerIn) -> OptimizeOut:
        """Answer the question it waits with. 400 when it waits for nothing, 409 when it cannot go on here."""
        thread = await access.at(thread_id, caller.owner)
        waiting = [
            call_id for call_id, call in thread.pending.items() if call.kind is SuspensionKind.ELICITATION
        ]
        if not thread.pending:
            raise Invalid("Workflow is not waiting for input")
        if len(waiting) != 1:
            raise InvalidState("this workflow waits for something else: see its tool calls")
        if thread.graph not in graphs.graphs:
            raise InvalidState(
                f"this workflow can be read but not go on: there is no graph {thread.graph!r} here"
            )
        thread = await commands.resolve(thread_id, caller.owner, waiting[0], body.text, by=caller.user_id)
        return await shown(await rested(thread))

    @router.delete("/{thread_id}", responses=errors(Invalid, NotFound))
    @needs("write", outage=_not_deleted, seconds=DELETION_SECONDS)
    async def delete_optimization(
        caller: Caller,
        thread_id: ThreadId,
        soft: Soft = False,
    ) -> OptimizeDeletedOut:
        """Delete it with everything that belongs to it; 404 if it was deleted before."""
        await (commands.soft_delete if soft else commands.delete)(thread_id, caller.owner)
        metrics.deleted_threads.labels("request").inc()
        logger.info("thread deleted", extra={"thread_id": thread_id, "key_id": caller.key_id})
        message = "Workflow deleted; it can be brought back for seven days" if soft else "Workflow deleted"
        return OptimizeDeletedOut(thread_id=thread_id, message=message)

    @router.post("/cleanup", responses=errors(Unauthenticated, OutOfRange, InvalidState, Unavailable))
    @public
    async def clean_up(
        request: HttpRequest,
        days_old: DaysOld = None,
        dry_run: DryRun = False,
        soft: Soft = False,
        force: Force = False,
        tenant: Tenant = None,
        user_id: UserId = "",
    ) -> CleanupOut:
        """Delete threads that are due. Asks for CLEANUP_API_KEY or CRON_SECRET, not for an API key of a caller."""
        return await cleaned_up(request, days_old, dry_run, soft, force, _owner(tenant, user_id))

    @router.get("/cleanup", responses=errors(Unauthenticated, OutOfRange, InvalidState, Unavailable))
    @public
    async def clean_up_by_cron(
        request: HttpRequest,
        days_old: DaysOld = None,
        dry_run: DryRun = False,
        soft: Soft = False,
        force: Force = False,
        tenant: Tenant = None,
        user_id: UserId = "",
    ) -> CleanupOut:
        """The same as POST: cron services know no other method."""
        return await cleaned_up(request, days_old, dry_run, soft, force, _owner(tenant, user_id))

    async def cleaned_up(
        request: HttpRequest,
        days_old: str | None,
        dry_run: bool,
        soft: bool,
        force: bool,
        owner: Owner | None,
    ) -> CleanupOut:
        query = request.url.query
        target = f"{CLEANUP}?{query}" if query else CLEANUP
        try:
            async with sweep.in_time():
                await sweep.gate.admit(request.headers, request.method, target)
                return await sweep(_days(days_old), owner=owner, dry_run=dry_run, soft=soft, force=force)
        except Unavailable as exc:
            logger.error("no cleanup: %s", exc, extra={"code": exc.code})  # noqa: TRY400 - it says enough
            raise

    async def rested(thread: Thread) -> Thread:
        """The thread when it has come to its next question or its end, or as it is if that takes long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        with notifier.subscribe(thread.id) as subscription:
            while True:
                thread = await store.get(thread.id)
                left = deadline - loop.time()
                if thread.status is not Status.RUNNING or left <= 0:
                    return thread
                await subscription.wait(min(left, LOOK_SECONDS))

    async def shown(thread: Thread) -> OptimizeOut:
        told = await store.read(thread.id, before=thread.last_seq + 1, types=TOLD)
        return OptimizeOut.of(thread, told, now=clock())

    def _ttl(given: OptimizeIn) -> timedelta | None:
        if "ttl_days" not in given.model_fields_set:
            return ttl
        return None if given.ttl_days is None else timedelta(days=given.ttl_days)

    return router


def question_of(prompt: Json) -> str:
    if isinstance(prompt, dict):
        for key in ("message", "question", "text"):
            if isinstance(prompt.get(key), str):
                return str(prompt[key])
    return prompt if isinstance(prompt, str) else ""


def _progress(thread: Thread) -> dict[str, str]:
    if thread.status is Status.COMPLETED:
        return dict.fromkeys(STEPS, "completed")
    at = STEPS.index(thread.stage) if thread.stage in STEPS else -1
    return {
        step: "completed" if number < at else "in_progress" if number == at else "pending"
        for number, step in enumerate(STEPS)
    }


def _days(text: str | None) -> int | None:
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    if not is_number or int(text) not in DAYS_OLD:
        raise OutOfRange("expected a whole number from 1 to 365", field="days_old")
    return int(text)


def _not_deleted(thread_id: str) -> Internal:
    logger.error("a thread could not be deleted", extra={"thread_id": thread_id, "code": Unavailable.code})
    return Internal(
        f"thread {thread_id!r} could not be deleted, the database does not answer; try again later"
    )


def _owner(tenant: str | None, user_id: str) -> Owner | None:
    if tenant is None:
        return Owner(user_id=user_id) if user_id else None
    return Owner(tenant=tenant, user_id=user_id)
