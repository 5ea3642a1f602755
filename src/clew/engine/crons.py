"""Crons: scheduled runs, kept for their owners and started when they are due, once in all processes."""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from clew.domain.assistants import furnished
from clew.domain.crons import CronJob, CronSearch, counted, is_time
from clew.domain.errors import AlreadyDone, ClewError, Invalid, LostLease, NotFound, Unavailable
from clew.domain.events import Content, RunSpec
from clew.domain.runs import RunRequest
from clew.domain.thread import Json, Owner
from clew.engine.assistants import AssistantCatalog
from clew.engine.leased_loop import LeasedLoop
from clew.engine.runs import Runs
from clew.failpoints import failpoint
from clew.ports.clock import Clock
from clew.ports.crons import Crons
from clew.ports.run_hooks import Webhooks

logger = logging.getLogger(__name__)

CONCURRENCY = 32
POLL_SECONDS = 1.0
# Longer than it takes to start a run.
LEASE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    crons: Crons
    runs: Runs
    assistants: AssistantCatalog
    webhooks: Webhooks
    clock: Clock
    # What a user says in an input of messages.
    said: Callable[[Json], Content | None]
    most: int  # of one owner

    async def add(self, job: CronJob) -> CronJob:
        """Raises Invalid for a schedule, a time zone or a webhook that is none; NotFound, InvalidState."""
        if job.spec.webhook:
            require = await self.webhooks.rules()
            require(job.spec.webhook)
        assistant = await self.assistants.resolve(job.spec.assistant_id, job.owner)
        spec = replace(job.spec, assistant_id=assistant.id, graph=assistant.graph)
        job = counted(replace(job, spec=spec), now=self.clock())
        if job.thread_id is not None:
            await self.runs.store.get(job.thread_id, job.owner)
        await self.crons.add(job, most=self.most)
        return job

    async def find(self, owner: Owner, wanted: CronSearch) -> tuple[list[CronJob], int]:
        """A page of those that are wanted, and how many there are in all."""
        found = await self.crons.find(owner, wanted)
        return wanted.page(found), len(found)

    async def revise(self, cron_id: str, owner: Owner, change: Callable[[CronJob], CronJob]) -> CronJob:
        """Change a cron. Its next time is counted from now on."""
        require = await self.webhooks.rules()

        def revised(before: CronJob) -> CronJob:
            after = change(before)
            if after.spec.webhook:
                require(after.spec.webhook)
            now = self.clock()
            return counted(replace(after, updated_at=now), now=now)

        return await self.crons.revise(cron_id, owner, revised)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Inside the block the runs of due crons are started."""
        jobs = _DueCrons(crons=self.crons, clock=self.clock)
        loop = LeasedLoop(
            jobs,
            self._work,
            name="crons",
            about=_about,
            lease=LEASE,
            concurrency=CONCURRENCY,
            poll_seconds=POLL_SECONDS,
        )
        return loop.running()

    async def _work(self, job: CronJob) -> None:
        """Start the run of a due cron, then move the cron on to its next time.

        Starting the run again changes nothing, so a kill in between neither skips a time nor doubles it.
        """
        try:
            if is_time(job, now=self.clock()):
                await self._start(job)
        except AlreadyDone:
            pass  # by a worker that was killed right after it
        except (Unavailable, LostLease):
            raise
        except ClewError as exc:
            logger.warning("a cron skips this time: %s", exc, extra={**_about(job), "code": exc.code})
        except Exception:
            # The run of its next time may start.
            logger.exception("a cron skips this time", extra=_about(job))
        failpoint("cron_begun_before_advance")
        await self.crons.release(job, _moved_on(job, now=self.clock()))

    async def _start(self, job: CronJob) -> None:
        # The same ids in every process that tries to start this time of this cron.
        run_id = str(uuid5(UUID(job.id), f"{job.next_at:%Y-%m-%dT%H:%MZ}"))
        thread_id = job.thread_id or str(uuid5(UUID(run_id), "thread"))
        if await self._is_started(thread_id, run_id):
            return
        assistant = await self.assistants.resolve(job.spec.assistant_id, job.owner)
        request = RunRequest(
            spec=furnished(_spec(job, run_id, assistant.graph), assistant),
            input=job.input,
            message=self.said(job.input),
            user_id=job.owner.user_id if job.spec.user is None else str(job.spec.user["identity"]),
            asked_at=self.clock(),
            creates_thread=job.thread_id is None,
            cron_id=job.id,
            once=True,
        )
        await self.runs.start(thread_id, job.owner, request)

    async def _is_started(self, thread_id: str, run_id: str) -> bool:
        """A run that cancels others must not meet itself."""
        try:
            await self.runs.get(await self.runs.store.get(thread_id), run_id)
        except NotFound:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _DueCrons:
    """The crons that are due now as leased jobs."""

    crons: Crons
    clock: Clock

    async def are_due(self) -> bool:
        return await self.crons.are_due(now=self.clock())

    async def claim(self, *, lease: timedelta, limit: int, alive: Collection[CronJob]) -> Sequence[CronJob]:
        known = {job.id for job in alive}
        claimed = await self.crons.claim(now=self.clock(), lease=lease, limit=limit)
        return [job for job in claimed if job.id not in known]

    async def heartbeat(self, job: CronJob, *, lease: timedelta) -> None:
        await self.crons.heartbeat(job, lease=lease)

    async def snooze(self, job: CronJob, *, wait: timedelta) -> None:
        await self.crons.snooze(job, wait=wait)


def _spec(job: CronJob, run_id: str, graph: str) -> RunSpec:
    """The job's RunSpec for one run, with the id of the job, which graphs may read."""
    config = job.spec.config
    configurable = config.get("configurable")
    named = {**(configurable if isinstance(configurable, dict) else {}), "cron_id": job.id}
    return replace(
        job.spec,
        run_id=run_id,
        graph=graph,
        config={**config, "configurable": named},
        is_temporary=job.thread_id is None and not job.keeps,
    )


def _moved_on(job: CronJob, *, now: datetime) -> CronJob:
    try:
        return counted(job, now=now)
    except Invalid:  # its time zone does not exist any more
        return replace(job, next_at=None, counted_at=now)


def _about(job: CronJob) -> dict[str, str]:
    return {"cron_id": job.id, "graph": job.spec.graph, "tenant": job.owner.tenant}
