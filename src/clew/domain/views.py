"""Views of a thread for clients: events as messages, logs and pending calls, and its status in each contract's words."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from clew.domain.events import (
    BODIES,
    AssistantMessage,
    Body,
    Content,
    Event,
    Level,
    Log,
    Marker,
    RoundFinished,
    RoundStarted,
    Suspension,
    UserMessage,
    last_mark,
)
from clew.domain.thread import Json, Owner, Status, SuspensionKind, Thread

# The state of a thread that no graph was given to yet.
EMPTY_STATE: Mapping[str, Json] = {
    "values": {},
    "next": [],
    "tasks": [],
    "metadata": {},
    "created_at": None,
    "checkpoint": None,
    "parent_checkpoint": None,
    "interrupts": [],
    "checkpoint_id": None,
    "parent_checkpoint_id": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperstepUpdate:
    """What a node is taken to have returned in a superstep that is written by hand: values, or a command."""

    values: Json = None
    command: Mapping[str, Json] | None = None
    as_node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    id: str
    seq: int
    round: int
    number: int
    role: Literal["user", "assistant"]
    agent: str
    content: Content
    marker: Marker
    documents: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestions:
    """What a graph waits for after its state was written by hand."""

    kept: frozenset[str]  # of what it asked before, by id
    new: tuple[Suspension, ...]
    has_ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    id: str
    seq: int
    message: str
    progress: int | None
    level: Level
    agent: str
    status: Status
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of the message that a model is generating now. The log holds the whole message later."""

    thread_id: str
    owner: Owner
    message: str  # the graph's own id of the message, the `ref` of the one that will be in the log
    agent: str
    offset: int  # how many characters of the message came before this piece
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """The values a thread's graph has now, and the nodes that come next."""

    values: Json
    next: tuple[str, ...]


def messages(thread: Thread, events: Iterable[Event]) -> Iterator[MessageView]:
    """The messages among the events, without what was redacted."""
    for event in events:
        match event.body:
            case UserMessage() as body:
                role: Literal["user", "assistant"] = "user"
                agent = ""
            case AssistantMessage(agent=agent) as body:
                role = "assistant"
            case _:
                continue
        if event.id in thread.redacted:
            continue
        yield MessageView(
            id=event.id,
            seq=event.seq,
            round=event.round,
            number=body.number,
            role=role,
            agent=agent,
            content=body.content,
            marker="step" if last_mark(event.id) in thread.redacted else body.marker,
            documents=tuple(doc for doc in body.documents if f"{event.id}/{doc}" not in thread.redacted),
            at=event.at,
        )


def logs(events: Iterable[Event]) -> Iterator[LogLine]:
    for event in events:
        if isinstance(event.body, Log):
            body = event.body
            yield LogLine(
                id=event.id,
                seq=event.seq,
                message=body.message,
                progress=body.progress,
                level=body.level,
                agent=body.agent,
                status=body.status,
                at=event.at,
            )


_CHAT: Mapping[Status, str] = {Status.PENDING: "running", Status.BLOCKED: "running"}
ConversationStatus = Literal["active", "suspended", "idle", "ended"]
_CONVERSATION: Mapping[Status, ConversationStatus] = {
    Status.PENDING: "idle",
    Status.RUNNING: "active",
    Status.BLOCKED: "suspended",
    Status.COMPLETED: "idle",
    Status.FAILED: "idle",
    Status.STOPPED: "ended",
}


def chat_status(status: Status) -> str:
    """As chat clients know it: running, completed, failed, stopped."""
    return _CHAT.get(status, str(status))


def conversation_status(thread: Thread) -> ConversationStatus:
    """As a conversation: active, suspended, idle, ended."""
    return _CONVERSATION[thread.status]


def retention_status(thread: Thread, *, now: datetime) -> str:
    """As clean-up sees it: active, completed, expired."""
    if thread.expires_at is not None and thread.expires_at <= now and thread.status is not Status.RUNNING:
        return "expired"
    return "completed" if thread.status is Status.COMPLETED else "active"


# Every name that `wire_type` gives.
WIRE_TYPES = frozenset(BODIES) - {RoundFinished.type} | {
    *("workflow_started", "approval_required"),
    *(f"workflow_{status}" for status in Status if status.is_terminal),
}


def wire_type(body: Body) -> str:
    """The name of an event for watching clients; most keep the name they have in the log."""
    match body:
        case RoundStarted(held=False):
            return "workflow_started"
        case RoundFinished(status=status):
            return f"workflow_{status}"
        case Suspension(kind=SuspensionKind.APPROVAL):
            return "approval_required"
        case _:
            return body.type
