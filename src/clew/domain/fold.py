"""Event folding: the state of a thread after one more event, and after a whole log."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from clew.domain.errors import Corrupt, InvalidState, NotFound
from clew.domain.events import (
    AssistantMessage,
    DocumentAdded,
    Event,
    Opening,
    Redacted,
    Resolution,
    RoundFinished,
    RoundStarted,
    StageChanged,
    Suspension,
    ToolResult,
    TtlChanged,
    UserMessage,
)
from clew.domain.thread import Pending, Stats, Status, Thread, may_follow


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
    after = replace(_fold(thread, event), last_seq=event.seq, last_active_at=event.at)
    if not may_follow(thread.status, after.status):
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, it cannot become {after.status}")
    return after


def _born(event: Event) -> Thread:
    match event.body:
        case RoundStarted(round=number, opening=Opening() as opening, held=held) if event.seq == 1:
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
            )
        case _:
            raise Corrupt(f"thread {event.thread_id!r}: its log does not begin with an opening")


def _fold(thread: Thread, event: Event) -> Thread:
    if thread.status.is_terminal and not isinstance(event.body, RoundStarted | Redacted | TtlChanged):
        # Late writes never reopen or extend a round that has ended.
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, its round takes no more {event.type}")
    match event.body:
        case RoundStarted(round=number, held=held, spec=spec) as started:
            if held:
                raise InvalidState("only the first round of a thread can be held")
            if thread.status in (Status.RUNNING, Status.BLOCKED):
                raise InvalidState(f"thread {thread.id!r} is {thread.status}, its round was started already")
            return replace(
                thread,
                status=Status.RUNNING,
                graph=spec.graph if spec else thread.graph,
                round=number,
                # A round that was held, or failed and is taken up, began when it was given what it works on.
                round_seq=thread.round_seq if number == thread.round else event.seq,
                round_started_at=event.at,
                failure_reason=None,
                redacted=thread.redacted | started.unmarks,
            )
        case Suspension(call_id=call_id, executor=executor, kind=kind, prompt=prompt):
            waits = Pending(executor=executor, kind=kind, prompt=prompt)
            return replace(thread, status=Status.BLOCKED, pending={**thread.pending, call_id: waits})
        case Resolution(call_id=call_id) | ToolResult(call_id=call_id):
            if call_id not in thread.pending:
                return thread
            left = {other: call for other, call in thread.pending.items() if other != call_id}
            return replace(thread, pending=left, status=thread.status if left else Status.RUNNING)
        case StageChanged(stage=stage):
            return replace(thread, stage=stage)
        case RoundFinished(status=status, reason=reason):
            return replace(
                thread,
                status=status,
                failure_reason=reason if status is Status.FAILED else None,
                pending={},
                stats=_timed(thread, event.at),
            )
        case UserMessage() | AssistantMessage() as message:
            return replace(thread, stats=_counted(thread.stats, message))
        case Redacted() as redacted:
            return replace(
                thread,
                redacted=thread.redacted | {redacted.what, *redacted.hides},
                name="" if redacted.unnames else thread.name,
            )
        case TtlChanged(ttl=ttl):
            return replace(thread, ttl=ttl)
        case DocumentAdded(document_id=document_id) if document_id in thread.redacted:
            # It was added again.
            return replace(thread, redacted=thread.redacted - {document_id})
        case _:
            return thread


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
