"""Run hooks: when a run has ended, its webhook is called and its temporary thread is deleted."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from datetime import timedelta

from clew.domain.errors import NotFound, Permanent, Transient
from clew.domain.records import RunHook
from clew.domain.redaction import without
from clew.domain.retry import ErrorClass, Retry, RetryPolicy, decide
from clew.domain.runs import Run
from clew.domain.thread import Json, Thread
from clew.engine.leased_loop import LeasedLoop
from clew.engine.redaction import redacted_texts
from clew.engine.runs import Runs
from clew.failpoints import failpoint
from clew.ports.clock import Clock
from clew.ports.run_hooks import PER_TENANT, RunHookStore, Webhooks
from clew.telemetry import shared_metrics

logger = logging.getLogger(__name__)

# More than one tenant may have, so that a tenant whose receivers hang delays no other.
CONCURRENCY = PER_TENANT + 16
LEASE = timedelta(minutes=1)
# A run that is queued or running is checked again after so long.
SOON = timedelta(seconds=1)
# About a quarter of an hour in all, which covers a receiver that is being redeployed.
PATIENCE = RetryPolicy(max_retries=10, max_delay=300)


class RunHooks:
    def __init__(
        self,
        *,
        hooks: RunHookStore,
        runs: Runs,
        webhooks: Webhooks,
        report: Callable[[Run, Json], bytes],
        clock: Clock,
        poll_seconds: float,
    ) -> None:
        self._hooks = hooks
        self._runs = runs
        self._webhooks = webhooks
        self._report = report
        self._clock = clock
        self._loop = LeasedLoop(
            hooks,
            self._work,
            name="run hooks",
            about=_about,
            lease=LEASE,
            concurrency=CONCURRENCY,
            poll_seconds=poll_seconds,
            grace_seconds=0.0,  # other processes, or the next one, continue
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Inside the block the hooks of ended runs are worked on."""
        return self._loop.running()

    async def _work(self, hook: RunHook) -> None:
        try:
            thread = await self._runs.store.get(hook.thread_id)
            run = await self._runs.get(thread, hook.run_id)
        except NotFound:
            # The run or its thread was deleted, or a kill came before the run of a new thread was queued.
            await self._end(hook)
            return
        if not run.status.is_over:
            await self._hooks.snooze(hook, wait=SOON)
            return
        if hook.webhook:
            told = await self._post(hook, thread, run)
            if told is None:
                return
            hook = told
        grace = self._runs.temporary_grace
        remaining = run.updated_at + grace - self._clock()
        if hook.is_temporary and remaining > timedelta():
            # At most the whole grace, in case the clock was set back.
            await self._hooks.snooze(hook, wait=min(remaining, grace))
        else:
            await self._end(hook)

    async def _post(self, hook: RunHook, thread: Thread, run: Run) -> RunHook | None:
        """The hook without a webhook, or None if the call failed and the hook was snoozed or given up."""
        body = self._report(run, await self._values(thread, run))
        attempts = hook.attempts + 1
        failpoint("webhook_before_send")
        try:
            await self._webhooks.post(hook.webhook, body, message_id=hook.run_id)
        except (Transient, Permanent) as exc:
            extra = {**_about(hook), "attempt": attempts, "error_class": exc.error_class}
            verdict = decide(
                PATIENCE,
                ErrorClass.named(exc.error_class),
                attempts,
                retry_after=exc.retry_after if isinstance(exc, Transient) else None,
                is_passing=isinstance(exc, Transient),
            )
            if isinstance(verdict, Retry):
                logger.info("a webhook is retried: %s", exc, extra=extra)
                shared_metrics().retries.labels(ErrorClass.named(exc.error_class)).inc()
                wait = timedelta(seconds=verdict.seconds)
                await self._hooks.snooze(replace(hook, attempts=attempts), wait=wait)
                return None
            logger.warning("a webhook is given up: %s", exc, extra=extra)
            # A temporary thread is deleted all the same, and what is known of its webhook with it.
            if not hook.is_temporary:
                await self._hooks.give_up(replace(hook, attempts=attempts), reason=str(exc))
                return None
        failpoint("webhook_after_send")
        return replace(hook, webhook="")

    async def _values(self, thread: Thread, run: Run) -> Json:
        """The thread's state at the end of this run, whatever came after it."""
        found = await self._runs.graph_driver.history(thread, limit=1, metadata={"run_id": run.id})
        if not found or "error" in found[0]:
            return None
        return without(found[0]["values"], await redacted_texts(self._runs.store, thread))

    async def _end(self, hook: RunHook) -> None:
        if hook.is_temporary:
            with suppress(NotFound):  # it was deleted already
                await self._runs.commands.delete(hook.thread_id, None)
        await self._hooks.discard(hook)


def _about(hook: RunHook) -> dict[str, str]:
    return {"thread_id": hook.thread_id, "run_id": hook.run_id}
