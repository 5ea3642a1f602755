"""Runner inside one process: claims running threads from the store and executes them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from clew.domain.errors import ClewError, Unavailable
from clew.domain.lifecycle import Change
from clew.domain.records import FIRST_FENCE, Lease
from clew.engine.step import Step
from clew.failpoints import failpoint
from clew.ports.guards import Claim
from clew.ports.liveness import Liveness
from clew.ports.threads import Store
from clew.runners.backoff import OutageBackoff
from clew.runners.dead_runners import WATCHED, DeadRunners
from clew.runners.heartbeat import Heartbeat
from clew.runners.quarantine import Quarantine
from clew.runners.slots import Slots
from clew.runners.tenant_turns import TenantTurns

logger = logging.getLogger(__name__)

# How long a cancelled run may unwind. After that only its fence blocks its writes.
UNWIND_SECONDS = 2.0
# The same at the very end of the process.
LAST_SECONDS = 0.5
# The first and the longest wait before a store that did not answer is asked again.
SHORTEST_WAIT = 0.1
LONGEST_WAIT = 2.0
# The first wait before claiming again when a claimable thread's row was locked; doubled up to the poll interval.
SHORTEST_LOOK = 0.01
# How many heartbeats of live runners are waited for after an outage.
PATIENT_BEATS = 1.5


@dataclass(slots=True, eq=False)
class ActiveRun:
    """One run of one thread. A thread may have two for a moment: one that unwinds, and one that follows it."""

    lease: Lease
    opening: Change | None = None
    task: "asyncio.Task[None]" = field(init=False)
    is_halted: bool = False
    is_lost: bool = False  # another runner holds its lease, or none does

    def halt(self) -> None:
        self.is_halted = True
        self.task.cancel()


class LocalRunner:
    """The Runner port in one process. Runners of many processes share one database safely by leases and fences."""

    def __init__(
        self,
        *,
        name: str,
        store: Store,
        open_store: Callable[[], AbstractAsyncContextManager[Store]],
        step: Step,
        lease: timedelta,
        poll_seconds: float,
        concurrency: int,
        grace_seconds: float,
        graphs: Collection[str] = (),
        call: Callable[[], None] = lambda: None,
        liveness: Liveness | None = None,
    ) -> None:
        """`graphs` are those it can run, all if none is named; threads of other graphs are left to other runners.

        `call` notifies the runners of other processes that a thread can be claimed. Without `liveness` the threads of
        a dead process are claimed when its leases run out."""
        self._name = name if liveness is None else WATCHED + name
        self._store = store
        self._step = step
        self._lease = lease
        self._poll_seconds = poll_seconds
        self._grace_seconds = grace_seconds
        self._graphs = tuple(sorted(graphs))
        self._call = call
        self._loop = asyncio.get_running_loop()
        # In the order they started; a dict because the heartbeat's OS thread reads it.
        self._runs: dict[ActiveRun, None] = {}
        self._bell = asyncio.Event()
        # How many threads were surely claimable since the last claim.
        self._wakes = 0
        self._draining = False
        self._heartbeat = Heartbeat(self._name, open_store, self._held, self._lost, lease=lease)
        # A cancelled run that does not end occupies no slot.
        self._slots = Slots(concurrency, lambda: len(self._held()))
        self._turns = TenantTurns()
        self._backoff = OutageBackoff(
            probe=store.has_work,
            release=self._release_unknown,
            seconds=PATIENT_BEATS * self._heartbeat.seconds,
            now=self._loop.time,
        )
        self._watching: AbstractAsyncContextManager[None] = contextlib.nullcontext()
        if liveness is not None:
            dead = DeadRunners(self._name, store=store, liveness=liveness, found=self.wake)
            self._watching = dead.watching()
        self._quarantine = Quarantine(
            max_recoveries=step.max_recoveries, poll_seconds=poll_seconds, now=self._loop.time
        )

    @asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncGenerator[None]:
        """Work until `stopping` is set, which the end of the block does; then drain.

        Active runs end at a safe point or are left to other runners. The block continues meanwhile: the server need not
        finish its streams and requests before the drain begins.
        """
        async with self._watching:
            self._heartbeat.start()
            claiming = asyncio.create_task(self._claim_forever())
            ending = asyncio.create_task(self._end(claiming, stopping))
            try:
                yield
            finally:
                stopping.set()
                await ending
                await asyncio.to_thread(self._heartbeat.stop)

    async def _end(self, claiming: "asyncio.Task[None]", stopping: asyncio.Event) -> None:
        try:
            await stopping.wait()
        finally:
            self._draining = True
            self._step.ending.set()
            self._bell.set()
            deadline = self._loop.time() + self._grace_seconds
            # Not cancelled at once: threads claimed at this moment must be released.
            await asyncio.wait((claiming,), timeout=self._grace_seconds)
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._slots.settled()
            await self._drain(max(0.0, deadline - self._loop.time()))

    def wake(self) -> None:
        """The first process with a free slot takes the thread: this one, or another."""
        self._wakes += 1
        self._bell.set()
        self._call()

    def look(self) -> None:
        self._bell.set()

    @contextmanager
    def place(self, change: Change) -> Generator[Claim | None]:
        slots = self._slots
        slots.is_full = slots.is_full or slots.free <= 0
        is_mine = not self._graphs or change.thread.graph in self._graphs
        if slots.is_full or self._draining or self._backoff.is_unsure or not is_mine:
            yield None
            return
        lease = Lease(thread_id=change.thread.id, fence=FIRST_FENCE, recoveries=0)
        with slots.reserved(1):
            try:
                yield Claim(runner=self._name, lease=self._lease)
            except (Unavailable, asyncio.CancelledError):
                # Perhaps it was opened all the same. Then it is released, and any runner may claim it.
                self._start(ActiveRun(lease, is_halted=True))
                raise
            else:
                self._start(ActiveRun(lease, change))

    def halt(self, thread_id: str) -> None:
        # The thread's fence has moved on, so whatever the run still does is void.
        for run in self._of(thread_id):
            run.halt()

    async def _claim_forever(self) -> None:
        wait = 0.0  # the first claim is at once: a process may have died with active runs
        pause = SHORTEST_LOOK
        while not self._draining:
            wakes = await self._is_woken(wait)
            wait = self._poll_seconds
            try:
                patience = await self._backoff.remaining()
                if patience > 0:
                    wait = min(wait, patience)
                elif await self._claim(wakes):
                    pause = SHORTEST_LOOK
                else:
                    wait, pause = min(wait, pause), min(wait, 2 * pause)
            except ClewError as exc:
                self._backoff.met(exc)
                logger.warning("cannot claim threads", extra={"code": exc.code})
            except Exception:
                # Any error is better than a process that stops claiming threads.
                logger.exception("cannot claim threads")

    async def _release_unknown(self) -> None:
        """Release the threads of a claim whose answer was lost."""
        await self._slots.settled()  # while it is unsure, no other thread is opened to run here
        await self._store.release_all(self._name, but=[lease.thread_id for lease in self._held()])

    async def _claim(self, wakes: int) -> bool:
        """Claim threads up to the number of free slots.

        False if a claimable thread was skipped: a row locked at this moment can be claimed at the next one.
        """
        slots = self._slots
        if not (wakes or await self._store.has_work(self._graphs)):
            slots.is_full = False
            return True
        free = slots.free
        if free <= 0 or self._draining:
            slots.is_full = True
            return True
        is_contended = slots.is_full or wakes > free
        taken = await (
            self._take_in_turn(free) if is_contended else self._take(free, self._quarantine.trusted)
        )
        slots.is_full = taken == free
        taken += await self._take_suspect()
        return slots.is_full or taken >= max(wakes, 1)

    async def _take_in_turn(self, free: int) -> int:
        """Claim threads of several tenants in turn, so that each has as many running as another."""
        waiting = dict(await self._store.waiting_tenants(self._graphs))
        taken = 0
        while waiting and taken < free:
            for tenant, number in self._turns.share(waiting, free - taken).items():
                claimed = await self._take(number, self._quarantine.trusted, tenant)
                taken += claimed
                waiting[tenant] += claimed
                if claimed < number:
                    del waiting[tenant]
        return taken

    async def _take_suspect(self) -> int:
        if self._slots.free <= 0 or not self._quarantine.may_query(self._held()):
            return 0
        if not await self._store.has_work(self._graphs):
            return 0
        return await self._take(1, self._quarantine.suspects)

    async def _take(self, number: int, recovered: tuple[int, int], tenant: str | None = None) -> int:
        """Claim and start up to `number` threads, of one tenant if it is named; returns how many."""
        # An outage longer than a lease ends no run: threads that run here are not claimed as crashed.
        alive = {lease.thread_id for lease in self._held()}
        try:
            with self._slots.reserved(number):
                leases = await self._store.claim(
                    self._name,
                    lease=self._lease,
                    limit=number,
                    tenant=tenant,
                    graphs=self._graphs,
                    alive=alive,
                    recovered=recovered,
                )
        except Unavailable:
            self._backoff.lost_answer()
            raise
        for lease in leases:
            self._start(ActiveRun(lease))
        return len(leases)

    async def _is_woken(self, seconds: float) -> int:
        """Wait for a wake or the timeout; returns how many threads were surely claimable."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        self._bell.clear()
        wakes, self._wakes = self._wakes, 0
        return wakes

    def _start(self, run: ActiveRun) -> None:
        earlier = self._of(run.lease.thread_id)
        for each in earlier:
            each.halt()
        run.task = asyncio.create_task(self._run(run, earlier), name=f"run {run.lease.thread_id}")
        self._runs[run] = None
        self._step.metrics.running.inc()
        # A task cancelled before its first step executes none of its code, `finally` included.
        run.task.add_done_callback(lambda _: self._ended(run))

    async def _run(self, run: ActiveRun, earlier: Collection[ActiveRun]) -> None:
        if earlier:
            await asyncio.wait([each.task for each in earlier], timeout=UNWIND_SECONDS)
        if not (run.is_halted or self._draining):
            await self._to_its_rest(run)
        if run.is_halted or self._draining:
            await self._give_back(run.lease)

    def _ended(self, run: ActiveRun) -> None:
        del self._runs[run]
        self._step.metrics.running.dec()
        is_suspect = self._quarantine.is_suspect(run.lease)
        if is_suspect:
            self._quarantine.ended()
        if is_suspect or self._slots.is_full:
            self.look()

    async def _to_its_rest(self, run: ActiveRun) -> None:
        lease = run.lease
        try:
            failpoint("lease_taken")
            await self._step(lease, run.opening)
        except asyncio.CancelledError:
            if not run.is_halted:
                run.task.uncancel()
                await self._blame(lease)
            logger.info("run cancelled", extra={"thread_id": lease.thread_id})
            if run.is_lost:
                await self._step.count_lost(lease)
        except Unavailable as exc:
            # The store could not be read or written. The run is not at fault: it is released as if it had not started.
            logger.warning("run given up", extra={"thread_id": lease.thread_id, "code": exc.code})
            await self._give_back(lease)
        except Exception:
            # Not even the failure could be written; the lease expires and a runner tries again, up to a limit.
            logger.exception("run given up", extra={"thread_id": lease.thread_id})

    async def _blame(self, lease: Lease) -> None:
        """Fail a run that its own graph cancelled: the runner did not."""
        try:
            await self._step.fail(lease, "the graph cancelled its own run")
        except ClewError as exc:
            logger.warning("run given up", extra={"thread_id": lease.thread_id, "code": exc.code})

    async def _give_back(self, lease: Lease) -> None:
        """Release the thread, so that any runner can claim it at once. A lease held by another runner is left alone."""
        wait = SHORTEST_WAIT
        while True:
            try:
                await self._store.release(self._name, lease)
            except Unavailable as exc:
                if self._draining:
                    logger.warning(
                        "lease not released", extra={"thread_id": lease.thread_id, "code": exc.code}
                    )
                    return
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                self.wake()
                return

    async def _drain(self, seconds: float) -> None:
        runs = list(self._runs)
        if not runs:
            return
        for run in runs:
            self._step.graph_driver.drain(run.lease.thread_id)
        _, late = await asyncio.wait([run.task for run in runs], timeout=seconds)
        for run in runs:
            if run.task in late:
                run.halt()
        if not late:
            return
        await asyncio.wait(late, timeout=LAST_SECONDS)
        for run in runs:
            if not run.task.done():
                # It ignores its cancellation. Another runner may claim the thread; its fence shuts this run out.
                await self._give_back(run.lease)

    def _of(self, thread_id: str) -> list[ActiveRun]:
        return [run for run in self._runs if run.lease.thread_id == thread_id]

    def _held(self) -> Collection[Lease]:
        return [run.lease for run in list(self._runs) if not run.is_halted]

    def _lost(self, leases: Collection[Lease]) -> None:
        self._loop.call_soon_threadsafe(self._halt, leases)

    def _halt(self, leases: Collection[Lease]) -> None:
        for run in list(self._runs):
            if run.lease in leases:
                run.is_lost = not run.is_halted
                run.halt()
