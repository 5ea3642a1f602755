"""Runner inside one process: claims running threads from the store and executes them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta

from clew.domain.errors import ClewError, Unavailable
from clew.domain.lifecycle import Change
from clew.domain.records import Lease
from clew.engine.step import Step
from clew.ports.guards import Claim
from clew.ports.threads import Store
from clew.runners.active_runs import ActiveRun, ActiveRuns
from clew.runners.backoff import OutageBackoff
from clew.runners.quarantine import Quarantine
from clew.runners.slots import Slots

logger = logging.getLogger(__name__)

# The first wait before claiming again when a claimable thread's row was locked; doubled up to the poll interval.
SHORTEST_LOOK = 0.01
# How many heartbeats of live runners are waited for after an outage.
PATIENT_BEATS = 1.5


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
        is_capped: bool = False,
    ) -> None:
        """`graphs` are those it can run, all if none is named; threads of other graphs are left to other runners.

        `call` notifies the runners of other processes that a thread can be claimed. Where it `is_capped`, the store
        counts what runs, so that threads are claimed from it only, and an ended run may be what others wait for."""
        self._active = ActiveRuns(
            name=name,
            store=store,
            open_store=open_store,
            step=step,
            lease=lease,
            released=self.wake,
            ended=self._ended,
        )
        self._store = store
        self._lease = lease
        self._poll_seconds = poll_seconds
        self._grace_seconds = grace_seconds
        self._graphs = tuple(sorted(graphs))
        self._call = call
        self._is_capped = is_capped
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        # How many threads were surely claimable since the last claim.
        self._wakes = 0
        self._slots = Slots(concurrency, lambda: len(self._active.held()))
        self._backoff = OutageBackoff(
            probe=store.has_work,
            release=self._release_unknown,
            seconds=PATIENT_BEATS * self._active.heartbeat.seconds,
            now=self._loop.time,
        )
        self._quarantine = Quarantine(
            max_recoveries=step.max_recoveries, poll_seconds=poll_seconds, now=self._loop.time
        )

    @property
    def name(self) -> str:
        return self._active.name

    @asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncGenerator[None]:
        """Work until `stopping` is set, which the end of the block does; then drain.

        Active runs end at a safe point or are left to other runners. The block continues meanwhile: the server need not
        finish its streams and requests before the drain begins.
        """
        async with self._active.kept_alive():
            claiming = asyncio.create_task(self._claim_forever())
            ending = asyncio.create_task(self._end(claiming, stopping))
            try:
                yield
            finally:
                stopping.set()
                await ending

    async def _end(self, claiming: "asyncio.Task[None]", stopping: asyncio.Event) -> None:
        try:
            await stopping.wait()
        finally:
            self._active.begin_drain()
            self._bell.set()
            deadline = self._loop.time() + self._grace_seconds
            # Not cancelled at once: threads claimed at this moment must be released.
            await asyncio.wait((claiming,), timeout=self._grace_seconds)
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._slots.settled()
            await self._active.drain(max(0.0, deadline - self._loop.time()))

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
        if (
            slots.is_full
            or self._active.draining
            or self._backoff.is_unsure
            or self._is_capped
            or not is_mine
        ):
            yield None
            return
        # The next fence. The thread is at rest: it has no lease, and no runner has taken it over.
        lease = Lease(thread_id=change.thread.id, fence=change.thread.fence + 1, recoveries=0)
        with slots.reserved(1):
            try:
                yield Claim(runner=self._active.name, lease=self._lease, fence=lease.fence)
            except (Unavailable, asyncio.CancelledError):
                # Perhaps it was saved all the same. Then it is released, and any runner may claim it.
                self._active.start(ActiveRun(lease, is_halted=True))
                raise
            else:
                self._active.start(ActiveRun(lease, change if change.begun else None))

    def halt(self, thread_id: str) -> None:
        self._active.halt(thread_id)

    def check(self, thread_id: str) -> None:
        self._active.check(thread_id)

    async def _claim_forever(self) -> None:
        wait = 0.0  # the first claim is at once: a process may have died with active runs
        pause = SHORTEST_LOOK
        while not self._active.draining:
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
        await self._store.release_all(
            self._active.name, but=[lease.thread_id for lease in self._active.held()]
        )

    async def _claim(self, wakes: int) -> bool:
        """Claim threads up to the number of free slots.

        False if a claimable thread was skipped: a row locked at this moment can be claimed at the next one.
        """
        slots = self._slots
        if not (wakes or await self._store.has_work(self._graphs)):
            slots.is_full = False
            return True
        free = slots.free
        if free <= 0 or self._active.draining:
            slots.is_full = True
            return True
        taken = await self._take(free, self._quarantine.trusted)
        slots.is_full = taken == free
        taken += await self._take_suspect()
        return slots.is_full or taken >= max(wakes, 1)

    async def _take_suspect(self) -> int:
        if self._slots.free <= 0 or not self._quarantine.may_query(self._active.held()):
            return 0
        if not await self._store.has_work(self._graphs):
            return 0
        return await self._take(1, self._quarantine.suspects)

    async def _take(self, number: int, recovered: tuple[int, int]) -> int:
        """Claim and start up to `number` threads; returns how many."""
        # An outage longer than a lease ends no run: threads that run here are not claimed as crashed.
        alive = {lease.thread_id for lease in self._active.held()}
        try:
            with self._slots.reserved(number):
                leases = await self._store.claim(
                    self._active.name,
                    lease=self._lease,
                    limit=number,
                    graphs=self._graphs,
                    alive=alive,
                    recovered=recovered,
                )
        except Unavailable:
            self._backoff.lost_answer()
            raise
        for lease in leases:
            self._active.start(ActiveRun(lease))
        return len(leases)

    async def _is_woken(self, seconds: float) -> int:
        """Wait for a wake or the timeout; returns how many threads were surely claimable."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        self._bell.clear()
        wakes, self._wakes = self._wakes, 0
        return wakes

    def _ended(self, run: ActiveRun) -> None:
        is_suspect = self._quarantine.is_suspect(run.lease)
        if is_suspect:
            self._quarantine.ended()
        if is_suspect or self._slots.is_full or self._is_capped:
            self.look()
