"""Commands on threads: each reads the thread, decides in the domain, commits, and notifies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from clew.domain import lifecycle
from clew.domain.errors import ClewError, Conflict, InvalidState, LostLease, NotFound, Unavailable
from clew.domain.events import (
    MESSAGES,
    AssistantMessage,
    Body,
    Content,
    Opening,
    TtlChanged,
)
from clew.domain.lifecycle import Change
from clew.domain.questions import require_plan
from clew.domain.records import RunScope
from clew.domain.redaction import require_unredacted, taken_back
from clew.domain.runs import RUN_EVENTS, Run, RunRequest, answers_in, newest_run, runs_of
from clew.domain.thread import Json, ModelSettings, Owner, Status, SuspensionKind, Thread
from clew.domain.tool_calls import Call, CallStatus
from clew.failpoints import failpoint
from clew.ports.authorization import FilteredOwner, plain
from clew.ports.clock import Clock
from clew.ports.files import Files
from clew.ports.graphs import Closing, GraphDriver
from clew.ports.guards import Guard, Labels, Overdue, QueueRoom, Reservation, SpendingRoom
from clew.ports.model_calls import Summaries
from clew.ports.notifier import Notifier
from clew.ports.retention import Trash
from clew.ports.runner import Runner
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls

logger = logging.getLogger(__name__)

# How often a command decides again because the thread moved on, before it raises Conflict.
ATTEMPTS = 20
PATIENT_ATTEMPTS = 2
# How long a deletion waits for the rows of its thread to go, which no caller can see any more.
PURGE_SECONDS = 5.0
OPEN = (CallStatus.PENDING, CallStatus.STARTED, CallStatus.IN_DOUBT)

# A guard of the commit, or how to make it from the thread as it is saved; None is no guard.
AnyGuard: TypeAlias = Guard | Callable[[Thread], Guard] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a round begins with."""

    message: Content | None = None
    graph_input: Json = None
    documents: tuple[str, ...] = ()
    source: str = ""  # the channel it came through, and its own id of the message
    priority: int | None = None  # of this and all later rounds of the thread; None leaves it as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    store: Store
    calls: Calls
    files: Files
    summaries: Summaries
    trash: Trash
    graph_driver: GraphDriver
    notifier: Notifier
    clock: Clock
    new_id: Callable[[], str]
    runner: Runner
    # Output that models of this process are generating now.
    drafts: dict[str, str] = field(default_factory=dict)
    # What a stopped round of a graph is closed with, by the graph's name.
    closings: Mapping[str, Closing] = field(default_factory=dict)
    # What a new thread keeps of the settings of its graph's model.
    model_settings: Callable[[Opening], ModelSettings | None] = lambda _: None
    # How many active threads may hold a reservation of one kind.
    reservation_limits: Mapping[str, int | None] = field(default_factory=dict)
    # How many runs may wait when another is started; not asked when a thread goes on, or starts what was queued.
    room: QueueRoom | None = None
    # What models may still use; asked where `room` is.
    budget: SpendingRoom | None = None

    async def start(
        self,
        opening: Opening,
        request: Request,
        *guards: AnyGuard,
        held: bool = False,
        thread_id: str | None = None,
        scope: RunScope | None = None,
    ) -> Thread:
        """Open a thread and begin its first round; a held one waits for `begin`."""
        opening, labels = self._prepared(opening)
        change = lifecycle.open_thread(
            thread_id or self.new_id(),
            opening,
            request.message,
            graph_input=request.graph_input,
            documents=request.documents,
            source=request.source,
            priority=request.priority,
            held=held,
            stamp=self.stamp(),
            **_on_behalf(scope),
        )
        return (await self._save(change, labels, self.room, self.budget, *guards)).thread

    async def open_run(self, thread_id: str, opening: Opening, request: RunRequest, *guards: AnyGuard) -> Run:
        """Open a thread with a run as its first round."""
        opening, labels = self._prepared(opening)
        change = lifecycle.open_thread(
            thread_id,
            opening,
            request.message,
            graph_input=request.input,
            stamp=self.stamp(),
            by=request.user_id,
            spec=request.spec,
            priority=request.priority,
        )
        change = await self._save(change, labels, self.room, self.budget, *guards)
        return newest_run(change.thread, change.events)

    async def open_idle(self, thread_id: str, opening: Opening, *guards: AnyGuard, number: int = 1) -> Thread:
        """Open a thread for later runs. A copy continues with the number of its original's round."""
        opening, labels = self._prepared(opening)
        change = lifecycle.open_idle(thread_id, opening, number=number, stamp=self.stamp())
        return (await self._save(change, labels, *guards)).thread

    async def begin(self, thread_id: str, owner: Owner | None, *, scope: RunScope | None = None) -> Thread:
        async def decide(thread: Thread) -> Change:
            return lifecycle.begin(thread, stamp=self.stamp(), **_on_behalf(scope))

        return (await self.commit(thread_id, owner, decide, self.room, self.budget)).thread

    async def next_round(
        self,
        thread_id: str,
        owner: Owner | None,
        request: Request,
        *guards: AnyGuard,
        scope: RunScope | None = None,
    ) -> Thread:
        async def decide(thread: Thread) -> Change:
            return lifecycle.next_round(
                thread,
                request.message,
                graph_input=request.graph_input,
                documents=request.documents,
                source=request.source,
                priority=request.priority,
                stamp=self.stamp(),
                **_on_behalf(scope),
            )

        return (await self.commit(thread_id, owner, decide, self.room, self.budget, *guards)).thread

    async def start_run(
        self,
        thread_id: str,
        request: RunRequest,
        *guards: AnyGuard,
        owner: Owner | None = None,
        is_queued: bool = False,
        seen: Thread | None = None,
    ) -> Run:
        """Start a run in a thread that does not run. What the thread waits for is cancelled.

        One that `is_queued` has waited already, so that there is room for it. `seen` is the thread as the caller has
        just read it."""

        async def decide(thread: Thread) -> Change:
            return lifecycle.start_run(
                thread,
                request.spec,
                await self.calls.find(thread.id, status=OPEN) if thread.pending else (),
                request.message,
                graph_input=request.input,
                stamp=self.stamp(),
                by=request.user_id,
                priority=request.priority,
            )

        asked = () if is_queued else (self.room, self.budget)
        change = await self.commit(thread_id, owner, decide, *asked, *guards, seen=seen)
        return newest_run(change.thread, change.events)

    async def resume_run(
        self,
        thread_id: str,
        resume: Json,
        request: RunRequest,
        *guards: AnyGuard,
        owner: Owner | None = None,
    ) -> Run:
        """Answer what the thread asked, as a run."""

        async def decide(thread: Thread) -> Change:
            answers = answers_in(thread, resume, await self.calls_named(thread, resume))
            given = [(await self.calls.get(thread.id, call_id), answers[call_id]) for call_id in answers]
            return lifecycle.resume_run(thread, given, request.spec, by=request.user_id, stamp=self.stamp())

        change = await self.commit(thread_id, owner, decide, *guards)
        return newest_run(change.thread, change.events)

    async def calls_named(self, thread: Thread, resume: Json) -> set[str]:
        """The calls of the thread that an answer names, answered or not; none unless every name is one."""
        named: set[str] = set()
        for call_id in resume if isinstance(resume, dict) else ():
            if not call_id.isprintable():  # no id is like that, and no database takes it
                return set()
            try:
                named.add((await self.calls.get(thread.id, call_id)).id)
            except NotFound:
                return set()
        return named

    async def resume(self, thread_id: str, owner: Owner | None, *, scope: RunScope | None = None) -> Thread:
        """Retry a failed round where it stood, unless a message it works on was deleted."""

        async def decide(thread: Thread) -> Change:
            said = await self.store.read(thread.id, after=thread.round_seq - 1, types=MESSAGES)
            change = lifecycle.retry_round(thread, said, stamp=self.stamp(), **_on_behalf(scope))
            require_unredacted(thread, said)
            return change

        return (await self.commit(thread_id, owner, decide, self.room, self.budget)).thread

    async def resolve(
        self,
        thread_id: str,
        owner: Owner | None,
        call_id: str,
        answer: Json,
        *guards: AnyGuard,
        approved: bool = True,
        kind: SuspensionKind | None = None,
        by: str = "",
    ) -> Thread:
        """Answer a pending call: the first answer counts, any later one is refused.

        With `kind`, so is an answer to what is no longer asked: a yes that comes late is not the call's result.
        """

        async def decide(thread: Thread) -> Change:
            call = await self.calls.get(thread.id, call_id)
            if kind is not None and call_id in thread.pending and thread.pending[call_id].kind is not kind:
                raise InvalidState(f"call {call_id!r} of thread {thread.id!r} waits for another answer")
            return lifecycle.resolve(thread, call, answer, approved=approved, by=by, stamp=self.stamp())

        thread = (await self.commit(thread_id, owner, decide, *guards)).thread
        failpoint("decision_committed_before_resume")
        return thread

    async def approve(
        self,
        thread_id: str,
        owner: Owner | None,
        *,
        approved: bool,
        feedback: str = "",
        plan: str | None = None,
        by: str = "",
    ) -> Thread:
        """Say yes or no to the one approval the thread waits for. `plan` is the plan it shows, as a person changed it.

        Raises Invalid for a plan where none is shown.
        """

        async def decide(thread: Thread) -> Change:
            waiting = [
                call_id for call_id, call in thread.pending.items() if call.kind is SuspensionKind.APPROVAL
            ]
            if len(waiting) != 1:
                many = "no approval" if not waiting else f"{len(waiting)} approvals; answer each by its id"
                raise InvalidState(f"thread {thread.id!r} is {thread.status} and waits for {many}")
            answer = {"approved": approved} | ({"feedback": feedback} if feedback else {})
            if plan is not None:
                require_plan(thread.pending[waiting[0]], plan, approved=approved)
                answer["plan"] = plan
            call = await self.calls.get(thread.id, waiting[0])
            return lifecycle.resolve(thread, call, answer, approved=approved, by=by, stamp=self.stamp())

        thread = (await self.commit(thread_id, owner, decide)).thread
        failpoint("decision_committed_before_resume")
        return thread

    async def expire(self, call: Call) -> None:
        """Expire a call whose deadline passed. Acts for the system; an answer that came first wins."""

        async def decide(thread: Thread) -> Change:
            now = await self.calls.get(thread.id, call.id)
            stamp = self.stamp()
            if now.deadline is None or now.deadline > stamp.now:
                raise InvalidState(f"call {call.id!r} of thread {thread.id!r} was given more time")
            return lifecycle.expire(thread, now, stamp=stamp)

        failpoint("expiry_fired")
        await self.commit(call.thread_id, None, decide, Overdue(call.id))

    async def stop(self, thread_id: str, owner: Owner | None, notes: tuple[Body, ...] = ()) -> Thread:
        """End the round at once: first in the log, then in the process that runs it."""

        async def decide(thread: Thread) -> Change:
            return await self._stopped(thread, notes)

        return await self._end(thread_id, owner, decide)

    async def stop_run(self, thread_id: str, run_id: str, *, undoes: bool) -> Thread:
        """The same for this run and no other; with `undoes`, the run is hidden.

        Raises InvalidState when it is not the one under way."""

        async def decide(thread: Thread) -> Change:
            log = await self.store.read(thread.id, after=thread.round_seq - 1, types=RUN_EVENTS)
            runs = runs_of(log)
            if not runs or runs[-1].id != run_id or runs[-1].status.is_over:
                raise InvalidState(f"run {run_id!r} of thread {thread_id!r} is not under way")
            return await self._stopped(thread, undoes=run_id if undoes else "")

        return await self._end(thread_id, None, decide)

    async def redact(self, thread_id: str, owner: Owner | None, message_id: str, file_id: str = "") -> Thread:
        """Hide a message, or one file of it, from every view and every model."""

        async def decide(thread: Thread) -> Change:
            said = await self.store.read(thread.id, types=MESSAGES)
            documents = await self.files.find_documents(thread.id)
            what = taken_back(thread, said, documents, message_id, file_id)
            change = lifecycle.redact(
                thread,
                what.message_id,
                document_id=what.document_id,
                hides=what.hides,
                unnames=what.unnames,
                stamp=self.stamp(),
            )
            # Summaries may paraphrase the message. New ones are made from the log, without it.
            await self.summaries.drop(thread.id)
            return change

        return (await self.commit(thread_id, owner, decide)).thread

    async def hide(self, thread_id: str, run_id: str) -> Thread:
        """Hide a run of the past."""

        async def decide(thread: Thread) -> Change:
            return lifecycle.redact(thread, run_id, stamp=self.stamp())

        return (await self.commit(thread_id, None, decide)).thread

    async def change_ttl(self, thread_id: str, owner: Owner | None, change: TtlChanged) -> Thread:
        """Let a thread expire this long after its last access. Raises NotFound, Invalid."""

        async def decide(thread: Thread) -> Change:
            return lifecycle.change_ttl(thread, change, stamp=self.stamp())

        return (await self.commit(thread_id, owner, decide)).thread

    async def delete(self, thread_id: str, owner: Owner | None) -> None:
        """Delete for good: first a tombstone, so that nothing can be written any more, then a purge."""
        try:
            await self.store.tombstone(thread_id, owner, now=self.clock())
        except (Unavailable, asyncio.CancelledError):
            self.graph_driver.drop(thread_id)
            raise
        self.evict(thread_id)
        failpoint("delete_mid_tables")
        try:
            async with asyncio.timeout(PURGE_SECONDS):
                while await self.store.purge(only=thread_id):
                    pass
        except (ClewError, TimeoutError) as exc:
            # Every caller sees it as deleted already; a chore removes the rest.
            code = exc.code if isinstance(exc, ClewError) else Unavailable.code
            logger.warning("a deleted thread is not purged yet", extra={"thread_id": thread_id, "code": code})

    async def soft_delete(self, thread_id: str, owner: Owner | None) -> None:
        """Soft delete: the thread is not found any more, and can be restored until it is purged."""
        await self.trash.put(thread_id, owner, now=self.clock())
        self.evict(thread_id)

    async def restore(self, thread_id: str, owner: Owner | None) -> Thread:
        """Undo a soft deletion. What was running runs on."""
        await self.trash.restore(thread_id, owner, now=self.clock())
        self.notifier.publish(thread_id)
        self.runner.wake()
        return await self.store.get(thread_id, owner)

    def evict(self, thread_id: str) -> None:
        """A thread was deleted: stop its run in this process, drop what is cached of it, and notify watchers."""
        self.runner.halt(thread_id)
        self.graph_driver.drop(thread_id)
        self.notifier.publish(thread_id)

    async def _stopped(self, thread: Thread, notes: tuple[Body, ...] = (), *, undoes: str = "") -> Change:
        open_calls = await self.calls.find(thread.id, status=OPEN)
        draft = self.drafts.get(thread.id)
        said = (AssistantMessage(content=draft, cancelled=True),) if draft and not undoes else ()
        closed = await self._closed(thread)
        return lifecycle.stop(
            thread, open_calls, notes=(*said, *notes, *closed), undoes=undoes, stamp=self.stamp()
        )

    async def _end(
        self, thread_id: str, owner: Owner | None, decide: Callable[[Thread], Awaitable[Change]]
    ) -> Thread:
        change = await self.commit(thread_id, owner, decide, contested=lambda: self.runner.halt(thread_id))
        self.runner.halt(thread_id)
        return change.thread

    async def _closed(self, thread: Thread) -> Sequence[Body]:
        close = self.closings.get(thread.graph)
        if close is None:
            return ()
        log = await self.store.read(thread.id, after=thread.round_seq - 1)
        return close(thread, log, Status.STOPPED, "")

    async def commit(
        self,
        thread_id: str,
        owner: Owner | None,
        decide: Callable[[Thread], Awaitable[Change]],
        *guards: AnyGuard,
        contested: Callable[[], None] | None = None,
        seen: Thread | None = None,
    ) -> Change:
        """Commit what `decide` makes of the thread, and decide again when the thread moved on meanwhile.

        With `seen`, the caller has just read it: it is read again only if it moved on since."""
        for attempt in range(1, ATTEMPTS + 1):
            if contested is not None and attempt > PATIENT_ATTEMPTS:
                # A run that writes without a pause always commits first. It is being ended, so it is halted now.
                contested()
            thread = seen if attempt == 1 and seen else await self.store.get(thread_id, owner)
            try:
                return await self._save(await decide(thread), *guards)
            except LostLease:
                raise
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def _save(self, change: Change, *guards: AnyGuard) -> Change:
        failpoint("accept_before_commit")
        given = [one(change.thread) if callable(one) else one for one in guards if one is not None]
        given += (
            Reservation(kind=kind, key=key, limit=self.reservation_limits.get(kind))
            for kind, key in change.reserves.items()
        )
        is_claimed = False
        if change.starts_a_run:
            with self.runner.place(change) as claim:
                await self.store.commit(change, *given, *((claim,) if claim else ()))
            is_claimed = claim is not None
        else:
            await self.store.commit(change, *given)
        # Who waits for a thread to rest learns nothing from a round that begins, unless it woke a conversation.
        goes_on = bool(change.begun) and not change.wakes_conversation
        self.notifier.publish(change.thread.id, change.read_at, change.thread.last_seq, goes_on=goes_on)
        if change.thread.status is Status.RUNNING and not is_claimed:
            self.runner.wake()
        failpoint("accept_after_commit_before_reply")
        return change

    def _prepared(self, opening: Opening) -> tuple[Opening, Labels | None]:
        """The opening with the settings of its model; and the metadata that its owner's threads are opened with."""
        owner, labels = opening.owner, None
        if isinstance(owner, FilteredOwner):
            labels = Labels(owner.metadata) if owner.metadata else None
            opening = replace(opening, owner=plain(owner))
        if found := self.model_settings(opening):
            opening = replace(opening, settings={**found.snapshot(), **opening.settings})
        return opening, labels

    def stamp(self) -> lifecycle.Stamp:
        return lifecycle.Stamp(self.clock(), self.new_id)


def _on_behalf(scope: RunScope | None) -> dict[str, Json]:
    """What the log keeps of it, so that whichever process runs the thread knows whom it is for."""
    if scope is None or scope.is_system:
        return {}
    return {"by": scope.user_id, "user": scope.user, "headers": dict(scope.headers), "trace": scope.trace}
