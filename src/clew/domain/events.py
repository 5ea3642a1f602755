"""Event log: everything that can happen to a thread. The list is closed; one frozen class per fact.

Class names are ours; `type` is the word in the log and on the wire. New fields get defaults, so that old rows still read.
`apply` and `rebuild` fold the log: the state of a thread after one more event, and after all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar, Literal, TypeAlias

from clew.domain.errors import Corrupt, InvalidState, NotFound
from clew.domain.thread import (
    Executor,
    Json,
    Owner,
    Pending,
    Stats,
    Status,
    SuspensionKind,
    Thread,
    may_follow,
)

# A text, or parts as the model clients have them: text, image, tool call, thinking.
Content: TypeAlias = str | Sequence[Mapping[str, Json]]
Marker: TypeAlias = Literal["first", "step", "last"]
Level: TypeAlias = Literal["info", "warning", "error"]
Outcome: TypeAlias = Literal["answered", "expired", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a thread is created with."""

    owner: Owner
    graph: str
    name: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)
    ttl: timedelta | None = None
    prune_after: timedelta | None = None


# The stream mode of runs whose clients speak LangGraph's thread protocol.
PROTOCOL_MODE = "protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run as a LangGraph client asked for it: how its graph is driven and streamed."""

    run_id: str
    assistant_id: str
    graph: str
    metadata: Mapping[str, Json] = field(default_factory=dict)
    strategy: str = "enqueue"
    config: Mapping[str, Json] = field(default_factory=dict)
    context: Mapping[str, Json] | None = None
    command: Mapping[str, Json] | None = (
        None  # to update the state and to go elsewhere; an answer is a Resolution
    )
    checkpoint_id: str = ""  # where to begin, if not where the thread stands
    stops_before: tuple[str, ...] = ()  # nodes, or one star for all of them
    stops_after: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    subgraphs: bool = False
    is_resumable: bool = False  # its stream parts are kept for clients that reconnect
    is_followed: bool = False  # a client streams it from its beginning
    webhook: str = ""
    is_temporary: bool = False  # the thread is deleted after the run
    user: Mapping[str, Json] | None = None  # of custom authentication, without credentials
    trace: str = ""  # the caller's `traceparent`


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStarted:
    """A round begins, or, with the number the thread has already, goes on: one that was held, or that failed.

    The first of a thread carries its opening.
    """

    type: ClassVar[str] = "round_started"
    round: int
    opening: Opening | None = None
    held: bool = False
    input: Json = None
    by: str | None = None  # the user it is for; empty for a caller without a user, None for the system
    spec: RunSpec | None = None
    user: Mapping[str, Json] | None = None  # of custom authentication, for a round without a spec
    headers: Mapping[str, str] = field(default_factory=dict)  # of the request, for a round without a spec
    trace: str = ""  # the caller's `traceparent`, the same
    priority: int | None = None  # of this and all later runs of the thread; None leaves it as it is
    reopens: str = (
        ""  # the message marked `last` that the failed round ended with, and that is a step of it now
    )

    @property
    def unmarks(self) -> frozenset[str]:
        """What the thread keeps of `reopens` among what is not shown."""
        return frozenset({last_mark(self.reopens)}) if self.reopens else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    type: ClassVar[str] = "user_msg"
    content: Content
    documents: tuple[str, ...] = ()
    marker: Marker = "first"
    number: int = 0  # counts the thread's messages; given when recorded
    source: str = ""  # the channel and its own id of this message


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    type: ClassVar[str] = "assistant_msg"
    content: Content
    agent: str = ""
    documents: tuple[str, ...] = ()
    marker: Marker = "step"
    number: int = 0
    ref: str = ""  # the graph's own id of this message, by which it is known again after a crash
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""  # that used the tokens
    cancelled: bool = False

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The executor has to run `name` with exactly these arguments. The id is made once."""

    type: ClassVar[str] = "tool_call"
    call_id: str
    name: str
    args: Json
    executor: Executor = Executor.SERVER
    idempotent: bool = True
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    type: ClassVar[str] = "tool_result"
    call_id: str
    ok: bool
    result: Json = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """The thread waits for an answer to `call_id`, until the deadline if there is one."""

    type: ClassVar[str] = "suspension"
    call_id: str
    executor: Executor
    kind: SuspensionKind
    prompt: Json
    args_hash: str = ""
    idempotent: bool = True  # of the tool; the model's call does not say
    deadline: datetime | None = None
    index: int = 0  # how many questions of the same node were answered before this one
    node: str = ""  # the node of a graph that asks, with those of the graphs around it: "outer|inner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The answer, or that none came. One that does not settle the call only approves it: the tool runs now."""

    type: ClassVar[str] = "resolution"
    call_id: str
    outcome: Outcome
    answer: Json = None
    settles: bool = True
    by: str = ""
    spec: RunSpec | None = None  # the run it goes on with, on the last of the answers given together


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChanged:
    type: ClassVar[str] = "stage_changed"
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCompleted:
    type: ClassVar[str] = "stage_completed"
    stage: str
    output: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFinished:
    type: ClassVar[str] = "round_finished"
    status: Status
    reason: str = ""
    error: str = ""  # what failed, in its own words; the reason says what was made of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A progress line for clients: what is being done, and how far it got."""

    type: ClassVar[str] = "log"
    message: str
    progress: int | None = None
    level: Level = "info"
    agent: str = ""
    status: Status = Status.RUNNING  # the thread's at that moment; given when recorded
    attempt: int = 0  # which attempt of the round failed, on a line that says so
    ref: str = ""  # the graph's own name of this line, by which it is known again after a crash


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentAdded:
    type: ClassVar[str] = "document_added"
    document_id: str
    name: str
    ext: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """From here on no view shows this message, or this document of this message. The log itself stays as it is."""

    type: ClassVar[str] = "redacted"
    message_id: str
    document_id: str = ""  # as the message names it: by its own id, or by that of its file
    hides: tuple[str, ...] = ()  # documents that were shown for the sake of this message alone
    unnames: bool = False  # the thread was called after what the message said

    @property
    def what(self) -> str:
        return f"{self.message_id}/{self.document_id}" if self.document_id else self.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlChanged:
    """From here on the thread expires this long after its last access, and loses its old checkpoints this long after it."""

    type: ClassVar[str] = "ttl_changed"
    ttl: timedelta
    prune_after: timedelta | None = None


