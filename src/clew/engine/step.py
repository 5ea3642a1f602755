"""Step: runs a leased thread from the end of its log until its round ends or waits. Retries live here."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from clew.domain import lifecycle
from clew.domain.documents import clean_text
from clew.domain.errors import (
    ClewError,
    Drained,
    InvalidState,
    LostLease,
    NotFound,
    Permanent,
    RetriesExhausted,
    Transient,
    Unavailable,
)
from clew.domain.events import (
    AssistantMessage,
    Body,
    Event,
    Log,
    Resolution,
    RoundFinished,
    RoundStarted,
    StageChanged,
    StageCompleted,
    Suspension,
)
from clew.domain.lifecycle import Change
from clew.domain.records import FIRST_FENCE, Lease
from clew.domain.recovery import failed_attempts, woken_by
from clew.domain.retry import ErrorClass, GiveUp, Retry, RetryPolicy, decide
from clew.domain.thread import Status, Thread
from clew.engine.outages import Outages
from clew.engine.outcomes import Completed, Failed, Outcome, Rest, Retrying, StoreAway, Suspended, ended
from clew.engine.recorder import Recorder
from clew.engine.run_context import LocalRunContext, RunStores
from clew.failpoints import failpoint
from clew.ports.clock import Clock
from clew.ports.graphs import Closing, GraphDriver
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.telemetry import Metrics, shared_metrics
from clew.telemetry.spans import RECOVERED

logger = logging.getLogger(__name__)

# How long to wait at most before an unavailable store is asked again.
LONGEST_WAIT = 2.0


@dataclass(slots=True, kw_only=True)
class RoundAttempts:
    """What the attempts of one run at its round share."""

    log: Sequence[Event]
    recorder: Recorder
    run: LocalRunContext
    fence: int
    is_new: bool
    # How many attempts failed, those of earlier runs included.
    failed: int
    # On the event loop's clock.
    deadline: float | None
    outages: Outages = field(default_factory=Outages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Called with the lease of a thread. Each outcome of its run is recorded by a method of its own."""

    store: Store
    memory: RunStores
    graph_driver: GraphDriver
    notifier: Notifier
    clock: Clock
    new_id: Callable[[], str]
    classify: Callable[[Exception], Transient | Permanent]
    policy: Callable[[Thread], RetryPolicy]
    # A thread whose process died this often while it ran is the likely cause: it fails, so that the others can run.
    max_recoveries: int = 5
    # Whether only the newest state of a graph is kept once its round has ended.
    prunes: bool = False
    # How long a round may run, waiting for people aside.
    limit: timedelta | None = None
    # By the name of a graph: the last events of its rounds.
    closings: Mapping[str, Closing] = field(default_factory=dict)
    # Set by the runner when its process ends: then nothing is tried again here.
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    metrics: Metrics = field(default_factory=shared_metrics)

    async def __call__(self, lease: Lease, opening: Change | None = None) -> None:
        """`opening` is the change that began the thread's round. Nothing is read that it holds.

        Raises Unavailable when the store is away; whatever else goes wrong ends in the log."""
        recorder: Recorder | None = None
        try:
            thread = opening.thread if opening else await self.store.get(lease.thread_id)
            log = opening.begun if opening else await self._round(thread)
            recorder = self._recorder(thread, lease)
            if thread.status is Status.RUNNING:
                began = asyncio.get_running_loop().time()
                what = "run recovered" if lease.recoveries else "run started"
                logger.info(what, extra={"thread_id": thread.id, "graph": thread.graph})
                outcome = await self._rest(log, recorder, lease)
                await self._record_outcome(outcome, recorder)
                self._log_end(outcome, recorder.thread, asyncio.get_running_loop().time() - began)
        except (LostLease, NotFound) as exc:
            # Another process stopped, deleted or took over the thread during the run: its commit counts.
            logger.info(
                "run ended by another process", extra={"thread_id": lease.thread_id, "code": exc.code}
            )
            await self.count_lost(lease)
        except Unavailable:
            raise
        except Exception as exc:
            # An error of ours, or the graph returned what cannot be stored. A thread that no process can run
            # would be tried for ever, so it fails for a reason that can be read.
            logger.exception("run cannot go on", extra={"thread_id": lease.thread_id})
            await self.fail(lease, f"internal: {self.classify(exc)}")
        finally:
            self.memory.drafts.pop(lease.thread_id, None)
            if recorder is not None:
                recorder.leave()

    async def count_lost(self, lease: Lease) -> None:
        """Counts a lease as lost if another runner holds the thread now; a stopped or deleted thread has no runner."""
        with contextlib.suppress(ClewError):
            if (await self.store.get(lease.thread_id)).status is Status.RUNNING:
                self.metrics.lost_leases.inc()

    async def fail(self, lease: Lease, reason: str) -> None:
        """End the round as failed, for a reason that the run itself could not record. A round of another runner stays."""
        try:
            thread = await self.store.get(lease.thread_id)
            if thread.status is Status.RUNNING:
                recorder = self._recorder(thread, lease)
                end = _finished(Status.FAILED, reason)
                await recorder.record(*await self._closing_if_possible(recorder, end), end)
        except (LostLease, NotFound, InvalidState) as exc:
            logger.info(
                "run ended by another process", extra={"thread_id": lease.thread_id, "code": exc.code}
            )

    async def _rest(self, log: Sequence[Event], recorder: Recorder, lease: Lease) -> Rest:
        """Run, and run again after what another attempt can cure."""
        if lease.recoveries > self.max_recoveries:
            return Failed(
                reason=f"given up after {self.max_recoveries} recoveries: each time the process died while it ran"
            )
        if lease.recoveries > 0:
            await recorder.record(_recovered(lease.recoveries))
        work = self._attempts(log, recorder, lease)
        rest: Rest | None = None
        while rest is None:
            outcome = await self._attempt(work)
            match outcome:
                case Retrying():
                    rest = await self._retry(work, outcome)
                case StoreAway():
                    rest = await self._wait_for_store(work, outcome)
                case Suspended() | Completed() | Failed() | Drained():
                    rest = outcome
        return rest

    def _attempts(self, log: Sequence[Event], recorder: Recorder, lease: Lease) -> RoundAttempts:
        scope = woken_by(recorder.thread, log)
        return RoundAttempts(
            log=log,
            recorder=recorder,
            run=LocalRunContext(
                log, recorder, self.memory, fence=lease.fence, stamp=self._stamp, scope=scope
            ),
            fence=lease.fence,
            # A copy was never run either, but what it is answered was asked before.
            is_new=lease.fence == FIRST_FENCE and not any(isinstance(e.body, Resolution) for e in log),
            failed=failed_attempts(log),
            deadline=self._deadline(log),
        )

    async def _attempt(self, work: RoundAttempts) -> Outcome:
        """One attempt; every way it can end has a name, but for a lost lease."""
        patience = asyncio.timeout_at(work.deadline)
        try:
            async with patience:
                return await self._perform(work)
        except Drained:
            return Drained()
        except Exception as exc:
            work.is_new = False
            if work.recorder.refusal is not None:
                raise work.recorder.refusal from exc
            if patience.expired() and self.limit is not None:
                return Failed(reason=f"timeout: the round ran longer than {self.limit.total_seconds():g} s")
            return self._failure(work, exc)

    async def _perform(self, work: RoundAttempts) -> Suspended | Completed | Failed:
        run = work.run
        # A tool that was left alone by what failed beside it in an earlier attempt may still be at work.
        await run.idle()
        run.asked.clear()
        questions: dict[str, Suspension] = {}
        last: list[Body] = []
        bodies = self.graph_driver.run(work.log, run, fence=work.fence, is_new=work.is_new)
        async with aclosing(bodies):
            async for body in bodies:
                match body:
                    case Suspension():
                        questions[body.call_id] = body
                    case AssistantMessage(marker="last"):
                        # Its reader may send the next message at once, so the round must have ended by then.
                        last.append(body)
                    case StageChanged() | StageCompleted():
                        run.note(body)  # nothing is built on these, so the graph need not wait for the disk
                    case _:
                        await run.record(body)
        await run.idle()
        if questions or run.asked:
            return Suspended(list((questions | run.wanted()).values()))
        return ended(work.log, last)

    def _failure(self, work: RoundAttempts, exc: Exception) -> Failed | Retrying | StoreAway:
        cause = _of_the_store(exc)
        if isinstance(cause, LostLease):
            raise cause from exc
        if cause is not None:
            return StoreAway(cause)
        work.failed += 1
        failure = self.classify(exc)
        decision = self._decide(failure, work.recorder.thread, work.failed)
        name = ErrorClass.named(failure.error_class)
        logger.warning(
            "run failed",
            extra={
                "thread_id": work.recorder.thread.id,
                "attempt": work.failed,
                "error_class": name,
                **_answered(failure),
            },
            exc_info=exc,
        )
        if isinstance(decision, Retry):
            return Retrying(attempt=work.failed, error_class=name, seconds=decision.seconds)
        # What was retried and given up below has said so already.
        is_told = isinstance(failure, RetriesExhausted)
        reason = str(failure) if is_told else f"{decision.reason}: {failure}"
        return Failed(reason=reason, error=failure.detail or str(failure))

    async def _retry(self, work: RoundAttempts, outcome: Retrying) -> Drained | None:
        """Wait before the next attempt; None if there is one."""
        name = outcome.error_class
        self.metrics.retries.labels(name).inc()
        text = f"Attempt {outcome.attempt} failed ({name}), trying again in {outcome.seconds:.1f} s"
        await work.recorder.record(Log(message=text, level="warning", attempt=outcome.attempt))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(outcome.seconds):
                await self.ending.wait()
                return Drained()
        work.log = await self._round(work.recorder.thread)
        return None

    async def _wait_for_store(self, work: RoundAttempts, outcome: StoreAway) -> Failed | None:
        """Not the graph's failure, so it costs no attempt; but what never gets through ends as well."""
        began = asyncio.get_running_loop().time()
        work.log, stored = await self._when_it_is_back(work.recorder.thread, work.outages.pause)
        work.outages.met(stored, at=began)
        if work.outages.are_too_long(now=asyncio.get_running_loop().time()):
            return Failed(reason=f"internal: {outcome.cause}")
        return None

    async def _when_it_is_back(self, thread: Thread, wait: float) -> tuple[Sequence[Event], object]:
        """The round as it stands, as soon as the store answers; and something that differs once more is stored."""
        while True:
            await asyncio.sleep(wait)
            try:
                log = await self._round(await self.store.get(thread.id))
                return log, (await self.graph_driver.checkpoint(thread.id), sum(map(_is_told_once, log)))
            except Unavailable:
                wait = min(2 * wait, LONGEST_WAIT)

    async def _record_outcome(self, outcome: Rest, recorder: Recorder) -> None:
        match outcome:
            case Suspended():
                await self._suspend(outcome, recorder)
            case Completed():
                await self._complete(outcome, recorder)
            case Failed():
                await self._fail(outcome, recorder)
            case Drained():
                pass  # another process goes on from here

    def _log_end(self, outcome: Rest, thread: Thread, seconds: float) -> None:
        """A blocked thread has come to rest, too: its next run starts with the answer."""
        what = "run handed over" if isinstance(outcome, Drained) else "run ended"
        extra = {
            "thread_id": thread.id,
            "graph": thread.graph,
            "status": thread.status,
            "seconds": round(seconds, 3),
        }
        logger.info(what, extra=extra)

    async def _suspend(self, outcome: Suspended, recorder: Recorder) -> None:
        await recorder.record(*outcome.questions)
        failpoint("interrupt_logged")

    async def _complete(self, outcome: Completed, recorder: Recorder) -> None:
        await self._finish(recorder, outcome.messages, _finished(Status.COMPLETED))

    async def _fail(self, outcome: Failed, recorder: Recorder) -> None:
        end = _finished(Status.FAILED, outcome.reason, outcome.error)
        await self._finish(recorder, outcome.messages, end)

    async def _finish(self, recorder: Recorder, messages: Sequence[Body], end: RoundFinished) -> None:
        closing = await self._closing(recorder, end)
        await recorder.record(*messages, *closing, end)
        failpoint("interrupt_logged")
        if self.prunes and recorder.thread.status.is_terminal:
            await self.graph_driver.prune(recorder.thread.id)

    async def _closing(self, recorder: Recorder, end: RoundFinished) -> Sequence[Body]:
        """The events that the graph adds at the end of a round."""
        close = self.closings.get(recorder.thread.graph)
        if close is None:
            return ()
        await recorder.flush()
        return close(recorder.thread, await self._round(recorder.thread), end.status, end.reason)

    async def _closing_if_possible(self, recorder: Recorder, end: RoundFinished) -> Sequence[Body]:
        """The same for a round that fails for what may keep its graph from closing it, too: then it just ends."""
        try:
            return await self._closing(recorder, end)
        except (LostLease, NotFound, Unavailable):
            raise
        except Exception:
            logger.exception("a round was not closed by its graph", extra={"thread_id": recorder.thread.id})
            return ()

    def _deadline(self, log: Sequence[Event]) -> float | None:
        if self.limit is None:
            return None
        return asyncio.get_running_loop().time() + (self.limit - time_spent(log)).total_seconds()

    def _decide(self, failure: Transient | Permanent, thread: Thread, failed: int) -> Retry | GiveUp:
        return decide(
            self.policy(thread),
            ErrorClass.named(failure.error_class),
            failed,
            jitter=random.uniform(0, 0.5),  # noqa: S311 - spreads retries, no secret
            retry_after=failure.retry_after if isinstance(failure, Transient) else None,
            is_passing=isinstance(failure, Transient),
        )

    async def _round(self, thread: Thread) -> Sequence[Event]:
        """The events of the current round, as far as the thread knows them."""
        first = thread.round_seq - 1
        return await self.store.read(thread.id, after=first, limit=thread.last_seq - first)

    def _recorder(self, thread: Thread, lease: Lease) -> Recorder:
        return Recorder(
            thread, fence=lease.fence, store=self.store, notifier=self.notifier, stamp=self._stamp
        )

    def _stamp(self) -> lifecycle.Stamp:
        return lifecycle.Stamp(self.clock(), self.new_id)


