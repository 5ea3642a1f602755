"""The rules of a thread's life: pure functions from a thread to the change a command makes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from clew.domain.durations import require_duration
from clew.domain.errors import Conflict, Corrupt, Invalid, InvalidState, NotFound
from clew.domain.events import (
    CALLS,
    AssistantMessage,
    Body,
    Content,
    DocumentAdded,
    Event,
    Log,
    Opening,
    Redacted,
    Resolution,
    RoundFinished,
    RoundStarted,
    RunSpec,
    StageChanged,
    Suspension,
    ToolResult,
    UserMessage,
    id_prefix,
)
from clew.domain.ledger import is_yes
from clew.domain.runs import undone
from clew.domain.thread import Executor, Json, Pending, Stats, Status, SuspensionKind, Thread, may_follow
from clew.domain.tool_calls import Call

NewId: TypeAlias = Callable[[], str]

# In the settings of a thread: the keys it reserves while it is active, by kind. Only a checked start writes there.
RESERVED = "reserved"

EXPIRED = "tool call expired: no response"
OVERDUE = "expired: nobody answered before the thread's time was over"
CANCELLED = "[cancelled]"


@dataclass(frozen=True, slots=True)
class Change:
    """What one command did: the thread as it is now, and the events that made it so."""

    thread: Thread
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        first = self.thread.last_seq - len(self.events) + 1
        if not self.events or any(
            event.seq != first + offset or event.thread_id != self.thread.id
            for offset, event in enumerate(self.events)
        ):
            raise Conflict(f"the new events of thread {self.thread.id!r} are not numbered one by one")

    @property
    def read_at(self) -> int:
        """The seq the thread had when it was read: what the store must still find."""
        return self.thread.last_seq - len(self.events)

    @property
    def touches_calls(self) -> bool:
        return any(event.type in CALLS or self._takes_up(event) for event in self.events)

    @property
    def takes_back(self) -> tuple[str, ...]:
        """The messages that are hidden, or of which a document is."""
        return tuple(event.body.message_id for event in self.events if isinstance(event.body, Redacted))

    @property
    def reserves(self) -> Mapping[str, str]:
        """The keys, by kind, that a thread reserves as it becomes active with this change."""
        reserved: Mapping[str, str] = self.thread.settings.get(RESERVED) or {}
        begins = reserved and any(isinstance(event.body, RoundStarted) for event in self.events)
        return reserved if begins else {}

    @property
    def stirs(self) -> bool:
        """Whether a thread that waited, for an answer or failed, goes on with it or ends."""
        return any(
            isinstance(event.body, Resolution)
            or (isinstance(event.body, RoundFinished) and event.body.status is not Status.COMPLETED)
            or self._takes_up(event)
            for event in self.events
        )

    def _takes_up(self, event: Event) -> bool:
        """Whether it goes on with a round that has begun before."""
        return isinstance(event.body, RoundStarted) and event.seq != self.thread.round_seq


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a change is signed with: the time it was decided, and where new ids come from."""

    now: datetime
    new_id: NewId


def open_thread(
    thread_id: str,
    opening: Opening,
    message: Content | None,
    *,
    stamp: Stamp,
    graph_input: Json = None,
    documents: tuple[str, ...] = (),
    source: str = "",
    held: bool = False,
    by: str | None = None,
    spec: RunSpec | None = None,
) -> Change:
    """A new thread and its first round. A held one waits as `pending` until `begin`."""
    require_duration(opening.ttl, field="ttl")
    started = RoundStarted(round=1, opening=opening, held=held, input=graph_input, by=by, spec=spec)
    return record(None, [started, *_said(message, documents, source)], stamp=stamp, thread_id=thread_id)


def open_idle(thread_id: str, opening: Opening, *, stamp: Stamp, number: int = 1) -> Change:
    """A new thread in which nothing is to be done yet: its first round is over as it begins.

    That of a copy has the `number` of the round it was copied in, so that its next one is a new one to its graph.
    """
    require_duration(opening.ttl, field="ttl")
    started = RoundStarted(round=number, opening=opening)
    return record(None, [started, RoundFinished(status=Status.COMPLETED)], stamp=stamp, thread_id=thread_id)


