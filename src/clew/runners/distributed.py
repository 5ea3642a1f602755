"""Runner of many processes: Procrastinate hands out jobs, each of which is a thread to claim and run here."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import timedelta

from clew.domain.errors import ClewError, Unavailable
from clew.domain.lifecycle import Change
from clew.domain.records import Lease
from clew.engine.step import Step
from clew.ports.guards import Claim
from clew.ports.job_queue import JobQueue
from clew.ports.threads import Store
from clew.runners.active_runs import LONGEST_WAIT, SHORTEST_WAIT, ActiveRun, ActiveRuns
from clew.runners.job_worker import JobWorker
from clew.runners.quarantine import Quarantine

logger = logging.getLogger(__name__)

# How often to look for threads without a job, and for jobs without a runner.
LOOK_SECONDS = 0.5
# A job is put back when no runner has held its thread for so long: its process died, or an answer to it was lost.
STUCK_SECONDS = 2.0
# How many heartbeats of live runners are waited for after an outage.
PATIENT_BEATS = 1.5
# What the end of the job worker may take beyond the grace period.
CLOSING_SECONDS = 2.0


class DistributedRunner:
    """The Runner port on a job queue. Jobs say who works when; leases and fences say who may write."""

    def __init__(
        self,
        *,
        name: str,
        dsn: str,
        jobs: JobQueue,
        store: Store,
        open_store: Callable[[], AbstractAsyncContextManager[Store]],
        step: Step,
        lease: timedelta,
        poll_seconds: float,
        concurrency: int,
        grace_seconds: float,
        graphs: Collection[str],
        is_capped: bool = False,
    ) -> None:
        """`dsn` leads to the database itself: a transaction pooler passes no notifications on.

        Where it `is_capped`, the store counts what runs, and an ended run may be what others wait for."""
        self._jobs = jobs
        self._is_capped = is_capped
        self._store = store
        self._lease = lease
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._loop = asyncio.get_running_loop()
        self._active = ActiveRuns(
            name=name,
            store=store,
            open_store=open_store,
            step=step,
            lease=lease,
            released=lambda: None,  # the store has enqueued the thread
            ended=lambda _: self._bell.set() if is_capped else None,
        )
        # Look for threads without a job now.
        self._bell = asyncio.Event()
        self._quarantine = Quarantine(
            max_recoveries=step.max_recoveries, poll_seconds=poll_seconds, now=self._loop.time
        )
        self._worker = JobWorker(
            dsn, self._work, graphs=graphs, concurrency=concurrency, poll_seconds=poll_seconds
        )

    @property
    def name(self) -> str:
        return self._active.name

    @asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncGenerator[None]:
        async with self._active.kept_alive(), self._worker.working():
            sweeping = asyncio.create_task(self._sweep_forever())
            ending = asyncio.create_task(self._end(stopping))
            try:
                yield
            finally:
                stopping.set()
                await ending
                sweeping.cancel()
                await asyncio.gather(sweeping, return_exceptions=True)

    def wake(self) -> None:
        """Nothing to do: the commit that made the thread claimable enqueued it, which notifies a worker."""

    def look(self) -> None:
        """Nothing to do either."""

    def place(self, change: Change) -> AbstractContextManager[Claim | None]:  # noqa: ARG002 - the port's
        return contextlib.nullcontext()

    def halt(self, thread_id: str) -> None:
        self._active.halt(thread_id)

    def check(self, thread_id: str) -> None:
        self._active.check(thread_id)

    async def _end(self, stopping: asyncio.Event) -> None:
        try:
            await stopping.wait()
        finally:
            self._active.begin_drain()
            self._worker.stop()
            await self._active.drain(self._grace_seconds)

    async def _work(self, thread_id: str) -> None:
        """A job: run the thread until it rests or the run is halted. It finds nothing if the thread rests already."""
        if self._is_full or self._is_here(thread_id):
            return
        lease = await self._claim(thread_id)
        if lease is None:
            return
        run = ActiveRun(lease)
        self._active.start(run)
        await run.over.wait()

    @property
    def _is_full(self) -> bool:
        """After the job worker has begun anew, runs of its earlier jobs may occupy slots."""
        return self._active.draining or len(self._active.held()) >= self._concurrency

    def _is_here(self, thread_id: str) -> bool:
        return any(lease.thread_id == thread_id for lease in self._active.held())

    async def _claim(self, thread_id: str) -> Lease | None:
        wait = SHORTEST_WAIT
        while not self._active.draining:
            try:
                return await self._claim_once(thread_id)
            except Unavailable as exc:
                # A claim whose answer was lost is repeated: the lease is this runner's then.
                logger.warning("cannot claim a thread", extra={"thread_id": thread_id, "code": exc.code})
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
        return None

    async def _claim_once(self, thread_id: str) -> Lease | None:
        name, quarantine = self._active.name, self._quarantine
        lease = await self._store.claim_one(name, thread_id, lease=self._lease, recovered=quarantine.trusted)
        if lease is None and not any(map(quarantine.is_suspect, self._active.held())):
            # Of several suspects one runs here; the others are enqueued again, perhaps for another process.
            lease = await self._store.claim_one(
                name, thread_id, lease=self._lease, recovered=quarantine.suspects
            )
        return lease

    async def _sweep_forever(self) -> None:
        since: dict[int, float] = {}
        while True:
            try:
                since = await self._sweep(since)
            except ClewError as exc:
                since = {}
                logger.warning("cannot look after jobs", extra={"code": exc.code})
                # After an outage live runners first renew their leases.
                await asyncio.sleep(PATIENT_BEATS * self._active.heartbeat.seconds)
            except Exception:
                # Threads are enqueued by commits; the next look may succeed.
                logger.exception("cannot look after jobs")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._bell.wait()
            self._bell.clear()

    async def _sweep(self, since: dict[int, float]) -> dict[int, float]:
        """`since` says when jobs without a runner were first seen."""
        now = self._loop.time()
        # Under caps every run waits without a job until it may run.
        if (lost := await self._jobs.enqueue_lost()) and not self._is_capped:
            logger.info("%d threads had no job and were enqueued", lost)
        seen = {job: since.get(job, now) for job in await self._jobs.unleased()}
        stuck = [job for job, first in seen.items() if now - first >= STUCK_SECONDS]
        if stuck and (number := await self._jobs.put_back(stuck)):
            logger.warning("%d jobs had no runner and were put back", number)
        return {job: first for job, first in seen.items() if job not in stuck}
