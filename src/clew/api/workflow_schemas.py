"""Schemas of workflows: request bodies and answers."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from fastapi import Path
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from clew.api.numbers import LARGEST, OwnerNumbers
from clew.api.schemas import ErrorDetail, PendingOut, StatsOut, StrictBody, WireModel
from clew.domain import views
from clew.domain.records import Document
from clew.domain.thread import FIRST, LAST, Json, Thread
from clew.domain.tool_calls import Call

WorkflowId = Annotated[str, Path(max_length=256)]


def _as_text(given: object) -> object:
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


# A file's integer, or its id in /api/files.
FileId = Annotated[
    str,
    Field(min_length=1, max_length=256),
    BeforeValidator(_as_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": LARGEST},
                {"type": "string", "minLength": 1, "maxLength": 256},
            ]
        }
    ),
]


class Given(StrictBody):
    """A body. Types are strict: a number is no text, and true is no number."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class StartIn(Given):
    """The fields of every start. The fields of apps are added at start-up."""

    prompt: str | None = None
    """The user's message; may only be left out when there is an `input`."""
    list_file_id: Annotated[tuple[FileId, ...], Field(max_length=100, strict=False)] = ()
    graph: Annotated[str | None, Field(max_length=256)] = None
    input: Json = None
    """What the graph is given instead of the prompt as a message."""
    profile: Annotated[str | None, Field(max_length=64)] = None
    name: Annotated[str | None, Field(max_length=200)] = None
    ttl_days: Annotated[int | None, Field(ge=1, le=3650)] = None
    """Null keeps it for ever; left out, the server's default applies."""
    priority: Annotated[int | None, Field(ge=FIRST, le=LAST)] = None
    """Waiting workflows of the lowest number are started first. It holds for later rounds too; 0 unless one was given."""
    hold: bool = False
    """Create it without starting it; `begin` starts it."""
    verbose: bool = False
    """Stream the model's tokens as `llm_token` events."""

    @property
    def says_how_long(self) -> bool:
        return "ttl_days" in self.model_fields_set

    @field_validator("prompt")
    @classmethod
    def _says_something(cls, prompt: str | None) -> str | None:
        if prompt is not None and not prompt.strip():
            raise PydanticCustomError("blank", "a prompt must say something")
        return prompt


class BatchIn(Given):
    ids: Annotated[list[Annotated[str, Field(max_length=256)]] | None, Field(max_length=1000)] = None
    """Which to begin; all that wait, when left out."""


# As long as a plan may be that is shown.
EditedPlan = Annotated[str, Field(min_length=1, max_length=20_000)]


class ApproveIn(Given):
    feedback: Annotated[str, Field(max_length=10_000)] = ""
    plan: EditedPlan | None = None
    """Of a question that shows a plan: the plan to carry out in its place."""


class RejectIn(Given):
    feedback: Annotated[str, Field(max_length=10_000)]

    @field_validator("feedback")
    @classmethod
    def _says_why(cls, feedback: str) -> str:
        if not feedback.strip():
            raise PydanticCustomError("blank", "a refusal must say why")
        return feedback


class ResolveIn(Given):
    """An answer to a call: which fields count depends on what was asked."""

    answer: Json = None
    approved: bool | None = None
    feedback: Annotated[str, Field(max_length=10_000)] = ""
    plan: EditedPlan | None = None
    """With an approval of a question that shows a plan: the plan to carry out in its place."""
    retry: bool = False
    """For a call in doubt: it did not happen, run it again."""


class DeadlineIn(Given):
    # Strictness alone would refuse a text here, and JSON has no other way to write a time.
    deadline: Annotated[AwareDatetime, Field(strict=False)]

    @field_validator("deadline", mode="before")
    @classmethod
    def _is_written_out(cls, deadline: object) -> object:
        if not isinstance(deadline, str):
            raise PydanticCustomError("time", "a time is written as in 2026-03-01T12:00:00Z")
        return deadline

    @field_validator("deadline")
    @classmethod
    def _is_within_all_years(cls, deadline: datetime) -> datetime:
        try:
            return deadline.astimezone(UTC)  # as it is kept: what is no time there could never be read back
        except OverflowError:
            raise PydanticCustomError("time", "a time lies between the years 1 and 9999") from None


class StatusOut(WireModel):
    status: str
    last_activity: datetime
    error: str | None = None
    """Why it failed."""

    @classmethod
    def of(cls, thread: Thread, status: str) -> Self:
        return cls(
            status=status,
            last_activity=thread.last_active_at,
            error=thread.failure_reason,
        )


class WorkflowOut(WireModel):
    """A workflow without its messages."""

    id: str
    mandate_id: int
    """The number of the tenant."""
    user_id: int
    """The number of the user; 0 where there is no user in particular."""
    tenant: str
    user: str
    name: str
    graph: str
    status: str
    stage: str
    current_round: int
    started_at: datetime
    last_activity: datetime
    expires_at: datetime | None
    failure_reason: str | None
    pending: Mapping[str, PendingOut]
    data_stats: StatsOut

    @classmethod
    def of(cls, thread: Thread, numbers: OwnerNumbers, status: str, **more: Any) -> Self:
        """`status` is the thread's, in the words of the workflow's own clients."""
        return cls(
            id=thread.id,
            mandate_id=numbers.tenant,
            user_id=numbers.user,
            tenant=thread.owner.tenant,
            user=thread.owner.user_id,
            name=thread.name,
            graph=thread.graph,
            status=status,
            stage=thread.stage,
            current_round=thread.round,
            started_at=thread.created_at,
            last_activity=thread.last_active_at,
            expires_at=thread.expires_at,
            failure_reason=thread.failure_reason,
            pending={
                call_id: PendingOut(executor=call.executor, kind=call.kind, prompt=call.prompt)
                for call_id, call in thread.pending.items()
            },
            data_stats=StatsOut.of(thread.stats),
            **more,
        )