def begin(thread: Thread, *, stamp: Stamp, by: str | None = None) -> Change:
    """Start the round of a thread that was only made."""
    if thread.status is not Status.PENDING:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, it was started already")
    return record(thread, [RoundStarted(round=thread.round, by=by)], stamp=stamp)


def next_round(
    thread: Thread,
    message: Content | None,
    *,
    stamp: Stamp,
    graph_input: Json = None,
    documents: tuple[str, ...] = (),
    source: str = "",
    by: str | None = None,
) -> Change:
    if not thread.status.is_terminal:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, a new round must wait")
    started = RoundStarted(round=thread.round + 1, input=graph_input, by=by)
    return record(thread, [started, *_said(message, documents, source)], stamp=stamp)


def carry_out(
    thread: Thread,
    spec: RunSpec,
    open_calls: Iterable[Call],
    message: Content | None,
    *,
    stamp: Stamp,
    graph_input: Json = None,
    by: str | None = None,
) -> Change:
    """Begin what was ordered. A thread that waits for answers is done with waiting: what it asked is cancelled."""
    if thread.status is Status.RUNNING:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, a new run must wait")
    before: list[Body] = []
    if thread.status is Status.BLOCKED:
        before = [
            *_cancelled(open_calls),
            RoundFinished(status=Status.STOPPED, reason="another run was ordered"),
        ]
    number = thread.round if thread.status is Status.PENDING else thread.round + 1
    started = RoundStarted(round=number, input=graph_input, by=by, spec=spec)
    return record(thread, [*before, started, *_said(message, (), "")], stamp=stamp)


def take_up(
    thread: Thread, this_round: Iterable[Event] = (), *, stamp: Stamp, by: str | None = None
) -> Change:
    """Go on with a failed round where it stood, without new input. What it ended with is no longer its last word."""
    if thread.status is not Status.FAILED:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, only a failed one can be resumed")
    closed = [
        event.id
        for event in this_round
        if isinstance(event.body, AssistantMessage) and event.body.marker == "last"
    ]
    started = RoundStarted(round=thread.round, by=by, reopens=closed[-1] if closed else "")
    return record(thread, [started], stamp=stamp)


def suspend(thread: Thread, suspensions: Sequence[Suspension], *, stamp: Stamp) -> Change:
    """Wait for all of these at once: one commit, so a kill never leaves half of the questions asked."""
    if not suspensions:
        raise Invalid("expected at least one suspension", "suspensions")
    return record(thread, suspensions, stamp=stamp)


def resolve(
    thread: Thread, call: Call, answer: Json, *, stamp: Stamp, by: str = "", approved: bool = True
) -> Change:
    """Answer a pending call. What the answer means depends on what was asked.

    An approval of what the server or a client does opens the gate, a refusal ends the call; whoever is asked about a
    call in doubt says how it ended, or that it may run again; any other answer is the result itself.
    """
    return record(thread, _resolved(thread, call, answer, approved=approved, by=by), stamp=stamp)


def answer_all(
    thread: Thread, answers: Iterable[tuple[Call, Json]], spec: RunSpec, *, stamp: Stamp, by: str = ""
) -> Change:
    """The same for some or all of what the thread waits for, at once, as a run that was ordered."""
    bodies: list[Body] = []
    given = [*answers]
    for left, (call, answer) in enumerate(reversed(given)):
        told = spec if left == 0 else None
        bodies = [*_resolved(thread, call, answer, approved=is_yes(answer), by=by, spec=told), *bodies]
    return record(thread, bodies, stamp=stamp)


