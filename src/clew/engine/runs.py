"""Runs, in LangGraph's terms: started, shown, listed, cancelled, deleted and joined in one place."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeAlias

from clew.domain.assistants import described
from clew.domain.errors import Conflict, InvalidState, NotFound
from clew.domain.events import Event, Opening, RunSpec
from clew.domain.records import RunHook
from clew.domain.redaction import lacks_a_message, without
from clew.domain.runs import (
    RUN_EVENTS,
    Run,
    RunRequest,
    RunStatus,
    answers_in,
    runs_of,
    still_asked,
    unquoted,
)
from clew.domain.thread import Json, Owner, Status, Thread, is_marked
from clew.domain.tool_calls import GATE
from clew.engine.commands import Commands
from clew.engine.redaction import redacted_texts
from clew.engine.run_queue import RunQueue
from clew.engine.threads import Threads
from clew.failpoints import failpoint
from clew.ports.authorization import FilteredOwner
from clew.ports.clock import Clock
from clew.ports.graphs import GraphDriver
from clew.ports.guards import Admits, Relabels
from clew.ports.notifier import Notifier, Subscription
from clew.ports.priorities import FirstRun, Priorities
from clew.ports.run_hooks import Webhooks
from clew.ports.thread_metadata import ThreadMetadata
from clew.ports.threads import Store

Action: TypeAlias = Literal["interrupt", "rollback"]

BUSY = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
# How often to decide again because the thread changed meanwhile.
ATTEMPTS = 20
POLL_SECONDS = 2.0
# The name under which the values of a blocked graph list its interrupts.
INTERRUPTS = "__interrupt__"
# What the metadata of a thread says of its last run.
NAMES = ("graph_id", "assistant_id")
# How long after it should have been queued a run counts as lost to a kill.
UNQUEUED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    store: Store
    threads: Threads
    commands: Commands
    queue: RunQueue
    graph_driver: GraphDriver
    metadata: ThreadMetadata
    webhooks: Webhooks
    notifier: Notifier
    clock: Clock
    priorities: Priorities
    # How long a temporary thread outlives its run, for clients that read the outcome.
    temporary_grace: timedelta

    async def start(
        self, thread_id: str, owner: Owner, request: RunRequest, *, seen: Thread | None = None
    ) -> Run:
        """Start a run or queue it; its webhook and the deletion of its temporary thread are written with it.

        `seen` is the thread as the caller has just read it for this owner. Raises NotFound, InvalidState, Invalid, and AlreadyDone for a run that is to be started `once`.
        """
        hook = await self._hook(thread_id, request)
        try:
            thread = seen or await self.store.get(thread_id, owner)
        except NotFound:
            if not request.creates_thread:
                raise
            if request.is_chosen and not is_marked(thread_id):
                await self.threads.require_own_id(thread_id, owner.tenant)
            request = await self._with_priority(request, thread_id if request.is_chosen else None, owner, {})
            try:
                return await self._start_in_new_thread(thread_id, owner, request, hook)
            except Conflict:
                # It was created meanwhile. Another owner's thread is not found here.
                thread = await self.store.get(thread_id, owner)
        known = (await self.metadata.of((thread_id,)))[thread_id]
        if thread.priority is None:
            request = await self._with_priority(request, thread_id, owner, known)
        inherited = {name: value for name, value in known.items() if name not in NAMES}
        request = replace(request, spec=described(request.spec, inherited))
        if request.spec.checkpoint_id:
            place = {"checkpoint_id": request.spec.checkpoint_id}
            await self.graph_driver.snapshot(replace(thread, graph=request.spec.graph), place)
        names = _names(request.spec, known)
        if request.not_before is None:
            return await self._start_or_queue(thread, owner, request, hook, names)
        if request.resumes and thread.pending:
            # It answers what is asked now, not what may be asked then.
            named = await self.commands.calls_named(thread, request.resume)
            request = replace(request, resume=answers_in(thread, request.resume, named))
        return await self._queue(thread_id, request, hook, names)

    async def get(self, thread: Thread, run_id: str) -> Run:
        """Raises NotFound."""
        # Mostly it is of the newest round. A log may be long, and a run that waits is in the queue.
        for runs in (self._newest, self._newest_with_queue, self.list):
            for run in reversed(await runs(thread)):
                if run.id == run_id:
                    return run
        raise NotFound(f"no run {run_id!r} of thread {thread.id!r}")

    async def list(self, thread: Thread, *, newest: bool = False) -> Sequence[Run]:
        """All runs of a thread, or those of its newest round, oldest first; queued runs come last."""
        # The queue is read first: a run that is started meanwhile is then in the log, or in both.
        others = await self.queue.list(thread.id)
        thread = await self.store.get(thread.id)
        log = await self._run_events(thread, after=thread.round_seq - 1 if newest else 0)
        started = [run for run in runs_of(log) if run.id not in thread.redacted]
        known = {run.id for run in started} | thread.redacted
        others = [run for run in others if run.id not in known]
        over = [run for run in others if run.status.is_over]
        runs = sorted([*started, *over], key=lambda run: run.created_at)
        runs += [run for run in others if not run.status.is_over]
        return [unquoted(run) for run in runs] if lacks_a_message(thread) else runs

    async def _newest(self, thread: Thread) -> Sequence[Run]:
        """The runs in the log of the newest round, as far as the thread that was read knows it."""
        runs = await self.since(thread, thread.round_seq)
        return [unquoted(run) for run in runs] if lacks_a_message(thread) else runs

    async def _newest_with_queue(self, thread: Thread) -> Sequence[Run]:
        return await self.list(thread, newest=True)

    async def since(self, thread: Thread, seq: int) -> Sequence[Run]:
        """The runs in the log that began with this event or later, oldest first."""
        return [
            run
            for run in runs_of(await self._run_events(thread, after=seq - 1))
            if run.id not in thread.redacted
        ]

    async def cancel(self, thread: Thread, run: Run, action: Action) -> None:
        """End a run, or take it off the queue. A run that is over is left alone."""
        if run.status is RunStatus.PENDING and await self.queue.withdraw(thread.id, run.id):
            if action == "rollback":
                await self.queue.discard(thread.id, run.id)
        elif not run.status.is_over:
            undoes = action == "rollback"
            with suppress(InvalidState):  # it has just ended by itself
                await self.commands.stop_run(thread.id, run.id, undoes=undoes)
                if undoes:
                    failpoint("run_stopped_before_undone")
                    await self.graph_driver.rollback_run(run.id)
                    self.graph_driver.drop(thread.id)

    async def cancel_all(self, thread: Thread, action: Action) -> None:
        # Queued runs first: the next one starts when the one under way has ended.
        for run in reversed(await self.list(thread, newest=True)):
            if not run.status.is_over:
                await self.cancel(thread, run, action)

    async def delete(self, thread: Thread, run: Run) -> None:
        """Hide a run. What it wrote stays. Raises InvalidState while the thread is running or blocked."""
        if run.first_seq:
            await self.commands.hide(thread.id, run.id)
        else:
            await self.queue.discard(thread.id, run.id)

    async def join(
        self, run: Run, owner: Owner, subscription: Subscription, seconds: float
    ) -> tuple[Run, Thread]:
        """The run and its thread, once anything happened to the thread at rest, or `seconds` have passed.

        The subscription is for the rest of the thread, and began before `run` was read."""
        await subscription.wait(min(seconds, POLL_SECONDS))
        thread = await self.store.get(run.thread_id, owner)
        return await self.get(thread, run.id), thread

    async def output(self, thread: Thread) -> Json:
        """The values of the thread's graph with its open interrupts, without deleted messages."""
        found = await self.graph_driver.output(thread)
        if thread.status is Status.BLOCKED and (asks := still_asked(thread, found.get(INTERRUPTS, ()))):
            found = {**found, INTERRUPTS: asks}
        return without(found, await redacted_texts(self.store, thread))

    async def _with_priority(
        self, request: RunRequest, thread_id: str | None, owner: Owner, metadata: Mapping[str, Json]
    ) -> RunRequest:
        """For a thread that has no priority yet."""
        if request.priority is not None:
            return request
        first = FirstRun(
            thread_id=thread_id,
            owner=owner,
            metadata=metadata,
            spec=request.spec,
            cron_id=request.cron_id,
        )
        return replace(request, priority=await self.priorities.of(first))

    async def _hook(self, thread_id: str, request: RunRequest) -> RunHook | None:
        """What happens when the run has ended. Raises Invalid for a webhook that may not be called."""
        spec = request.spec
        if spec.webhook:
            require = await self.webhooks.rules()
            require(spec.webhook)
        elif not spec.is_temporary:
            return None
        # Without a webhook there is nothing to do before the grace is over; most runs are over by then.
        wait = timedelta() if spec.webhook else self.temporary_grace * 1.1
        return RunHook(
            run_id=spec.run_id,
            thread_id=thread_id,
            webhook=spec.webhook,
            is_temporary=spec.is_temporary,
            wait=request.delay + wait,
        )

    async def _start_in_new_thread(
        self, thread_id: str, owner: Owner, request: RunRequest, hook: RunHook | None
    ) -> Run:
        if request.resumes or request.spec.checkpoint_id:
            raise NotFound(f"no thread {thread_id!r}, so no state to continue from")
        owner, names = _labelling(owner, request.spec), _names(request.spec, {})
        if request.not_before is None:
            opening = Opening(owner=owner, graph=request.spec.graph, ttl=self.threads.ttl)
            admits = _admits(thread_id, request)
            return await self.commands.open_run(thread_id, opening, request, admits, hook, names)
        # Written with the thread too, due later: a kill before the run is queued leaves no temporary thread behind.
        unqueued = replace(hook, wait=hook.wait + UNQUEUED) if hook else None
        await self.threads.create(thread_id, owner, {}, is_chosen=False, hook=unqueued)
        failpoint("thread_created_before_queued")
        return await self._queue(thread_id, request, hook, names)

    async def _start_or_queue(
        self,
        thread: Thread,
        owner: Owner,
        request: RunRequest,
        hook: RunHook | None,
        names: Relabels | None,
    ) -> Run:
        """Start the run now, queue it, or end what the thread does: as the strategy says while the thread is busy."""
        strategy = request.spec.strategy
        for _ in range(ATTEMPTS):
            is_running = thread.status is Status.RUNNING
            if is_running or await self.queue.is_awaited(thread.id):
                if strategy in ("interrupt", "rollback"):
                    action: Action = "rollback" if strategy == "rollback" else "interrupt"
                    thread = await self._make_way(thread, action)
                elif is_running or not request.resumes:
                    if strategy == "enqueue":
                        return await self._queue(thread.id, request, hook, names)
                    raise InvalidState(BUSY)
            try:
                return await self._start_now(thread, owner, request, hook, names)
            except InvalidState:
                thread = await self.store.get(thread.id, owner)
                if thread.status is not Status.RUNNING:
                    raise
        raise Conflict(f"thread {thread.id!r} stayed busy through {ATTEMPTS} attempts; retry later")

    async def _start_now(
        self, thread: Thread, owner: Owner, request: RunRequest, *guards: RunHook | Relabels | None
    ) -> Run:
        if request.resumes:
            return await self.commands.resume_run(thread.id, request.resume, request, *guards, owner=owner)
        if request.says_nothing and thread.pending and all(key.startswith(GATE) for key in thread.pending):
            # A run without input continues a graph that only stopped at breakpoints.
            yes = {key: {"approved": True} for key in thread.pending}
            return await self.commands.resume_run(thread.id, yes, request, *guards, owner=owner)
        admits = _admits(thread.id, request)
        return await self.commands.start_run(thread.id, request, admits, *guards, owner=owner, seen=thread)

    async def _make_way(self, thread: Thread, action: Action) -> Thread:
        """End what the thread does. Raises InvalidState for a round that is no run and is to be rolled back."""
        await self.cancel_all(thread, action)
        now = await self.store.get(thread.id, thread.owner)
        if now.status is not Status.RUNNING or await self._is_a_run(now):
            return now
        if action == "rollback":
            raise InvalidState(
                f"thread {thread.id!r} runs a round that was not created as a run: it can be interrupted, not rolled back"
            )
        with suppress(InvalidState):  # it has just ended by itself
            await self.commands.stop(thread.id, thread.owner)
        return await self.store.get(thread.id, thread.owner)

    async def _is_a_run(self, thread: Thread) -> bool:
        runs = runs_of(await self._run_events(thread, after=thread.round_seq - 1))
        return bool(runs) and not runs[-1].status.is_over and runs[-1].id not in thread.redacted

    async def _run_events(self, thread: Thread, *, after: int = 0) -> Sequence[Event]:
        return await self.store.read(thread.id, after=after, before=thread.last_seq + 1, types=RUN_EVENTS)

    async def _queue(
        self, thread_id: str, request: RunRequest, hook: RunHook | None, names: Relabels | None
    ) -> Run:
        run = await self.queue.put(thread_id, request, hook)
        if names is not None:
            with suppress(NotFound):  # it has just been deleted
                await self.metadata.put(thread_id, names.metadata)
        return run


def _names(spec: RunSpec, known: Mapping[str, Json]) -> Relabels | None:
    """The run's graph and assistant for the thread's metadata, by which clients search; None if they are known."""
    names = dict(zip(NAMES, (spec.graph, spec.assistant_id), strict=True))
    return None if {**known, **names} == known else Relabels(names)


def _labelling(owner: Owner, spec: RunSpec) -> Owner:
    """An authenticated user's run opens a thread with the metadata of the run: by that the user finds it.

    What a handler said about the thread counts more. The runs of crons, and of a batch, have no such word."""
    if spec.user is None:
        return owner
    said = owner.metadata if isinstance(owner, FilteredOwner) else {}
    return FilteredOwner(tenant=owner.tenant, user_id=owner.user_id, metadata={**spec.metadata, **said})


def _admits(thread_id: str, request: RunRequest) -> Admits | None:
    incoming = request.admission(thread_id)
    return Admits(incoming) if incoming else None
