"""Active runs: the threads that this process steps under a lease, from their start until their lease is given up."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from clew.domain.errors import ClewError, Unavailable
from clew.domain.lifecycle import Change
from clew.domain.records import Lease
from clew.engine.step import Step
from clew.failpoints import failpoint
from clew.ports.threads import Store
from clew.runners.heartbeat import Heartbeat

logger = logging.getLogger(__name__)

# How long a cancelled run may unwind. After that only its fence blocks its writes.
UNWIND_SECONDS = 2.0
# The same at the very end of the process.
LAST_SECONDS = 0.5
# The first and the longest wait before a store that did not answer is asked again.
SHORTEST_WAIT = 0.1
LONGEST_WAIT = 2.0


@dataclass(slots=True, eq=False)
class ActiveRun:
    """One run of one thread. A thread may have two for a moment: one that unwinds, and one that follows it."""

    lease: Lease
    opening: Change | None = None
    task: "asyncio.Task[None]" = field(init=False)
    is_halted: bool = False
    is_lost: bool = False  # another runner holds its lease, or none does
    # Set when it has ended, or was halted: one that ignores its cancellation is not waited for.
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def halt(self) -> None:
        self.is_halted = True
        self.over.set()
        self.task.cancel()


class ActiveRuns:
    """What every runner does with a thread that it has claimed, whichever way it finds threads."""

    def __init__(
        self,
        *,
        name: str,
        store: Store,
        open_store: Callable[[], AbstractAsyncContextManager[Store]],
        step: Step,
        lease: timedelta,
        released: Callable[[], None],
        ended: Callable[[ActiveRun], None],
    ) -> None:
        """`released` is called when a thread was given back, `ended` at the end of each run."""
        self.name = name
        self.heartbeat = Heartbeat(self.name, open_store, self.held, self._lost, lease=lease)
        self.draining = False
        self._store = store
        self._step = step
        self._released = released
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        # In the order they started; a dict because the heartbeat's OS thread reads it.
        self._runs: dict[ActiveRun, None] = {}

    @asynccontextmanager
    async def kept_alive(self) -> AsyncGenerator[None]:
        """Inside the block leases are renewed."""
        self.heartbeat.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.heartbeat.stop)

    def start(self, run: ActiveRun) -> None:
        earlier = self._of(run.lease.thread_id)
        for each in earlier:
            each.halt()
        run.task = asyncio.create_task(self._run(run, earlier), name=f"run {run.lease.thread_id}")
        self._runs[run] = None
        self._step.metrics.running.inc()
        # A task cancelled before its first step executes none of its code, `finally` included.
        run.task.add_done_callback(lambda _: self._forget(run))

    def halt(self, thread_id: str) -> None:
        """Cancel the run of this thread, if it is here. Its fence has moved on, so whatever it still does is void."""
        for run in self._of(thread_id):
            run.halt()

    def check(self, thread_id: str) -> None:
        """Find out at once whether the run of this thread was stopped, if it is here."""
        if any(not run.is_halted for run in self._of(thread_id)):
            self.heartbeat.nudge()

    def held(self) -> Collection[Lease]:
        """The leases of runs that go on. A cancelled run that does not end occupies no slot."""
        return [run.lease for run in list(self._runs) if not run.is_halted]

    def begin_drain(self) -> None:
        """From now on a run that ends without its round is given back, and nothing is tried again here."""
        self.draining = True
        self._step.ending.set()

    async def drain(self, seconds: float) -> None:
        """End each run at its next safe point and give its thread back; cancel those that are late."""
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

    def _forget(self, run: ActiveRun) -> None:
        del self._runs[run]
        run.over.set()
        self._step.metrics.running.dec()
        self._ended(run)

    async def _run(self, run: ActiveRun, earlier: Collection[ActiveRun]) -> None:
        if earlier:
            await asyncio.wait([each.task for each in earlier], timeout=UNWIND_SECONDS)
        if not (run.is_halted or self.draining):
            await self._to_its_rest(run)
        if run.is_halted or self.draining:
            await self._give_back(run.lease)

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
                await self._store.release(self.name, lease)
            except Unavailable as exc:
                if self.draining:
                    logger.warning(
                        "lease not released", extra={"thread_id": lease.thread_id, "code": exc.code}
                    )
                    return
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                self._released()
                return

    def _of(self, thread_id: str) -> list[ActiveRun]:
        return [run for run in self._runs if run.lease.thread_id == thread_id]

    def _lost(self, leases: Collection[Lease]) -> None:
        self._loop.call_soon_threadsafe(self._halt, leases)

    def _halt(self, leases: Collection[Lease]) -> None:
        for run in list(self._runs):
            if run.lease in leases:
                run.is_lost = run.is_lost or not run.is_halted  # a late event loop is told twice
                run.halt()