def ask_anew(thread: Thread, gone: Iterable[Call], new: Sequence[Suspension], *, stamp: Stamp) -> Change:
    """What a thread waits for after its state was written by hand. If that is nothing, its round has ended."""
    bodies: list[Body] = [*new, *_cancelled(gone)]
    if not new and thread.pending.keys() <= {call.id for call in gone}:
        bodies.append(RoundFinished(status=Status.COMPLETED))
    return record(thread, bodies, stamp=stamp)


def wait_as(thread: Thread, asked: Sequence[Body], *, stamp: Stamp) -> Change:
    """The thread is a copy, and waits for what the original waits for: `asked` is what was asked and answered there."""
    bodies = [replace(body, spec=None) if isinstance(body, Resolution) else body for body in asked]
    return record(thread, [RoundStarted(round=thread.round), *bodies], stamp=stamp)


def _resolved(
    thread: Thread, call: Call, answer: Json, *, approved: bool, by: str, spec: RunSpec | None = None
) -> list[Body]:
    pending = _pending(thread, call.id)
    opens = opens_gate(pending, answer, approved=approved)
    bodies: list[Body] = [
        Resolution(call_id=call.id, outcome="answered", answer=answer, settles=not opens, by=by, spec=spec)
    ]
    if opens:
        return bodies
    if call.name:
        refused = pending.kind is SuspensionKind.APPROVAL and not approved
        error = _refusal(answer, by) if refused else ""
        bodies.append(ToolResult(call_id=call.id, ok=not refused, result=answer, error=error))
    return bodies


def _refusal(answer: Json, by: str) -> str:
    """What the model is told: it may do better next time if it knows why."""
    feedback = answer.get("feedback") if isinstance(answer, dict) else None
    return f"refused by {by or 'a person'}" + (f": {feedback}" if feedback else "")


def opens_gate(pending: Pending, answer: Json, *, approved: bool) -> bool:
    """Whether the answer lets the call run rather than ending it."""
    if pending.kind is SuspensionKind.IN_DOUBT:
        return isinstance(answer, dict) and answer.get("retry") is True
    return pending.kind is SuspensionKind.APPROVAL and pending.executor is not Executor.HUMAN and approved


def expire(thread: Thread, call: Call, *, stamp: Stamp) -> Change:
    """Nobody answered in time: the call ends as an error and the thread goes on by itself."""
    return record(thread, _expired(thread, call), stamp=stamp)


def expire_all(thread: Thread, calls: Iterable[Call], *, stamp: Stamp) -> Change:
    """The time of a thread that waits is over: what it waits for expires, and its round ends with that."""
    expired = [body for call in calls for body in _expired(thread, call)]
    return record(thread, [*expired, RoundFinished(status=Status.FAILED, reason=OVERDUE)], stamp=stamp)


def _expired(thread: Thread, call: Call) -> list[Body]:
    # Whoever asked for a yes reads the answer as one: silence is none.
    no = {"approved": False} if _pending(thread, call.id).kind is SuspensionKind.APPROVAL else {}
    bodies: list[Body] = [
        Resolution(call_id=call.id, outcome="expired", answer={**no, "ok": False, "error": EXPIRED}),
    ]
    if call.name:
        bodies.append(ToolResult(call_id=call.id, ok=False, error=EXPIRED))
    return bodies


def stop(
    thread: Thread,
    open_calls: Iterable[Call],
    *,
    stamp: Stamp,
    notes: Sequence[Body] = (),
    undoes: str = "",
) -> Change:
    """End the round at once. Every open call gets a `[cancelled]` result, so that no later turn meets a dangling call.

    With the run that it `undoes`, that is not told of any more, and nothing is built on it.
    """
    if thread.status.is_terminal:
        raise InvalidState(f"thread {thread.id!r} is already {thread.status}")
    finished = RoundFinished(status=Status.STOPPED, reason="stopped by user")
    forgotten = [Redacted(message_id=undoes, hides=(undone(undoes),))] if undoes else []
    return record(thread, [*_cancelled(open_calls), *notes, finished, *forgotten], stamp=stamp)


