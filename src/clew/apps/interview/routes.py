"""Interview routes: /api/optimize, an interview about a document. Names are as its callers know them."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path
from pydantic import AliasChoices, BaseModel, Field, field_validator

from clew.api.access import DELETION_SECONDS, needs
from clew.api.cleanup import Soft
from clew.api.credentials import Principal
from clew.api.errors import Internal
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import StrictBody
from clew.api.workflow_schemas import FileId
from clew.api.workflows import scope_of
from clew.apps.app import RouteServices
from clew.domain import views
from clew.domain.errors import Invalid, InvalidState, NotFound, Unavailable
from clew.domain.events import AssistantMessage, Event, Opening, Resolution, Suspension
from clew.domain.thread import Json, Status, SuspensionKind, Thread
from clew.engine.commands import Request
from clew.telemetry import shared_metrics

logger = logging.getLogger(__name__)

INTERVIEW = "interview"
# How long the response to an answer waits for the next question, which usually comes at once.
PATIENCE_SECONDS = 3.0
LOOK_SECONDS = 0.5

STEPS = ("ingest", "discovery", "qa", "draft", "completed")
TOLD = (Suspension.type, Resolution.type, AssistantMessage.type)

ThreadId = Annotated[str, Path(max_length=256)]


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


_STATUS: dict[Status, Literal["running", "waiting_input", "completed", "error"]] = {
    Status.BLOCKED: "waiting_input",
    Status.COMPLETED: "completed",
    Status.FAILED: "error",
    Status.STOPPED: "error",
}


def interview_router(services: RouteServices) -> APIRouter:
    router = Router(prefix="/api/optimize", tags=["optimize"])
    interviews = Interviews(services=services)

    @router.post("/start", dependencies=[needs("write")], responses=errors(Invalid))
    async def start_optimization(caller: Caller, body: OptimizeIn | None = None) -> OptimizeOut:
        """Begin an interview about a document."""
        return await interviews.start(body or OptimizeIn(), caller)

    @router.get("/status/{thread_id}", dependencies=[needs("read")], responses=errors(Invalid, NotFound))
    async def get_optimization(caller: Caller, thread_id: ThreadId) -> OptimizeOut:
        """The status of the interview, its open question, and the result."""
        return await interviews.shown(await services.access.at(thread_id, caller.owner))

    @router.post(
        "/{thread_id}/answer",
        dependencies=[needs("write")],
        responses=errors(Invalid, NotFound, InvalidState),
    )
    async def answer_question(caller: Caller, thread_id: ThreadId, body: AnswerIn) -> OptimizeOut:
        """Answer the open question. 400 if no question is open, 409 if this server cannot continue the interview."""
        return await interviews.answer(thread_id, body, caller)

    @router.delete(
        "/{thread_id}",
        dependencies=[needs("write", outage=_not_deleted, seconds=DELETION_SECONDS)],
        responses=errors(Invalid, NotFound),
    )
    async def delete_optimization(
        caller: Caller, thread_id: ThreadId, soft: Soft = False
    ) -> OptimizeDeletedOut:
        """Delete the interview with everything that belongs to it; 404 if it was deleted before."""
        commands = services.commands
        await (commands.soft_delete if soft else commands.delete)(thread_id, caller.owner)
        shared_metrics().deleted_threads.labels("request").inc()
        logger.info("thread deleted", extra={"thread_id": thread_id, "key_id": caller.key_id})
        message = "Workflow deleted; it can be brought back for seven days" if soft else "Workflow deleted"
        return OptimizeDeletedOut(thread_id=thread_id, message=message)

    return router


@dataclass(frozen=True, slots=True, kw_only=True)
class Interviews:
    """Starts interviews, answers their questions, and reads their status."""

    services: RouteServices

    async def start(self, given: OptimizeIn, caller: Principal) -> OptimizeOut:
        """Raises Invalid if the file does not exist."""
        file_id = "" if given.file_id is None else await self._file(given.file_id, caller)
        opening = Opening(
            owner=caller.owner,
            graph=INTERVIEW,
            name=given.name or given.text.strip().partition("\n")[0].lstrip("# ")[:80],
            ttl=self._ttl(given),
        )
        request = Request(
            message=given.text if given.text.strip() else None,
            graph_input={"goal": given.goal, "file_id": file_id},
            documents=(file_id,) if file_id else (),
        )
        thread = await self.services.commands.start(opening, request, scope=scope_of(caller))
        return await self.shown(await self._rested(thread))

    async def answer(self, thread_id: str, body: AnswerIn, caller: Principal) -> OptimizeOut:
        """Raises NotFound, Invalid if no question is open, InvalidState if this server cannot continue the thread."""
        thread = await self.services.access.at(thread_id, caller.owner)
        waiting = [
            call_id for call_id, call in thread.pending.items() if call.kind is SuspensionKind.ELICITATION
        ]
        if not thread.pending:
            raise Invalid("Workflow is not waiting for input")
        if len(waiting) != 1:
            raise InvalidState("this workflow waits for something else: see its tool calls")
        if thread.graph not in self.services.graphs.graphs:
            raise InvalidState(
                f"this workflow can be read but not go on: there is no graph {thread.graph!r} here"
            )
        thread = await self.services.commands.resolve(
            thread_id, caller.owner, waiting[0], body.text, by=caller.user_id
        )
        return await self.shown(await self._rested(thread))

    async def shown(self, thread: Thread) -> OptimizeOut:
        told = await self.services.store.read(thread.id, before=thread.last_seq + 1, types=TOLD)
        return OptimizeOut.of(thread, told, now=self.services.clock())

    async def _file(self, given: str, caller: Principal) -> str:
        try:
            named = await self.services.numbering.file_id(caller.tenant, given)
            return (await self.services.files.get_file(named, caller.itself)).id
        except NotFound as exc:
            raise Invalid(str(exc), field="file_id") from exc

    async def _rested(self, thread: Thread) -> Thread:
        """The thread at its next question or its end, or as it is when the wait times out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        with self.services.notifier.subscribe(thread.id) as subscription:
            while True:
                thread = await self.services.store.get(thread.id)
                left = deadline - loop.time()
                if thread.status is not Status.RUNNING or left <= 0:
                    return thread
                await subscription.wait(min(left, LOOK_SECONDS))

    def _ttl(self, given: OptimizeIn) -> timedelta | None:
        if "ttl_days" not in given.model_fields_set:
            return self.services.ttl
        return None if given.ttl_days is None else timedelta(days=given.ttl_days)


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


def _not_deleted(thread_id: str) -> Internal:
    logger.error("a thread could not be deleted", extra={"thread_id": thread_id, "code": Unavailable.code})
    return Internal(
        f"thread {thread_id!r} could not be deleted, the database does not answer; try again later"
    )
