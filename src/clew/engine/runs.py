"""Runs by spec, in LangGraph's terms: begun at once, queued, or in place of the one under way; looked at, cancelled."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeAlias

from clew.domain.assistants import described
from clew.domain.errors import ClewError, Conflict, InvalidState, NotFound
from clew.domain.events import Event, Opening, RunSpec
from clew.domain.ledger import GATE
from clew.domain.records import Incoming, RunScope
from clew.domain.redaction import lacks_a_message, without
from clew.domain.runs import SOURCE, TELLING, Run, RunStatus, answers_in, runs_of, still_asked, unquoted
from clew.domain.thread import Json, Owner, Status, Thread
from clew.domain.thread_ids import KeptUnderMark, is_marked, marked
from clew.domain.thread_metadata import leaves
from clew.engine.commands import Commands, Request
from clew.engine.redaction import redacted_texts
from clew.engine.run_queue import QueuedRun, RunQueue
from clew.failpoints import failpoint
from clew.ports.clock import Clock
from clew.ports.graphs import GraphDriver
from clew.ports.notifier import Notifier
from clew.ports.thread_metadata import ThreadMetadata
from clew.ports.threads import Store

Action: TypeAlias = Literal["interrupt", "rollback"]

BUSY = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
# How often to decide anew because the thread moved on meanwhile.
ATTEMPTS = 20
LOOK_SECONDS = 2.0
# Under which name the values of a graph that stopped tell what it asks.
ASKED = "__interrupt__"
NEWEST = 200
# What a thread is labelled with of the run that it had last.
NAMES = ("graph_id", "assistant_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run as somebody asks for it."""

    spec: RunSpec
    input: Json = None
    message: Json = None
    resumes: bool = False  # with `resume`, which may be anything
    resume: Json = None
    after: timedelta = timedelta()
    makes_thread: bool = False
    is_chosen: bool = False  # by the caller: the id of that thread
    once: bool = False  # the same run may be asked for again: then Repeated is raised

    def admission(self, thread_id: str) -> Incoming | None:
        """What keeps it from being begun twice; the same that stands for it while it waits."""
        if not self.once:
            return None
        run_id = self.spec.run_id
        return Incoming(
            source=SOURCE, source_id=run_id, fingerprint=run_id, payload=None, thread_id=thread_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    store: Store
    commands: Commands
    queue: RunQueue
    graph_driver: GraphDriver
    labels: ThreadMetadata
    notifier: Notifier
    clock: Clock
    new_id: Callable[[], str]
    ttl: timedelta

    async def make(
        self,
        thread_id: str,
        owner: Owner,
        labels: Mapping[str, Json],
        *,
        graph: str = "",
        ttl: timedelta | None = None,
        is_chosen: bool = True,
    ) -> Thread:
        """A thread that nothing was asked of yet. Raises Conflict if the tenant has one of that id, Invalid."""
        if is_chosen:
            thread_id = await self._own_id(thread_id, owner.tenant)
        return await self._make(
            thread_id, Opening(owner=owner, graph=graph, ttl=self.ttl if ttl is None else ttl), labels
        )

    async def _make(
        self, thread_id: str, opening: Opening, labels: Mapping[str, Json], *, number: int = 1
    ) -> Thread:
        leaves(labels)  # what cannot be stored is refused before there is a thread
        thread = await self.commands.open_idle(thread_id, opening, number=number)
        async with self._whole(thread):
            if labels:
                await self.labels.put(thread_id, labels)
        return thread

    @asynccontextmanager
    async def _whole(self, thread: Thread) -> AsyncGenerator[None]:
        """A thread that was only half made does not stay."""
        try:
            yield
        except BaseException:
            with suppress(ClewError):
                await self.commands.delete(thread.id, thread.owner)
            raise

    async def copy(self, thread: Thread, target: str) -> Thread:
        """A thread in the state of this one, that is kept as long; of one that waits, one that waits as well.

        Raises NotFound, InvalidState."""
        _require_whole(thread)
        labels = (await self.labels.of((thread.id,)))[thread.id]
        opening = Opening(owner=thread.owner, graph=thread.graph, ttl=thread.ttl)
        copied = await self._make(target, opening, labels, number=thread.round)
        async with self._whole(copied):
            await self.graph_driver.copy(thread.id, target)
            # A message that was deleted meanwhile is in the copy, where nobody would find it.
            now = await self.store.get(thread.id, thread.owner)
            _require_whole(now)
            if thread.status is Status.BLOCKED and now.last_seq == thread.last_seq:
                copied = await self.commands.wait_as(copied, thread)
        return copied

    async def change_state(
        self,
        thread_id: str,
        owner: Owner,
        values: Json,
        *,
        as_node: str | None = None,
        place: Mapping[str, str] | None = None,
    ) -> Json:
        """Write values as if a node had returned them; the place that leads to.

        A thread that waits goes on waiting: for what its graph still asks, or for a yes to what was written.
        Raises NotFound, InvalidState, Invalid."""
        # Before it is seen to rest: what is written under it is refused if a worker runs the thread by then.
        fence = await self.store.fence(thread_id)
        thread = await self.posed(await self.store.get(thread_id, owner))
        if thread.status is Status.RUNNING:
            raise InvalidState(f"thread {thread_id!r} is running, its state is not to be changed by hand now")
        if not thread.graph:
            raise InvalidState(f"thread {thread_id!r} has no graph yet, and no graph_id in its metadata")
        written = await self.graph_driver.change_state(
            thread, values, fence=fence, as_node=as_node, place=place
        )
        if thread.status is Status.BLOCKED:
            failpoint("state_written_before_asked")
            log = await self.store.read(thread.id, after=thread.round_seq - 1, before=thread.last_seq + 1)
            await self.commands.ask_anew(thread, await self.graph_driver.open_questions(thread, log))
        return written

    async def posed(self, thread: Thread) -> Thread:
        """The thread with the graph it was made for, if no run has given it one."""
        if thread.graph:
            return thread
        named = (await self.labels.of((thread.id,)))[thread.id].get("graph_id")
        return replace(thread, graph=named) if isinstance(named, str) else thread

    async def begin(self, thread_id: str, owner: Owner, wanted: RunRequest, scope: RunScope) -> Run:
        """Begin the run, or see to it that it begins in its turn. Raises NotFound, InvalidState."""
        try:
            thread = await self.store.get(thread_id, owner)
            known = (await self.labels.of((thread_id,)))[thread_id]
            known = {name: value for name, value in known.items() if name not in NAMES}
            wanted = replace(wanted, spec=described(wanted.spec, known))
        except NotFound:
            if not wanted.makes_thread:
                raise
            if wanted.is_chosen and not is_marked(thread_id):
                await self._require_own(thread_id, owner.tenant)
            try:
                return await self._open(thread_id, owner, wanted, scope)
            except Conflict:
                # Somebody else was faster. If it is somebody else's, it is not to be found.
                thread = await self.store.get(thread_id, owner)
        spec = wanted.spec
        if spec.checkpoint_id:
            place = {"checkpoint_id": spec.checkpoint_id}
            await self.graph_driver.snapshot(replace(thread, graph=spec.graph), place)
        if wanted.after > timedelta():
            if wanted.resumes and thread.pending:
                # It answers what is asked now, not what may be asked then.
                wanted = replace(wanted, resume=answers_in(thread, wanted.resume))
            return await self._put_off(thread_id, wanted, scope)
        for _ in range(ATTEMPTS):
            is_running = thread.status is Status.RUNNING
            if is_running or await self.queue.is_awaited(thread_id):
                if spec.strategy in ("interrupt", "rollback"):
                    await self._make_way(thread, "rollback" if spec.strategy == "rollback" else "interrupt")
                elif spec.strategy == "enqueue" and (is_running or not wanted.resumes):
                    return await self._put_off(thread_id, wanted, scope)
                elif is_running or not wanted.resumes:
                    raise InvalidState(BUSY)
            try:
                thread = await self._begin_now(thread_id, owner, wanted, scope)
            except InvalidState:
                thread = await self.store.get(thread_id, owner)
                if thread.status is not Status.RUNNING:
                    raise
            else:
                await self._name(thread_id, spec)
                return await self.get(thread, spec.run_id)
        raise Conflict(f"thread {thread_id!r} does not come to rest")

    async def _require_own(self, thread_id: str, tenant: str) -> None:
        if await self._own_id(thread_id, tenant) != thread_id:
            raise KeptUnderMark(f"no thread {thread_id!r}")

    async def _own_id(self, thread_id: str, tenant: str) -> str:
        """The id that was chosen, marked if another tenant has it, or had it when this one's thread was made."""
        kept = marked(thread_id, tenant)
        if await self.store.tenant_of(kept) == tenant:
            return kept
        return thread_id if await self.store.tenant_of(thread_id) in (None, tenant) else kept

    async def of(self, thread: Thread, *, newest: bool = False) -> list[Run]:
        """All runs of a thread, or those of its newest round, oldest first; those that wait come last."""
        # The queue first: a run whose turn comes meanwhile is then in the log, or in both.
        others = await self.queue.of(thread.id)
        thread = await self.store.get(thread.id)
        log = await self._telling(thread, after=thread.round_seq - 1 if newest else 0)
        begun = [run for run in runs_of(log) if run.id not in thread.redacted]
        known = {run.id for run in begun} | thread.redacted
        others = [run for run in others if run.id not in known]
        over = [run for run in others if run.status.is_over]
        runs = sorted([*begun, *over], key=lambda run: run.created_at)
        runs += [run for run in others if not run.status.is_over]
        return [unquoted(run) for run in runs] if lacks_a_message(thread) else runs

    async def get(self, thread: Thread, run_id: str) -> Run:
        """Raises NotFound."""
        for newest in (True, False):  # mostly it is under way, and a log may be long
            for run in reversed(await self.of(thread, newest=newest)):
                if run.id == run_id:
                    return run
        raise NotFound(f"no run {run_id!r} of thread {thread.id!r}")

    async def cancel(self, thread: Thread, run: Run, action: Action) -> None:
        """End a run, or take it off the queue. One that is over is left alone."""
        if run.status is RunStatus.PENDING and await self.queue.withdraw(thread.id, run.id):
            if action == "rollback":
                await self.queue.forget(thread.id, run.id)
        elif not run.status.is_over:
            undoes = action == "rollback"
            with suppress(InvalidState):  # it has just ended by itself
                await self.commands.stop_run(thread.id, run.id, undoes=undoes)
                if undoes:
                    failpoint("run_stopped_before_undone")
                    await self.graph_driver.rollback_run(run.id)
                    self.graph_driver.drop(thread.id)

    async def delete(self, thread: Thread, run: Run) -> None:
        """Tell of it no more. What it led to stays. Raises InvalidState while the thread does not rest."""
        if run.first_seq:
            await self.commands.hide(thread.id, run.id)
        else:
            await self.queue.forget(thread.id, run.id)

    async def cancel_all(self, thread: Thread, action: Action) -> None:
        # Those that wait first: their turn comes when the one under way has ended.
        for run in reversed(await self.of(thread, newest=True)):
            if not run.status.is_over:
                await self.cancel(thread, run, action)

    async def _make_way(self, thread: Thread, action: Action) -> None:
        """End what the thread does. Raises InvalidState for a round that is no run and is to be rolled back."""
        await self.cancel_all(thread, action)
        now = await self.store.get(thread.id, thread.owner)
        if now.status is not Status.RUNNING or await self._is_a_run(now):
            return
        if action == "rollback":
            raise InvalidState(
                f"thread {thread.id!r} runs a round that was not created as a run: it can be interrupted, not rolled back"
            )
        with suppress(InvalidState):  # it has just ended by itself
            await self.commands.stop(thread.id, thread.owner)

    async def _is_a_run(self, thread: Thread) -> bool:
        runs = runs_of(await self._telling(thread, after=thread.round_seq - 1))
        return bool(runs) and not runs[-1].status.is_over and runs[-1].id not in thread.redacted

    async def rested(self, thread_id: str, owner: Owner, run_id: str, seconds: float) -> Run:
        """The run, once it is over or the time is."""
        with self.notifier.subscribe(thread_id, for_rest=True) as subscription:
            while True:
                run = await self.get(await self.store.get(thread_id, owner), run_id)
                if run.status.is_over or seconds <= 0:
                    return run
                await subscription.wait(min(seconds, LOOK_SECONDS))
                seconds -= LOOK_SECONDS

    async def output(self, thread: Thread) -> Json:
        """What the thread's graph has come to, with what it still asks, and without what was taken back."""
        found = await self.graph_driver.output(thread)
        if thread.status is Status.BLOCKED and (asks := still_asked(thread, found.get(ASKED, ()))):
            found = {**found, ASKED: asks}
        return without(found, await redacted_texts(self.store, thread))

    async def _open(self, thread_id: str, owner: Owner, wanted: RunRequest, scope: RunScope) -> Run:
        if wanted.resumes or wanted.spec.checkpoint_id:
            raise NotFound(f"no thread {thread_id!r}, so nothing to go on with")
        opening = Opening(owner=owner, graph=wanted.spec.graph, ttl=self.ttl)
        request = Request(message=wanted.message, graph_input=wanted.input)
        if wanted.after > timedelta():
            await self.make(thread_id, owner, {}, is_chosen=False)
            return await self._put_off(thread_id, wanted, scope)
        thread = await self.commands.start(
            opening,
            request,
            thread_id=thread_id,
            spec=wanted.spec,
            admits=wanted.admission(thread_id),
            scope=scope,
        )
        await self._name(thread_id, wanted.spec)
        return runs_of(await self._telling(thread))[0]

    async def _begin_now(self, thread_id: str, owner: Owner, wanted: RunRequest, scope: RunScope) -> Thread:
        thread = await self.store.get(thread_id, owner)
        if wanted.resumes:
            return await self.commands.answer_all(
                thread_id, owner, wanted.resume, wanted.spec, by=scope.user_id
            )
        says_nothing = wanted.input is None and wanted.spec.command is None
        if says_nothing and thread.pending and all(key.startswith(GATE) for key in thread.pending):
            # To go on, where the graph only stopped to be told so.
            yes = {key: {"approved": True} for key in thread.pending}
            return await self.commands.answer_all(thread_id, owner, yes, wanted.spec, by=scope.user_id)
        request = Request(message=wanted.message, graph_input=wanted.input)
        return await self.commands.carry_out(
            thread_id, owner, wanted.spec, request, admits=wanted.admission(thread_id), scope=scope
        )

    async def _put_off(self, thread_id: str, wanted: RunRequest, scope: RunScope) -> Run:
        now = self.clock()
        queued = QueuedRun(
            spec=wanted.spec,
            input=wanted.input,
            message=wanted.message,
            user_id=scope.user_id,
            at=now,
            resumes=wanted.resumes,
            resume=wanted.resume,
            not_before=now + wanted.after if wanted.after > timedelta() else None,
        )
        run = await self.queue.put(thread_id, queued)
        await self._name(thread_id, wanted.spec)
        return run

    async def _telling(self, thread: Thread, *, after: int = 0) -> list[Event]:
        return [*await self.store.read(thread.id, after=after, before=thread.last_seq + 1, types=TELLING)]

    async def _name(self, thread_id: str, spec: RunSpec) -> None:
        """By what clients look for their threads."""
        names = dict(zip(NAMES, (spec.graph, spec.assistant_id), strict=True))
        known = (await self.labels.of((thread_id,)))[thread_id]
        if {**known, **names} != known:
            with suppress(NotFound):  # it has just been deleted
                await self.labels.put(thread_id, names)


def _require_whole(thread: Thread) -> None:
    if lacks_a_message(thread):
        raise InvalidState(f"thread {thread.id!r} cannot be copied: its past tells of a deleted message")
