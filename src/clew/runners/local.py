"""The runner inside one process: claims running threads from the store and steps them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from clew.domain.errors import ClewError, Unavailable
from clew.domain.lifecycle import Change
from clew.domain.records import FIRST_FENCE, Claim, Lease
from clew.engine.step import Step
from clew.failpoints import failpoint
from clew.ports.threads import Store
from clew.runners.heartbeat import Heartbeat

logger = logging.getLogger(__name__)

# How long a cancelled run is given to unwind. Beyond that its fence alone keeps it from doing harm.
UNWIND_SECONDS = 2.0
# The same when the process ends, which is then at its very end.
LAST_SECONDS = 0.5
# How long to wait before a store that was away is asked again, at first and at most.
SHORTEST_WAIT = 0.1
LONGEST_WAIT = 2.0
# How soon to look again for a thread whose row was locked when it could have been claimed; doubled up to a poll interval.
SHORTEST_LOOK = 0.01
# After an outage everybody's leases may have run out, and a heartbeat needs its turn and a new connection.
PATIENT_BEATS = 1.5
ANY_NUMBER = 2**31 - 1


@dataclass(slots=True, eq=False)
class ActiveRun:
    """One run of one thread. A thread may have two for a moment: one that unwinds, and one that follows it."""

    lease: Lease
    opening: Change | None = None
    task: "asyncio.Task[None]" = field(init=False)
    is_halted: bool = False
    is_lost: bool = False  # its lease is another runner's, or nobody's

    def halt(self) -> None:
        self.is_halted = True
        self.task.cancel()


class LocalRunner:
    """Many of these, in many processes on one database, share the work safely: a lease and a fence each."""

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
    ) -> None:
        """`graphs` are those it can run, all if none is named: the threads of others are left to others.

        `call` tells the runners of other processes that a thread can be claimed."""
        self._name = name
        self._store = store
        self._step = step
        self._lease = lease
        self._poll_seconds = poll_seconds
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._graphs = tuple(sorted(graphs))
        # How often a thread was recovered that is nearly given up, and when to look for such again.
        self._suspect = max(1, step.max_recoveries - 1)
        self._suspects_at = 0.0
        self._call = call
        # In the order they were begun; a dict because the heartbeat's thread reads it.
        self._runs: dict[ActiveRun, None] = {}
        # Places for threads that are being opened or claimed right now, and whether there are none.
        self._promised = 0
        self._is_kept = asyncio.Event()
        self._is_kept.set()
        self._bell = asyncio.Event()
        # How often there was something to claim for sure since the last look.
        self._wakes = 0
        # Whether more could be claimed than there were places.
        self._is_full = False
        self._was_away = False
        # Whether the answer to a claim was lost, so that threads may be ours without our knowing.
        self._is_unsure = False
        self._draining = False
        self._loop = asyncio.get_running_loop()
        self._patient_until = 0.0
        self._heartbeat = Heartbeat(name, open_store, self._held, self._lost, lease=lease)

    @asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncGenerator[None]:
        """Work until `stopping` is set, which the end of the block does; then drain.

        What is under way ends at a safe point or is left to others. The block goes on meanwhile: whoever has open
        streams to end and requests to answer need not be done with them first.
        """
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
            # Not cancelled at once: threads claimed in this moment are to be given back.
            await asyncio.wait((claiming,), timeout=self._grace_seconds)
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._is_kept.wait()
            await self._drain(max(0.0, deadline - self._loop.time()))

    def wake(self) -> None:
        """There is something to claim."""
        self._wakes += 1
        self._bell.set()

    def look(self) -> None:
        """There may be something to claim."""
        self._bell.set()

    @contextmanager
    def place(self, change: Change) -> Generator[Claim | None]:
        """A place for a thread that is about to be opened; with the end of the block it runs.

        None if there is none: whoever has one claims the thread then.
        """
        free = self._free()
        self._is_full = self._is_full or free <= 0
        is_mine = not self._graphs or change.thread.graph in self._graphs
        if self._is_full or self._draining or self._is_unsure or not is_mine:
            yield None
            return
        lease = Lease(thread_id=change.thread.id, fence=FIRST_FENCE, recoveries=0)
        self._promise(1)
        try:
            yield Claim(runner=self._name, lease=self._lease)
        except (Unavailable, asyncio.CancelledError):
            # Perhaps it was opened all the same. Then whoever finds it may run it.
            self._start(ActiveRun(lease, is_halted=True))
            raise
        else:
            self._start(ActiveRun(lease, change))
        finally:
            self._promise(-1)

    def halt(self, thread_id: str) -> None:
        """Cancel the run of a thread that must not go on. Its fence has moved on, so whatever it still does is void."""
        for run in self._of(thread_id):
            run.halt()

    async def _claim_forever(self) -> None:
        wait = 0.0  # the first look is at once: a process may have died with work under way
        pause = SHORTEST_LOOK
        while not self._draining:
            wakes = await self._is_woken(wait)
            wait = self._poll_seconds
            try:
                patience = await self._patience()
                if patience > 0:
                    wait = min(wait, patience)
                elif await self._claim(wakes):
                    pause = SHORTEST_LOOK
                else:
                    wait, pause = min(wait, pause), min(wait, 2 * pause)
            except ClewError as exc:
                self._was_away = self._was_away or isinstance(exc, Unavailable)
                logger.warning("cannot claim threads", extra={"code": exc.code})
            except Exception:
                # Whatever it was, a process that stops looking for work is worse.
                logger.exception("cannot claim threads")

    async def _patience(self) -> float:
        """How long not to claim yet: when the store was away, those who live renew what they hold first."""
        if self._was_away:
            await self._store.has_work()  # raises while it still is
            await self._make_sure()
            self._was_away = False
            self._patient_until = self._loop.time() + PATIENT_BEATS * self._heartbeat.seconds
        return self._patient_until - self._loop.time()

    async def _make_sure(self) -> None:
        """Give back what was claimed without our hearing of it; else it would wait for its lease, and count as a crash."""
        if self._is_unsure:
            await self._is_kept.wait()  # while we are not sure, no other thread is opened to run here
            await self._store.release_all(self._name, but=[lease.thread_id for lease in self._held()])
            self._is_unsure = False

    async def _claim(self, wakes: int) -> bool:
        """Claim what there is and there is room for.

        False if something was there and passed over: what is locked in this moment can be claimed in the next one.
        """
        if not (wakes or await self._store.has_work(self._graphs)):
            self._is_full = False
            return True
        free = self._free()
        if free <= 0 or self._draining:
            self._is_full = True
            return True
        taken = await self._take(free, (0, self._suspect - 1))
        self._is_full = taken == free
        taken += await self._take_suspect()
        return self._is_full or taken >= max(wakes, 1)

    async def _take_suspect(self) -> int:
        # One that takes its process down is the death of those beside it too. So before it is given up it is known
        # apart: of those that are under suspicion one runs here at a time.
        is_one_here = any(map(self._is_suspect, self._held()))
        if self._free() <= 0 or is_one_here or self._loop.time() < self._suspects_at:
            return 0
        # There is hardly ever one, so nothing is asked for them each time that something new is there.
        self._suspects_at = self._loop.time() + self._poll_seconds
        if not await self._store.has_work(self._graphs):
            return 0
        return await self._take(1, (self._suspect, ANY_NUMBER))

    async def _take(self, places: int, recovered: tuple[int, int]) -> int:
        """Claim and start so many; how many it were."""
        # A database that was away for longer than a lease has killed nobody: what runs here goes on.
        alive = {lease.thread_id for lease in self._held()}
        self._promise(places)
        try:
            leases = await self._store.claim(
                self._name,
                lease=self._lease,
                limit=places,
                graphs=self._graphs,
                alive=alive,
                recovered=recovered,
            )
        except Unavailable:
            self._is_unsure = True
            raise
        finally:
            self._promise(-places)
        for lease in leases:
            self._start(ActiveRun(lease))
        return len(leases)

    def _is_suspect(self, lease: Lease) -> bool:
        return lease.recoveries >= self._suspect

    async def _is_woken(self, seconds: float) -> int:
        """How often there was something for sure, when it is time to look."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        self._bell.clear()
        wakes, self._wakes = self._wakes, 0
        return wakes

    def _promise(self, places: int) -> None:
        self._promised += places
        if self._promised:
            self._is_kept.clear()
        else:
            self._is_kept.set()

    def _free(self) -> int:
        # A run that was cancelled and will not end takes nobody's place.
        return self._concurrency - self._promised - sum(not run.is_halted for run in self._runs)

    def _start(self, run: ActiveRun) -> None:
        earlier = self._of(run.lease.thread_id)
        for each in earlier:
            each.halt()
        run.task = asyncio.create_task(self._run(run, earlier), name=f"run {run.lease.thread_id}")
        self._runs[run] = None
        self._step.metrics.running.inc()
        # A task that is cancelled before its first step runs no line of its own.
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
        if self._is_suspect(run.lease):
            self._suspects_at = 0.0
            self.look()
        elif self._is_full:
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
            # Nothing could be read or written. It is nobody's fault, so it goes back as if it had not been begun.
            logger.warning("run given up", extra={"thread_id": lease.thread_id, "code": exc.code})
            await self._give_back(lease)
        except Exception:
            # Not even the failure could be written; the lease runs out and somebody tries again, but not for ever.
            logger.exception("run given up", extra={"thread_id": lease.thread_id})

    async def _blame(self, lease: Lease) -> None:
        """Nobody here cancelled the run, so what it ran did."""
        try:
            await self._step.fail(lease, "the graph cancelled its own run")
        except ClewError as exc:
            logger.warning("run given up", extra={"thread_id": lease.thread_id, "code": exc.code})

    async def _give_back(self, lease: Lease) -> None:
        """Let anybody take the thread at once. One that is no longer ours is left alone."""
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
                self._call()
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
                # It ignores being cancelled. Others may have the thread; their fence shuts this one out.
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
