"""Thread lifecycle: pure functions from a thread to the change a command makes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from clew.domain.errors import Conflict, Invalid, InvalidState
from clew.domain.events import (
    CALLS,
    AssistantMessage,
    Body,
    Content,
    Event,
    Log,
    Opening,
    Redacted,
    Resolution,
    RoundFinished,
    RoundStarted,
    RunSpec,
    StageCompleted,
    Suspension,
    ToolResult,
    TtlChanged,
    UserMessage,
    apply,
    id_prefix,
)
from clew.domain.retention import require_duration
from clew.domain.runs import undone
from clew.domain.thread import Executor, Json, Pending, Status, SuspensionKind, Thread
from clew.domain.tool_calls import Call, is_yes

NewId: TypeAlias = Callable[[], str]

# In the settings of a thread: the keys it reserves while it is active, by kind. Only a checked start writes there.
RESERVED = "reserved"

NO_HEADERS: Mapping[str, str] = {}

EXPIRED = "tool call expired: no response"
OVERDUE = "expired: no answer came before the thread's time to live was over"
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
        return any(event.type in CALLS or self._retries(event) for event in self.events)

    @property
    def only_ends_calls(self) -> bool:
        """Whether it touches calls only where some are open: the round is complete, and nothing else was done to them."""
        return not self.wakes_conversation and all(
            isinstance(event.body, RoundFinished) for event in self.events if event.type in CALLS
        )

    @property
    def takes_back(self) -> tuple[str, ...]:
        """The messages that are hidden, or of which a document is."""
        return tuple(event.body.message_id for event in self.events if isinstance(event.body, Redacted))

    @property
    def completes_stage(self) -> bool:
        """Whether the graph came further with this: crashes before it do not count against the thread any more."""
        return any(isinstance(event.body, StageCompleted) for event in self.events)

    @property
    def begun(self) -> tuple[Event, ...]:
        """All events of the round that begins with this change; none if it does not begin one that runs."""
        first = self.thread.round_seq
        if self.thread.status is not Status.RUNNING or first <= self.read_at:
            return ()
        return tuple(event for event in self.events if event.seq >= first)

    @property
    def starts_a_run(self) -> bool:
        """Whether the thread waits for a runner with this: a round begins, or the graph is given an answer."""
        return self.thread.status is Status.RUNNING and any(
            isinstance(event.body, RoundStarted | Resolution) for event in self.events
        )

    @property
    def uses_tokens(self) -> bool:
        return any(isinstance(event.body, AssistantMessage) and event.body.tokens for event in self.events)

    @property
    def changes_ttl(self) -> bool:
        return any(isinstance(event.body, TtlChanged) for event in self.events)

    @property
    def reserves(self) -> Mapping[str, str]:
        """The keys, by kind, that a thread reserves as it becomes active with this change."""
        reserved: Mapping[str, str] = self.thread.settings.get(RESERVED) or {}
        begins = reserved and any(isinstance(event.body, RoundStarted) for event in self.events)
        return reserved if begins else {}

    @property
    def wakes_conversation(self) -> bool:
        """Whether a thread that was waiting or failed continues or ends: the conversation led in it is woken."""
        return any(
            isinstance(event.body, Resolution)
            or (isinstance(event.body, RoundFinished) and event.body.status is not Status.COMPLETED)
            or self._retries(event)
            for event in self.events
        )

    def _retries(self, event: Event) -> bool:
        """Whether it continues a round that was started before."""
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
    user: Mapping[str, Json] | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    trace: str = "",
    spec: RunSpec | None = None,
    priority: int | None = None,
) -> Change:
    """A new thread and its first round. A held one waits as `pending` until `begin`."""
    require_duration(opening.ttl, field="ttl")
    require_duration(opening.prune_after, field="ttl")
    started = RoundStarted(
        round=1,
        opening=opening,
        held=held,
        input=graph_input,
        by=by,
        spec=spec,
        user=user,
        headers=headers,
        trace=trace,
        priority=priority,
    )
    return record(None, [started, *_said(message, documents, source)], stamp=stamp, thread_id=thread_id)


def open_idle(thread_id: str, opening: Opening, *, stamp: Stamp, number: int = 1) -> Change:
    """A new thread in which nothing is to be done yet: its first round is over as it begins.

    That of a copy has the `number` of the round it was copied in, so that its next one is a new one to its graph.
    """
    require_duration(opening.ttl, field="ttl")
    require_duration(opening.prune_after, field="ttl")
    started = RoundStarted(round=number, opening=opening)
    return record(None, [started, RoundFinished(status=Status.COMPLETED)], stamp=stamp, thread_id=thread_id)


def begin(
    thread: Thread,
    *,
    stamp: Stamp,
    by: str | None = None,
    user: Mapping[str, Json] | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    trace: str = "",
) -> Change:
    """Start the round of a thread that was only made."""
    if thread.status is not Status.PENDING:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, it was started already")
    return record(
        thread,
        [RoundStarted(round=thread.round, by=by, user=user, headers=headers, trace=trace)],
        stamp=stamp,
    )


def next_round(
    thread: Thread,
    message: Content | None,
    *,
    stamp: Stamp,
    graph_input: Json = None,
    documents: tuple[str, ...] = (),
    source: str = "",
    by: str | None = None,
    user: Mapping[str, Json] | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    trace: str = "",
    priority: int | None = None,
) -> Change:
    if not thread.status.is_terminal:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, a new round must wait")
    started = RoundStarted(
        round=thread.round + 1,
        input=graph_input,
        by=by,
        user=user,
        headers=headers,
        trace=trace,
        priority=priority,
    )
    return record(thread, [started, *_said(message, documents, source)], stamp=stamp)


def start_run(
    thread: Thread,
    spec: RunSpec,
    open_calls: Iterable[Call],
    message: Content | None,
    *,
    stamp: Stamp,
    graph_input: Json = None,
    by: str | None = None,
    priority: int | None = None,
) -> Change:
    """Start a run. What a blocked thread waits for is cancelled first."""
    if thread.status is Status.RUNNING:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, a new run must wait")
    before: list[Body] = []
    if thread.status is Status.BLOCKED:
        before = [
            *_cancelled(open_calls),
            RoundFinished(status=Status.STOPPED, reason="another run was started"),
        ]
    number = thread.round if thread.status is Status.PENDING else thread.round + 1
    started = RoundStarted(round=number, input=graph_input, by=by, spec=spec, priority=priority)
    return record(thread, [*before, started, *_said(message, (), "")], stamp=stamp)


def retry_round(
    thread: Thread,
    this_round: Iterable[Event] = (),
    *,
    stamp: Stamp,
    by: str | None = None,
    user: Mapping[str, Json] | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    trace: str = "",
) -> Change:
    """Go on with a failed round where it stood, without new input. Its last message is no longer marked as the last."""
    if thread.status is not Status.FAILED:
        raise InvalidState(f"thread {thread.id!r} is {thread.status}, only a failed one can be resumed")
    closed = [
        event.id
        for event in this_round
        if isinstance(event.body, AssistantMessage) and event.body.marker == "last"
    ]
    started = RoundStarted(
        round=thread.round,
        by=by,
        user=user,
        headers=headers,
        trace=trace,
        reopens=closed[-1] if closed else "",
    )
    return record(thread, [started], stamp=stamp)


def resolve(
    thread: Thread, call: Call, answer: Json, *, stamp: Stamp, by: str = "", approved: bool = True
) -> Change:
    """Answer a pending call. What the answer means depends on what was asked.

    An approval of what the server or a client does lets it run, a refusal ends the call; the answer to a
    call in doubt says how it ended, or that it may run again; any other answer is the result itself.
    """
    return record(thread, _resolved(thread, call, answer, approved=approved, by=by), stamp=stamp)


def resume_run(
    thread: Thread, answers: Iterable[tuple[Call, Json]], spec: RunSpec, *, stamp: Stamp, by: str = ""
) -> Change:
    """Answer some or all of what the thread waits for, in one commit, as a run."""
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
    """The error the model reads: it may do better next time if it knows why."""
    feedback = answer.get("feedback") if isinstance(answer, dict) else None
    return f"refused by {by or 'a person'}" + (f": {feedback}" if feedback else "")


def opens_gate(pending: Pending, answer: Json, *, approved: bool) -> bool:
    """Whether the answer lets the call run rather than ending it."""
    if pending.kind is SuspensionKind.IN_DOUBT:
        return isinstance(answer, dict) and answer.get("retry") is True
    return pending.kind is SuspensionKind.APPROVAL and pending.executor is not Executor.HUMAN and approved


def expire(thread: Thread, call: Call, *, stamp: Stamp) -> Change:
    """No answer came in time: the call ends as an error and the thread continues by itself."""
    return record(thread, _expired(thread, call), stamp=stamp)


def expire_all(thread: Thread, calls: Iterable[Call], *, stamp: Stamp) -> Change:
    """The time of a thread that waits is over: what it waits for expires, and its round ends with that."""
    expired = [body for call in calls for body in _expired(thread, call)]
    return record(thread, [*expired, RoundFinished(status=Status.FAILED, reason=OVERDUE)], stamp=stamp)


def _expired(thread: Thread, call: Call) -> list[Body]:
    # A graph that asked for an approval reads the answer as one: no answer is a no.
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

    The run that it `undoes` is not shown any more, and later rounds do not build on it.
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


def change_ttl(thread: Thread, change: TtlChanged, *, stamp: Stamp) -> Change:
    """Let the thread expire this long after its last access, which is now. Raises Invalid."""
    require_duration(change.ttl, field="ttl")
    require_duration(change.prune_after, field="ttl")
    return record(thread, [change], stamp=stamp)


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


def _numbered(thread: Thread | None, body: Body, end: Status | None) -> Body:
    """What only the thread knows: a message's number, and the status a log line was written under."""
    match body:
        case UserMessage() | AssistantMessage():
            return replace(body, number=thread.stats.messages + 1 if thread else 1)
        case Log(status=claimed):
            # A closing line says how the round ended, and is accepted in the commit that ends it so.
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
