"""Ready-made values for tests: a fixed time, a stamp, a thread's first change, one body of every event type."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from clew.domain.events import (
    AssistantMessage,
    Body,
    DocumentAdded,
    Log,
    Opening,
    Redacted,
    Resolution,
    RoundFinished,
    RoundStarted,
    StageChanged,
    StageCompleted,
    Suspension,
    ToolCall,
    ToolResult,
    TtlChanged,
    UserMessage,
)
from clew.domain.lifecycle import Change, Stamp, open_thread, record
from clew.domain.thread import Executor, Owner, Status, SuspensionKind, Thread

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ANN = Owner(tenant="acme", user_id="ann")


def new_id() -> str:
    return uuid.uuid4().hex


def stamp(seconds: float = 0) -> Stamp:
    """Signed `seconds` after NOW."""
    return Stamp(NOW + timedelta(seconds=seconds), new_id)


def opened(
    thread_id: str = "t1",
    message: str | None = "hello",
    *,
    owner: Owner = ANN,
    graph: str = "chat",
    ttl: timedelta | None = None,
    prune_after: timedelta | None = None,
    held: bool = False,
    seconds: float = 0,
) -> Change:
    """The change that opens a thread."""
    settings = {"k": [1, None, "é"]}
    opening = Opening(
        owner=owner, graph=graph, name="a name", settings=settings, ttl=ttl, prune_after=prune_after
    )
    return open_thread(thread_id, opening, message, stamp=stamp(seconds), held=held)


def recorded(thread: Thread, *bodies: Body, seconds: float = 0) -> Change:
    return record(thread, bodies, stamp=stamp(seconds))


def suspend(thread: Thread, suspensions: Sequence[Suspension], *, stamp: Stamp) -> Change:
    """The thread waits for all of these."""
    return record(thread, suspensions, stamp=stamp)


def said(text: str = "hi") -> UserMessage:
    return UserMessage(content=text)


def asks(call_id: str = "c1", *, executor: Executor = Executor.SERVER, idempotent: bool = True) -> ToolCall:
    return ToolCall(call_id=call_id, name="search", args={"q": "x"}, executor=executor, idempotent=idempotent)


def waits(
    call_id: str = "c1",
    *,
    executor: Executor = Executor.HUMAN,
    kind: SuspensionKind = SuspensionKind.APPROVAL,
    deadline: datetime | None = None,
) -> Suspension:
    return Suspension(
        call_id=call_id, executor=executor, kind=kind, prompt={"text": "may I?"}, deadline=deadline
    )


# Every type at least once, every field at least once off its default.
EVERY_BODY: Sequence[Body] = (
    RoundStarted(
        round=1,
        opening=Opening(
            owner=ANN,
            graph="chat",
            name="näme",
            settings={"a": {"b": [1, 2.5, True, None]}},
            ttl=timedelta(days=30),
        ),
        held=True,
        input={"messages": []},
        by="ann",
    ),
    RoundStarted(round=2, priority=-1),
    UserMessage(content="hello", documents=("d1", "d2"), marker="last", number=1, source="telegram:7"),
    UserMessage(
        content=[
            {"type": "text", "text": "look"},
            {"type": "image", "url": "data:image/png;base64,AA=="},
        ]
    ),
    AssistantMessage(
        content=[
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "done"},
            {"type": "tool_call", "id": "c1", "name": "search", "args": {"q": ""}},
        ],
        agent="architect",
        documents=("d3",),
        marker="first",
        number=2,
        tokens_in=10,
        tokens_out=20,
        model="gpt-5-mini",
        cancelled=True,
    ),
    ToolCall(
        call_id="c1",
        name="search",
        args={"q": "x"},
        executor=Executor.CLIENT,
        idempotent=False,
        agent="developer",
    ),
    ToolResult(call_id="c1", ok=True, result=[1, {"a": None}]),
    ToolResult(call_id="c2", ok=False, error="no such file"),
    Suspension(
        call_id="c1",
        executor=Executor.HUMAN,
        kind=SuspensionKind.ELICITATION,
        prompt={"question": "which?"},
        args_hash="ab12",
        index=1,
        node="outer|ask",
        deadline=NOW + timedelta(hours=1),
    ),
    Resolution(call_id="c1", outcome="answered", answer={"approved": True}, settles=False, by="ann"),
    StageChanged(stage="review"),
    StageCompleted(stage="review", output={"verdict": "ok"}),
    RoundFinished(status=Status.FAILED, reason="the model is gone"),
    Log(message="half way", progress=50, level="warning", agent="developer", status=Status.BLOCKED),
    DocumentAdded(document_id="d1", name="plan", ext="md"),
    Redacted(message_id="msg_1", document_id="d1"),
    TtlChanged(ttl=timedelta(days=7)),
)