Body: TypeAlias = (
    RoundStarted
    | UserMessage
    | AssistantMessage
    | ToolCall
    | ToolResult
    | Suspension
    | Resolution
    | StageChanged
    | StageCompleted
    | RoundFinished
    | Log
    | DocumentAdded
    | Redacted
    | TtlChanged
)

BODIES: Mapping[str, type[Body]] = {
    body.type: body
    for body in (
        RoundStarted,
        UserMessage,
        AssistantMessage,
        ToolCall,
        ToolResult,
        Suspension,
        Resolution,
        StageChanged,
        StageCompleted,
        RoundFinished,
        Log,
        DocumentAdded,
        Redacted,
        TtlChanged,
    )
}


def last_mark(message_id: str) -> str:
    """The name of a message's mark `last`, as that of a part of the message."""
    return f"{message_id}/last"


MESSAGES = frozenset({UserMessage.type, AssistantMessage.type})
# What was to be done and asked in a round, and what came of it.
ASKING = frozenset({ToolCall.type, ToolResult.type, Suspension.type, Resolution.type})
CALLS = ASKING | {RoundFinished.type}


def id_prefix(body: Body) -> str:
    """Records that clients list and name by id say what they are."""
    if body.type in MESSAGES:
        return "msg_"
    return "log_" if body.type == Log.type else "evt_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    thread_id: str
    seq: int
    id: str
    round: int
    at: datetime
    body: Body

    @property
    def type(self) -> str:
        return self.body.type


def rebuild(log: Iterable[Event]) -> Thread:
    """The thread as its log alone gives it. Where a cached row disagrees, the log is right."""
    thread: Thread | None = None
    for event in log:
        try:
            thread = apply(thread, event)
        except InvalidState as exc:
            raise Corrupt(
                f"thread {event.thread_id!r}: event {event.seq} cannot have happened: {exc}"
            ) from exc
    if thread is None:
        raise NotFound("an empty log has no thread")
    return thread


def apply(thread: Thread | None, event: Event) -> Thread:
    """One more event: the state it leads to."""
    if thread is None:
        return _born(event)
    if event.seq != thread.last_seq + 1:
        raise Corrupt(f"thread {thread.id!r}: event {event.seq} follows {thread.last_seq}")
    after = _fold(thread, event)
    if not may_follow(thread.status, after.status):
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, it cannot become {after.status}")
    return after