def _answered(failure: Transient | Permanent) -> dict[str, object]:
    """A provider's answer as its status and its error name; its text is not logged."""
    answered = failure.answered
    if answered is None or answered.status is None:
        return {}
    return {"status_code": answered.status, "code": answered.code}


def _of_the_store(exc: Exception) -> Unavailable | LostLease | None:
    """The store's own failure, if it is the cause of what a graph raised."""
    cause: BaseException | None = exc
    for _ in range(10):
        if cause is None or isinstance(cause, Unavailable | LostLease):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _is_told_once(event: Event) -> bool:
    """Not what every attempt says again when it begins."""
    return not isinstance(event.body, StageChanged | Log)


def time_spent(log: Sequence[Event]) -> timedelta:
    """How long the round has run: without the time it waited for answers, and without the time it had no runner."""
    spent = timedelta()
    since: datetime | None = None
    last: datetime | None = None
    asked: set[str] = set()
    for event in log:
        match event.body:
            case RoundStarted():
                spent, since = timedelta(), event.at
            case Suspension(call_id=call_id):
                spent += event.at - since if since else timedelta()
                since = None
                asked.add(call_id)
            case Resolution(call_id=call_id):
                asked.discard(call_id)
                since = since if asked else event.at
            case Log(ref=ref) if since and last and ref.startswith(RECOVERED):
                since += event.at - last
            case _:
                pass
        last = event.at
    return spent + (log[-1].at - since if since else timedelta())


def _finished(status: Status, reason: str = "", error: str = "") -> RoundFinished:
    """An exception may quote anything; what no database can hold must not cost the reason."""
    return RoundFinished(status=status, reason=clean_text(reason), error=clean_text(error))


def _recovered(number: int) -> Log:
    return Log(
        message="The server was interrupted; the round continues where it was.",
        level="warning",
        ref=f"{RECOVERED}{number}",
    )