def _cancelled(open_calls: Iterable[Call]) -> list[ToolResult]:
    return [ToolResult(call_id=call.id, ok=False, error=CANCELLED) for call in open_calls]


def finish(
    thread: Thread, status: Status, *, stamp: Stamp, reason: str = "", notes: Sequence[Body] = ()
) -> Change:
    if not status.is_terminal:
        raise Invalid(f"a round cannot finish as {status}", "status")
    return record(thread, [*notes, RoundFinished(status=status, reason=reason)], stamp=stamp)


def redact(
    thread: Thread,
    message_id: str,
    *,
    stamp: Stamp,
    document_id: str = "",
    hides: tuple[str, ...] = (),
    unnames: bool = False,
) -> Change:
    """Hide a message, or one document of it, from every view."""
    if thread.status is Status.PENDING:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, begin or stop it first")
    if not thread.status.is_terminal:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, wait until its round has ended")
    redacted = Redacted(message_id=message_id, document_id=document_id, hides=hides, unnames=unnames)
    return record(thread, [redacted], stamp=stamp)


def record(
    thread: Thread | None, bodies: Sequence[Body], *, stamp: Stamp, thread_id: str | None = None
) -> Change:
    """Number the new events and fold them into the thread. Raises InvalidState where its state forbids one of them."""
    events: list[Event] = []
    end = next((body.status for body in bodies if isinstance(body, RoundFinished)), None)
    for body in bodies:
        if thread is not None:
            thread_id = thread.id
        if thread_id is None:
            raise Invalid("the first events of a thread need its id", "thread_id")
        event = Event(
            thread_id=thread_id,
            seq=thread.last_seq + 1 if thread else 1,
            id=id_prefix(body) + stamp.new_id(),
            round=_round_of(thread, body),
            at=stamp.now,
            body=_numbered(thread, body, end),
        )
        thread = apply(thread, event)
        events.append(event)
    if thread is None or not events:
        raise Invalid("expected at least one event", "events")
    return Change(thread, tuple(events))


def rebuild(log: Iterable[Event]) -> Thread:
    """The thread as its log alone tells it. Where a cached row disagrees, this is right."""
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
    if thread.status.is_terminal and not isinstance(event.body, RoundStarted | Redacted):
        # Late writes never reopen or adorn a round that has ended.
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
        case DocumentAdded(document_id=document_id) if document_id in thread.redacted:
            # Somebody brought it again.
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
        # What is not text at all is for the store to refuse, not for the one who counts.
        bytes=stats.bytes + sum(len(text.encode(errors="surrogatepass")) for text in said),
        tokens_in=stats.tokens_in + tokens[0],
        tokens_out=stats.tokens_out + tokens[1],
    )


def _timed(thread: Thread, now: datetime) -> Stats:
    if thread.round_started_at is None:
        return thread.stats
    spent = max(timedelta(), now - thread.round_started_at)
    return replace(thread.stats, milliseconds=thread.stats.milliseconds + spent // timedelta(milliseconds=1))


def _numbered(thread: Thread | None, body: Body, end: Status | None) -> Body:
    """What only the thread knows: a message's number, and the status a log line was written under."""
    match body:
        case UserMessage() | AssistantMessage():
            return replace(body, number=thread.stats.messages + 1 if thread else 1)
        case Log(status=claimed):
            # A closing line says how the round ended, and is believed in the commit that ends it so.
            return (
                body if claimed is end else replace(body, status=thread.status if thread else Status.RUNNING)
            )
        case _:
            return body


def _round_of(thread: Thread | None, body: Body) -> int:
    if isinstance(body, RoundStarted):
        return body.round
    return thread.round if thread else 1


def _said(message: Content | None, documents: tuple[str, ...], source: str) -> list[Body]:
    return [] if message is None else [UserMessage(content=message, documents=documents, source=source)]


def _pending(thread: Thread, call_id: str) -> Pending:
    if call_id not in thread.pending:
        raise InvalidState(f"call {call_id!r} of thread {thread.id!r} waits for no answer")
    return thread.pending[call_id]
