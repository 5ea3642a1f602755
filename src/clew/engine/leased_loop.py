"""Leased loop: claims due jobs, works on several at once, keeps their leases alive and snoozes those that fail."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic

from clew.domain.errors import AtCapacity, ClewError, LostLease, Unavailable
from clew.domain.records import Conversation
from clew.ports.channels import Conversations
from clew.ports.leased_jobs import Job, LeasedJobs
from clew.ports.notifier import Notifier

logger = logging.getLogger(__name__)

# How long a job may take to end when the process stops: a job that is cut off may be done twice.
GRACE_SECONDS = 5.0
# How long a job waits after an error of ours.
TROUBLE = timedelta(seconds=10)


class LeasedLoop(Generic[Job]):
    """Works on the due jobs of one kind, in this process.

    `work` ends each job itself: it releases, snoozes or discards it. What `work` raises is logged here. After Unavailable
    and LostLease the job is left alone until its lease runs out; after any other error it is snoozed, AtCapacity included.
    """

    def __init__(
        self,
        jobs: LeasedJobs[Job],
        work: Callable[[Job], Awaitable[None]],
        *,
        name: str,
        about: Callable[[Job], Mapping[str, str | None]],
        lease: timedelta,
        concurrency: int,
        poll_seconds: float,
        notifier: Notifier | None = None,
        stopping: asyncio.Event | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """With a `notifier`, the loop also polls when a thread comes to rest. `about` names a job in the logs."""
        self._jobs = jobs
        self._work = work
        self._name = name
        self._about = about
        self._lease = lease
        self._concurrency = concurrency
        self._poll_seconds = poll_seconds
        self._notifier = notifier
        self._stopping = stopping or asyncio.Event()
        self._grace_seconds = grace_seconds
        self._woken = asyncio.Event()
        self._active: dict[asyncio.Task[bool], Job] = {}

    def wake(self) -> None:
        """Poll now: a job may be due."""
        self._woken.set()

    async def turn(self) -> bool:
        """Claim what is due and wait until that is done; True if more may be due."""
        tasks = await self._claim()
        if tasks:
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError:
                await _cancel(tasks)
                raise
        return len(tasks) == self._concurrency and all(task.result() for task in tasks)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Inside the block due jobs are worked on. At its end no job is claimed, and late ones are cancelled."""
        loops = [asyncio.create_task(self._poll_forever())]
        if self._notifier is not None:
            loops.append(asyncio.create_task(self._hear_forever(self._notifier)))
        try:
            yield
        finally:
            self._stopping.set()
            await _cancel(loops)
            if self._active:
                _, late = await asyncio.wait(self._active, timeout=self._grace_seconds)
                await _cancel(late)

    async def _hear_forever(self, notifier: Notifier) -> None:
        with notifier.subscribe(for_rest=True) as subscription:
            while True:
                if await subscription.wait(self._poll_seconds):
                    subscription.rung()
                    self.wake()

    async def _poll_forever(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._claim()
            except ClewError as exc:
                logger.warning("%s: due jobs cannot be claimed", self._name, extra={"code": exc.code})
            except Exception:
                # The next poll may succeed.
                logger.exception("%s: due jobs cannot be claimed", self._name)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds):
                    await self._woken.wait()

    async def _claim(self) -> list[asyncio.Task[bool]]:
        free = self._concurrency - len(self._active)
        if free <= 0 or self._stopping.is_set() or not await self._jobs.are_due():
            return []
        # A process that was halted for longer than a lease continues its jobs if no other worker has claimed them.
        claimed = await self._jobs.claim(lease=self._lease, limit=free, alive=self._active.values())
        return [self._begin(job) for job in claimed]

    def _begin(self, job: Job) -> asyncio.Task[bool]:
        task = asyncio.create_task(self._work_on(job))
        self._active[task] = job
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[bool]) -> None:
        del self._active[task]
        self.wake()

    async def _work_on(self, job: Job) -> bool:
        """Whether no error of ours came up."""
        extra = self._about(job)
        heartbeats = asyncio.create_task(self._beat(job))
        try:
            await self._work(job)
        except LostLease as exc:
            logger.info("%s: another worker has this job now", self._name, extra={**extra, "code": exc.code})
        except Unavailable as exc:
            logger.warning(
                "%s: a job is left until its lease runs out", self._name, extra={**extra, "code": exc.code}
            )
        except AtCapacity as exc:
            logger.info("%s: a job waits, %s", self._name, exc, extra={**extra, "code": exc.code})
            with suppress(ClewError):
                await self._jobs.snooze(job, wait=TROUBLE)
        except Exception:
            # It is an error of this job; the other jobs continue.
            logger.exception("%s: a job failed and is snoozed", self._name, extra=extra)
            with suppress(ClewError):
                await self._jobs.snooze(job, wait=TROUBLE)
        else:
            return True
        finally:
            heartbeats.cancel()
        return False

    async def _beat(self, job: Job) -> None:
        """Prolong the lease while the job is worked on; a lost one is noticed with the job's next write."""
        while True:
            await asyncio.sleep(max(0.01, self._lease.total_seconds() / 3))
            with suppress(ClewError):
                await self._jobs.heartbeat(job, lease=self._lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationJobs:
    """The conversations of these sources as leased jobs."""

    conversations: Conversations
    sources: Sequence[str]
    new_id: Callable[[], str]

    async def are_due(self) -> bool:
        return await self.conversations.are_due(self.sources)

    async def claim(
        self, *, lease: timedelta, limit: int, alive: Collection[Conversation]
    ) -> Sequence[Conversation]:
        return await self.conversations.claim(
            self.new_id(), self.sources, lease=lease, limit=limit, alive=alive
        )

    async def heartbeat(self, job: Conversation, *, lease: timedelta) -> int:
        return await self.conversations.heartbeat(job, lease=lease)

    async def snooze(self, job: Conversation, *, wait: timedelta) -> None:
        await self.conversations.snooze(job, wait=wait)


def about_conversation(held: Conversation) -> dict[str, str | None]:
    return {"source": held.source, "thread_id": held.thread_id}


async def _cancel(tasks: Collection[asyncio.Task[None]] | Collection[asyncio.Task[bool]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
