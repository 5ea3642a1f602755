"""Runs that are ordered again and again: kept for their owners, and begun when they are due, once in all processes."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from clew.domain.assistants import furnished
from clew.domain.cron_jobs import CronJob, CronSearch, counted, is_time
from clew.domain.errors import AlreadyDone, ClewError, Invalid, NotFound, Unavailable
from clew.domain.events import Content, RunSpec
from clew.domain.records import RunScope
from clew.domain.thread import Json, Owner
from clew.engine.assistants import AssistantCatalog
from clew.engine.run_hooks import RunHooks
from clew.engine.runs import RunRequest, Runs
from clew.failpoints import failpoint
from clew.ports.clock import Clock
from clew.ports.crons import Crons
from clew.ports.run_hooks import Webhooks

logger = logging.getLogger(__name__)

BATCH = 100
# Longer than it takes to begin so many.
LEASE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    crons: Crons
    ordering: Runs
    run_hooks: RunHooks
    roster: AssistantCatalog
    webhooks: Webhooks
    clock: Clock
    # What somebody says in an input of messages.
    said: Callable[[Json], Content | None]
    most: int  # of one owner

    async def add(self, job: CronJob) -> CronJob:
        """Raises Invalid for a schedule, a time zone or a webhook that is none; NotFound, NotAllowed."""
        if job.spec.webhook:
            require = await self.webhooks.rules()
            require(job.spec.webhook)
        assistant = await self.roster.resolve(job.spec.assistant_id, job.owner)
        spec = replace(job.spec, assistant_id=assistant.id, graph=assistant.graph)
        job = counted(replace(job, spec=spec), now=self.clock())
        if job.thread_id is not None:
            await self.ordering.store.get(job.thread_id, job.owner)
        await self.crons.add(job, most=self.most)
        return job

    async def find(self, owner: Owner, wanted: CronSearch) -> tuple[list[CronJob], int]:
        """A page of those that are wanted, and how many there are in all."""
        found = await self.crons.find(owner, wanted)
        return wanted.page(found), len(found)

    async def revise(self, cron_id: str, owner: Owner, change: Callable[[CronJob], CronJob]) -> CronJob:
        """Its next time is counted from now on."""
        require = await self.webhooks.rules()

        def revised(before: CronJob) -> CronJob:
            after = change(before)
            if after.spec.webhook:
                require(after.spec.webhook)
            now = self.clock()
            return counted(replace(after, updated_at=now), now=now)

        return await self.crons.revise(cron_id, owner, revised)

    async def begin_due(self) -> bool:
        """Begin what is due; True if there may be more.

        A job is moved on to its next time only after its run has begun, which happens once however often it is asked
        for: a kill in between neither loses a time nor doubles it.
        """
        now = self.clock()
        if not await self.crons.are_due(now=now):
            return False
        due = await self.crons.claim(now=now, lease=LEASE, limit=BATCH)
        for job in due:
            await self._take_turn(job, now)
        return len(due) == BATCH

    async def _take_turn(self, job: CronJob, now: datetime) -> None:
        extra = {"cron_id": job.id, "graph": job.spec.graph, "tenant": job.owner.tenant}
        try:
            if is_time(job, now=now):
                await self._begin(job)
        except AlreadyDone:
            pass  # by somebody who was killed right after it
        except Unavailable as exc:
            logger.warning("a cron is left for later", extra={**extra, "code": exc.code})
            return
        except ClewError as exc:
            logger.warning("a cron is left out this time: %s", exc, extra={**extra, "code": exc.code})
        except Exception:
            # Its next time may do better; the other crons are not to wait for that.
            logger.exception("a cron is left out this time", extra=extra)
        failpoint("cron_begun_before_advance")
        await self.crons.advance(job, _moved_on(job, now=self.clock()))

    async def _begin(self, job: CronJob) -> None:
        # The same for everybody who tries to begin this time of this job.
        run_id = str(uuid5(UUID(job.id), f"{job.next_at:%Y-%m-%dT%H:%MZ}"))
        thread_id = job.thread_id or str(uuid5(UUID(run_id), "thread"))
        if await self._is_begun(thread_id, run_id):
            return
        assistant = await self.roster.resolve(job.spec.assistant_id, job.owner)
        spec = furnished(_order(job, run_id, assistant.graph), assistant)
        wanted = RunRequest(
            spec=spec,
            input=job.input,
            message=self.said(job.input),
            makes_thread=job.thread_id is None,
            once=True,
        )
        scope = RunScope(user_id=job.owner.user_id, is_system=False)
        await self.run_hooks.begin(thread_id, job.owner, wanted, scope)

    async def _is_begun(self, thread_id: str, run_id: str) -> bool:
        """A run that cancels others must not meet itself."""
        try:
            await self.ordering.get(await self.ordering.store.get(thread_id), run_id)
        except NotFound:
            return False
        return True


def _order(job: CronJob, run_id: str, graph: str) -> RunSpec:
    """With the id of the job, which graphs may want to know."""
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
    except Invalid:  # its time zone is not there any more
        return replace(job, next_at=None, counted_at=now)