def _born(event: Event) -> Thread:
    match event.body:
        case RoundStarted(round=number, opening=Opening() as opening, held=held) as started if event.seq == 1:
            return Thread(
                id=event.thread_id,
                owner=opening.owner,
                graph=opening.graph,
                name=opening.name,
                status=Status.PENDING if held else Status.RUNNING,
                stage="initializing",
                round=number,
                round_seq=1,
                last_seq=1,
                created_at=event.at,
                last_active_at=event.at,
                round_started_at=None if held else event.at,
                settings=opening.settings,
                ttl=opening.ttl,
                prune_after=opening.prune_after,
                priority=started.priority,
            )
        case _:
            raise Corrupt(f"thread {event.thread_id!r}: its log does not begin with an opening")


def _fold(thread: Thread, event: Event) -> Thread:
    if thread.status.is_terminal and not isinstance(event.body, RoundStarted | Redacted | TtlChanged):
        # Late writes never reopen or extend a round that has ended.
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, its round takes no more {event.type}")
    after = partial(replace, thread, last_seq=event.seq, last_active_at=event.at)
    match event.body:
        case RoundStarted(round=number, held=held, spec=spec) as started:
            if held:
                raise InvalidState("only the first round of a thread can be held")
            if thread.status in (Status.RUNNING, Status.BLOCKED):
                raise InvalidState(f"thread {thread.id!r} is {thread.status}, its round was started already")
            return after(
                status=Status.RUNNING,
                graph=spec.graph if spec else thread.graph,
                round=number,
                # A round that was held, or failed and is taken up, began when it was given what it works on.
                round_seq=thread.round_seq if number == thread.round else event.seq,
                round_started_at=event.at,
                failure_reason=None,
                redacted=thread.redacted | started.unmarks,
                priority=thread.priority if started.priority is None else started.priority,
            )
        case Suspension(call_id=call_id, executor=executor, kind=kind, prompt=prompt):
            waits = Pending(executor=executor, kind=kind, prompt=prompt)
            return after(status=Status.BLOCKED, pending={**thread.pending, call_id: waits})
        case Resolution(call_id=call_id) | ToolResult(call_id=call_id):
            if call_id not in thread.pending:
                return after()
            left = {other: call for other, call in thread.pending.items() if other != call_id}
            return after(pending=left, status=thread.status if left else Status.RUNNING)
        case StageChanged(stage=stage):
            return after(stage=stage)
        case RoundFinished(status=status, reason=reason):
            return after(
                status=status,
                failure_reason=reason if status is Status.FAILED else None,
                pending={},
                stats=_timed(thread, event.at),
            )
        case UserMessage() | AssistantMessage() as message:
            return after(stats=_counted(thread.stats, message))
        case Redacted() as redacted:
            return after(
                redacted=thread.redacted | {redacted.what, *redacted.hides},
                name="" if redacted.unnames else thread.name,
            )
        case TtlChanged(ttl=ttl, prune_after=prune_after):
            return after(ttl=ttl, prune_after=prune_after)
        case DocumentAdded(document_id=document_id) if document_id in thread.redacted:
            # It was added again.
            return after(redacted=thread.redacted - {document_id})
        case _:
            return after()


def _counted(stats: Stats, message: UserMessage | AssistantMessage) -> Stats:
    said = (
        [message.content]
        if isinstance(message.content, str)
        else [part.get("text", "") for part in message.content if isinstance(part.get("text", ""), str)]
    )
    tokens = (message.tokens_in, message.tokens_out) if isinstance(message, AssistantMessage) else (0, 0)
    return replace(
        stats,
        messages=stats.messages + 1,
        # The store refuses what is not text; counting does not.
        bytes=stats.bytes + sum(len(text.encode(errors="surrogatepass")) for text in said),
        tokens_in=stats.tokens_in + tokens[0],
        tokens_out=stats.tokens_out + tokens[1],
    )


def _timed(thread: Thread, now: datetime) -> Stats:
    if thread.round_started_at is None:
        return thread.stats
    spent = max(timedelta(), now - thread.round_started_at)
    return replace(thread.stats, milliseconds=thread.stats.milliseconds + spent // timedelta(milliseconds=1))
