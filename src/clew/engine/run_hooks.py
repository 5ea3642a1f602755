"""What is done when runs are over, in whichever process gets to it: whoever left an address is told, threads of runs
that have none of their own go."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

from clew.domain.errors import ClewError, Invalid, InvalidState, NotFound, Permanent, Transient
from clew.domain.records import RunHook, RunScope
from clew.domain.redaction import without
from clew.domain.retry import ErrorClass, Retry, RetryPolicy, decide
from clew.domain.runs import Run
from clew.domain.thread import Json, Owner, Thread
from clew.engine.redaction import redacted_texts
from clew.engine.runs import RunRequest, Runs
from clew.failpoints import failpoint
from clew.ports.clock import Clock
from clew.ports.run_hooks import RunHookStore, Webhooks
from clew.telemetry import shared_metrics

logger = logging.getLogger(__name__)

CONCURRENCY = 32
# Longer than anything we do for one: telling somebody has a deadline, and what is deleted twice is deleted.
LEASE = timedelta(minutes=1)
# A run that waits for its turn is looked at again after so long; one that nobody knows of, after this.
SOON = timedelta(seconds=1)
LATER = timedelta(seconds=5)
# A run that was not begun so long after it should have been never will.
UNBEGUN = timedelta(minutes=10)
# About a quarter of an hour in all, which covers a receiver that is deployed anew.
PATIENCE = RetryPolicy(max_retries=10, max_delay=300)


class RunHooks:
    def __init__(
        self,
        *,
        errands: RunHookStore,
        ordering: Runs,
        webhooks: Webhooks,
        report: Callable[[Run, Json], bytes],
        clock: Clock,
        grace: timedelta,
    ) -> None:
        self._errands = errands
        self._ordering = ordering
        self._webhooks = webhooks
        self._report = report
        self._clock = clock
        # So long does a thread outlive its run, for those who wait for the outcome.
        self._grace = grace
        self._visits: set[asyncio.Task[None]] = set()

    async def begin(self, thread_id: str, owner: Owner, wanted: RunRequest, scope: RunScope) -> Run:
        """Begin a run, or queue it, with what is to be done after it. Raises what Ordering.begin does, and Invalid."""
        spec = wanted.spec
        if not (spec.webhook or spec.is_temporary):
            return await self._ordering.begin(thread_id, owner, wanted, scope)
        if spec.webhook:
            require = await self._webhooks.rules()
            require(spec.webhook)
        errand = RunHook(
            run_id=spec.run_id,
            thread_id=thread_id,
            webhook=spec.webhook,
            is_temporary=spec.is_temporary,
            begins_at=self._clock() + wanted.after,
        )
        # Written first: a run that has begun may be over, and this process gone, at once.
        # Where there is nobody to tell, nothing is to be done for a while; most runs are over by then.
        wait = timedelta() if spec.webhook else self._grace * 1.1
        await self._errands.add(errand, wait=wanted.after + wait)
        try:
            return await self._ordering.begin(thread_id, owner, wanted, scope)
        except (NotFound, InvalidState, Invalid):
            await self._errands.done(spec.run_id)
            raise

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """At the end, what is under way is left to others."""
        try:
            yield
        finally:
            for visit in self._visits:
                visit.cancel()
            await asyncio.gather(*self._visits, return_exceptions=True)

    async def look(self) -> bool:
        """Begin with what is due; True if there may be more at once."""
        if len(self._visits) >= CONCURRENCY:
            await asyncio.wait(self._visits, return_when=asyncio.FIRST_COMPLETED)
        if not await self._errands.are_due():
            return False
        free = CONCURRENCY - sum(not visit.done() for visit in self._visits)
        due = await self._errands.claim(lease=LEASE, limit=free)
        for errand in due:
            visit = asyncio.create_task(self._visit(errand))
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)
        return len(due) == free

    async def _visit(self, errand: RunHook) -> None:
        try:
            await self.see_to(errand)
        except ClewError as exc:
            logger.warning("an errand is left for later", extra={**_about(errand), "code": exc.code})
        except Exception:
            logger.exception("an errand is left for later", extra=_about(errand))

    async def see_to(self, errand: RunHook) -> None:
        """Take it as far as it goes now. What is raised leaves it as it is, for when the lease has run out."""
        try:
            thread = await self._ordering.store.get(errand.thread_id)
            run = await self._ordering.get(thread, errand.run_id)
        except NotFound:
            if self._clock() < errand.begins_at + UNBEGUN:
                await self._errands.put_off(errand, wait=LATER)
            else:
                await self._end(errand)
            return
        if not run.status.is_over:
            await self._errands.put_off(errand, wait=SOON)
            return
        if errand.webhook:
            left = await self._tell(errand, thread, run)
            if left is None:
                return
            errand = left
        remaining = run.updated_at + self._grace - self._clock()
        if errand.is_temporary and remaining > timedelta():
            # Not longer than all of it, should the clock have been put back.
            await self._errands.put_off(errand, wait=min(remaining, self._grace))
        else:
            await self._end(errand)

    async def _tell(self, errand: RunHook, thread: Thread, run: Run) -> RunHook | None:
        """The errand without a webhook, or None if it is put off because nobody heard."""
        body = self._report(run, await self._values(thread, run))
        attempts = errand.attempts + 1
        failpoint("webhook_before_send")
        try:
            await self._webhooks.tell(errand.webhook, body)
        except (Transient, Permanent) as exc:
            extra = {**_about(errand), "attempt": attempts, "error_class": exc.error_class}
            verdict = decide(
                PATIENCE,
                ErrorClass.named(exc.error_class),
                attempts,
                retry_after=exc.retry_after if isinstance(exc, Transient) else None,
                is_passing=isinstance(exc, Transient),
            )
            if isinstance(verdict, Retry):
                logger.info("a webhook is tried again: %s", exc, extra=extra)
                shared_metrics().retries.labels(ErrorClass.named(exc.error_class)).inc()
                wait = timedelta(seconds=verdict.seconds)
                await self._errands.put_off(replace(errand, attempts=attempts), wait=wait)
                return None
            logger.warning("a webhook is given up: %s", exc, extra=extra)
        failpoint("webhook_after_send")
        return replace(errand, webhook="")

    async def _values(self, thread: Thread, run: Run) -> Json:
        """What the thread's state was when this run had ended, whatever came after it."""
        found = await self._ordering.graph_driver.history(thread, limit=1, metadata={"run_id": run.id})
        if not found or "error" in found[0]:
            return None
        return without(found[0]["values"], await redacted_texts(self._ordering.store, thread))

    async def _end(self, errand: RunHook) -> None:
        if errand.is_temporary:
            with suppress(NotFound):  # somebody else was faster, or the run never began
                await self._ordering.commands.delete(errand.thread_id, None)
        await self._errands.done(errand.run_id)


def _about(errand: RunHook) -> dict[str, str]:
    return {"thread_id": errand.thread_id, "run_id": errand.run_id}