class WorkflowsOut(WireModel):
    workflows: list[WorkflowOut]
    next: str | None
    """The cursor of the next page, if there is one."""


class DocumentOut(WireModel):
    id: str
    file_id: int
    """The number of the file it was made of."""
    file: str
    """The id of that file in /api/files; of what the workflow made, the document's own."""
    name: str
    """Without its extension."""
    ext: str
    mime_type: str
    size: int

    @classmethod
    def of(cls, document: Document, numbers: Mapping[str, int]) -> Self:
        """`numbers` of files, by their ids."""
        return cls(
            id=document.id,
            file_id=numbers[document.file_id],
            file=document.file_id,
            name=document.name,
            ext=document.ext,
            mime_type=document.mime,
            size=document.size,
        )


class ContentMetadataOut(WireModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="allow")

    is_text: bool
    base64_encoded: bool
    """Whether `data` is base64; else it is the text itself."""
    ai_processed: bool


class ContentOut(WireModel):
    sequence_nr: int
    name: str
    ext: str
    content_type: str
    data: str
    data_extracted: str = ""
    """What of it is relevant to the prompt of the request; left out where the request has none."""
    metadata: ContentMetadataOut
    summary: str


class WholeDocumentOut(DocumentOut):
    data: str
    """The unchanged bytes of the file, in base64."""
    contents: list[ContentOut]


class MessageOut(WireModel):
    id: str
    workflow_id: str
    role: Literal["user", "assistant"]
    agent_name: str
    content: Json
    """A text, or the parts of one as the model's client has them."""
    documents: list[DocumentOut]
    timestamp: datetime
    sequence_no: int
    status: Literal["first", "step", "last"]
    round: int

    @classmethod
    def of(
        cls,
        thread: Thread,
        message: views.MessageView,
        documents: Sequence[Document],
        numbers: Mapping[str, int],
    ) -> Self:
        return cls(
            id=message.id,
            workflow_id=thread.id,
            role=message.role,
            agent_name=message.agent,
            content=message.content,
            documents=[DocumentOut.of(one, numbers) for one in documents_of(message, documents)],
            timestamp=message.at,
            sequence_no=message.number,
            status=message.marker,
            round=message.round,
        )


def documents_of(message: views.MessageView, documents: Sequence[Document]) -> list[Document]:
    """A message names documents, or the files they were made of."""
    return [one for one in documents if one.id in message.documents or one.file_id in message.documents]


class LogOut(WireModel):
    id: str
    workflow_id: str
    message: str
    progress: int | None
    type: Literal["info", "warning", "error"]
    timestamp: datetime
    agent_name: str
    status: str

    @classmethod
    def of(cls, thread: Thread, line: views.LogLine, status: str) -> Self:
        return cls(
            id=line.id,
            workflow_id=thread.id,
            message=line.message,
            progress=line.progress,
            type=line.level,
            timestamp=line.at,
            agent_name=line.agent,
            status=status,
        )


class MessagesOut(WireModel):
    messages: list[MessageOut]
    next: str | None
    """The id the next page begins with, if there is one."""


class LogsOut(WireModel):
    logs: list[LogOut]
    next: str | None
    """The id the next page begins with, if there is one."""


class WholeWorkflowOut(WorkflowOut):
    messages: list[MessageOut]
    message_ids: list[str]
    """Of all messages, also of those that are left out."""
    logs: list[LogOut]
    truncated: bool
    """Whether older messages or logs are left out; they are at /messages and /logs."""


class BatchOut(WireModel):
    started: list[str]
    errors: Mapping[str, ErrorDetail]
    """Why the others were not, by id."""


class DecidedOut(BaseModel):
    """The answer of /workflows/{id}/approve, with underscores in its names."""

    status: Literal["approved", "rejected"]
    workflow_id: str


class DeletedOut(WireModel):
    id: str
    status: Literal["deleted"] = "deleted"


class StateOut(WireModel):
    values: Json
    """The values of the graph's state, by channel."""
    next: list[str]
    """The nodes that come next."""


class StartedOut(WorkflowOut):
    state: StateOut | None = None
    """The state of the graph, if the answer waited until it no longer ran."""


class CallOut(WireModel):
    id: str
    workflow_id: str
    round: int
    executor: str
    kind: str
    name: str
    args: Json
    prompt: Json
    status: str
    waiting: bool
    """Whether an answer is waited for right now."""
    idempotent: bool
    result: Json
    deadline: datetime | None
    created_at: datetime
    started_at: datetime | None
    resolved_at: datetime | None

    @classmethod
    def of(cls, thread: Thread, call: Call) -> Self:
        return cls(
            id=call.id,
            workflow_id=thread.id,
            round=call.round,
            executor=call.executor,
            kind=call.kind,
            name=call.name,
            args=call.args,
            prompt=call.prompt,
            status=call.status,
            waiting=call.id in thread.pending,
            idempotent=call.idempotent,
            result=call.result,
            deadline=call.deadline,
            created_at=call.created_at,
            started_at=call.started_at,
            resolved_at=call.resolved_at,
        )


class CallsOut(WireModel):
    tool_calls: list[CallOut]
