"""One turn of the wheel: take a thread from the end of its log until it ends or waits. Retries live here."""

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
from clew.domain.ledger import GATE, is_yes
from clew.domain.lifecycle import Change
from clew.domain.records import FIRST_FENCE, Lease
from clew.domain.recovery import Nothing, Wait, failed_attempts, owed, woken_by
from clew.domain.retry import ErrorClass, GiveUp, Retry, RetryPolicy, decide
from clew.domain.thread import Executor, Status, Thread
from clew.engine.outages import Outages
from clew.engine.recorder import Recorder
from clew.engine.run_context import LocalRunContext, RunStores
from clew.failpoints import failpoint
from clew.ports.clock import Clock
from clew.ports.graphs import Closing, GraphDriver
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.telemetry import Metrics, shared_metrics

logger = logging.getLogger(__name__)

# How long to wait at most before a store that is away is asked again.
LONGEST_WAIT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    store: Store
    memory: RunStores
    graph_driver: GraphDriver
    notifier: Notifier
    clock: Clock
    new_id: Callable[[], str]
    classify: Callable[[Exception], Transient | Permanent]
    policy: Callable[[Thread], RetryPolicy]
    # A thread whose process died under it this often is the likely cause: it is parked, and the others live.
    max_recoveries: int = 5
    # Whether only the newest state of a graph is kept once its round has ended.
    prunes: bool = False
    # How long a round may run, waiting for people aside.
    limit: timedelta | None = None
    # What a round of a graph is closed with, by the graph's name.
    closings: Mapping[str, Closing] = field(default_factory=dict)
    # Set by the runner when its process ends: then nothing is tried again here.
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    metrics: Metrics = field(default_factory=shared_metrics)

    async def __call__(self, lease: Lease, opening: Change | None = None) -> None:
        """`opening` is all there is of a thread that was just opened, which is then not read.

        Raises Unavailable when the store is away; whatever else goes wrong ends in the log."""
        recorder: Recorder | None = None
        try:
            thread = opening.thread if opening else await self.store.get(lease.thread_id)
            log = opening.events if opening else await self._round(thread)
            recorder = self._recorder(thread, lease)
            await self._to_its_rest(log, recorder, lease)
        except Drained:
            logger.info("run drained", extra={"thread_id": lease.thread_id})
        except (LostLease, NotFound) as exc:
            # Someone stopped, deleted or took over the thread while we worked: their word stands.
            logger.info("run ended by another", extra={"thread_id": lease.thread_id, "code": exc.code})
            await self.count_lost(lease)
        except Unavailable:
            raise
        except Exception as exc:
            # The graph is not to blame for this, or it said what cannot be kept. A thread that nobody could run
            # would be tried for ever, so it fails for a reason that can be read.
            logger.exception("run cannot go on", extra={"thread_id": lease.thread_id})
            await self.fail(lease, f"internal: {self.classify(exc)}")
        finally:
            self.memory.drafts.pop(lease.thread_id, None)
            if recorder is not None:
                recorder.leave()

    async def count_lost(self, lease: Lease) -> None:
        """A thread that still runs is another runner's now; one that was stopped or deleted is nobody's."""
        with contextlib.suppress(ClewError):
            if (await self.store.get(lease.thread_id)).status is Status.RUNNING:
                self.metrics.lost_leases.inc()

    async def fail(self, lease: Lease, reason: str) -> None:
        """End the round as failed, whatever the run itself could not say. One that is not ours is left alone."""
        try:
            thread = await self.store.get(lease.thread_id)
            if thread.status is Status.RUNNING:
                recorder = self._recorder(thread, lease)
                await recorder.record(*await self._closed_if_possible(reason, recorder))
        except (LostLease, NotFound, InvalidState) as exc:
            logger.info("run ended by another", extra={"thread_id": lease.thread_id, "code": exc.code})

    async def _to_its_rest(self, log: Sequence[Event], recorder: Recorder, lease: Lease) -> None:
        thread = recorder.thread
        if isinstance(owed(thread, log), Nothing | Wait):
            return
        run = LocalRunContext(
            log, recorder, self.memory, fence=lease.fence, stamp=self._stamp, scope=woken_by(thread, log)
        )
        if lease.recoveries > self.max_recoveries:
            reason = (
                f"given up after {self.max_recoveries} recoveries: each time the process died while it ran"
            )
            rest: Sequence[Body] = [_finished(Status.FAILED, reason)]
        else:
            rest = await self._until_it_rests(log, recorder, run, lease.fence)
        await recorder.record(*await self._closed(rest, recorder))
        failpoint("interrupt_logged")
        if self.prunes and recorder.thread.status.is_terminal:
            await self.graph_driver.prune(thread.id)

    async def _until_it_rests(
        self, log: Sequence[Event], recorder: Recorder, run: LocalRunContext, fence: int
    ) -> Sequence[Body]:
        """Run, and run again after what a retry can cure; returns the events with which the thread comes to rest."""
        failed = failed_attempts(log)
        outages = Outages()
        deadline = self._deadline(log)
        # A copy was never run either, but what it is answered was asked before.
        is_new = fence == FIRST_FENCE and not any(isinstance(event.body, Resolution) for event in log)
        while True:
            patience = asyncio.timeout_at(deadline)
            try:
                async with patience:
                    return await self._attempt(log, run, fence, is_new=is_new)
            except Drained:
                raise
            except Exception as exc:
                is_new = False
                if recorder.refusal is not None:
                    raise recorder.refusal from exc
                if patience.expired() and self.limit is not None:
                    reason = f"timeout: the round ran longer than {self.limit.total_seconds():g} s"
                    return [_finished(Status.FAILED, reason)]
                if (cause := _of_the_store(exc)) is not None:
                    if isinstance(cause, LostLease):
                        raise cause from exc
                    # Not the graph's failure, so it costs no attempt; but what never gets through ends as well.
                    began = asyncio.get_running_loop().time()
                    log, stored = await self._when_it_is_back(recorder.thread, outages.pause)
                    outages.met(stored, at=began)
                    if outages.are_too_long(now=asyncio.get_running_loop().time()):
                        return [_finished(Status.FAILED, f"internal: {cause}")]
                    continue
                failed += 1
                failure = self.classify(exc)
                decision = self._decide(failure, recorder.thread, failed)
                name = ErrorClass.named(failure.error_class)
                logger.warning(
                    "run failed",
                    extra={
                        "thread_id": recorder.thread.id,
                        "attempt": failed,
                        "error_class": name,
                        **_answered(failure),
                    },
                    exc_info=exc,
                )
                if not isinstance(decision, Retry):
                    # What was retried and given up below has said so already.
                    reason = (
                        str(failure)
                        if isinstance(failure, RetriesExhausted)
                        else f"{decision.reason}: {failure}"
                    )
                    return [_finished(Status.FAILED, reason, error=failure.detail or str(failure))]
                self.metrics.retries.labels(name).inc()
                text = f"Attempt {failed} failed ({name}), trying again in {decision.seconds:.1f} s"
                await recorder.record(Log(message=text, level="warning", attempt=failed))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(decision.seconds):
                        await self.ending.wait()
                        raise Drained from None
            log = await self._round(recorder.thread)

    async def _when_it_is_back(self, thread: Thread, wait: float) -> tuple[Sequence[Event], object]:
        """The round as it stands, as soon as the store answers; and something that differs once more is stored."""
        while True:
            await asyncio.sleep(wait)
            try:
                log = await self._round(await self.store.get(thread.id))
                return log, (await self.graph_driver.checkpoint(thread.id), sum(map(_is_told_once, log)))
            except Unavailable:
                wait = min(2 * wait, LONGEST_WAIT)

    async def _attempt(
        self, log: Sequence[Event], run: LocalRunContext, fence: int, *, is_new: bool
    ) -> Sequence[Body]:
        # A tool that was left alone by what failed beside it in an earlier attempt may still be at work.
        await run.idle()
        run.asked.clear()
        questions: dict[str, Suspension] = {}
        last: list[Body] = []
        async with aclosing(self.graph_driver.run(log, run, fence=fence, is_new=is_new)) as bodies:
            async for body in bodies:
                match body:
                    case Suspension():
                        questions[body.call_id] = body
                    case AssistantMessage(marker="last"):
                        # Whoever reads it may say something new at once, so the round must have ended by then.
                        last.append(body)
                    case StageChanged() | StageCompleted():
                        run.note(body)  # nothing is built on these, so the graph need not wait for the disk
                    case _:
                        await run.record(body)
        await run.idle()
        if questions or run.asked:
            return list((questions | run.wanted()).values())
        return [*last, _verdict(log)]

    async def _closed(self, rest: Sequence[Body], recorder: Recorder) -> Sequence[Body]:
        """With what its graph has to say to the end of a round, where it is one."""
        end = rest[-1]
        close = self.closings.get(recorder.thread.graph)
        if close is None or not isinstance(end, RoundFinished):
            return rest
        await recorder.flush()
        log = await self._round(recorder.thread)
        return [*rest[:-1], *close(recorder.thread, log, end.status, end.reason), end]

    async def _closed_if_possible(self, reason: str, recorder: Recorder) -> Sequence[Body]:
        """The same for a round that fails for what may keep its graph from closing it, too: then it just ends."""
        plain = [_finished(Status.FAILED, reason)]
        try:
            return await self._closed(plain, recorder)
        except (LostLease, NotFound, Unavailable):
            raise
        except Exception:
            logger.exception("a round was not closed by its graph", extra={"thread_id": recorder.thread.id})
            return plain

    def _deadline(self, log: Sequence[Event]) -> float | None:
        if self.limit is None:
            return None
        return asyncio.get_running_loop().time() + (self.limit - _spent(log)).total_seconds()

    def _decide(self, failure: Transient | Permanent, thread: Thread, failed: int) -> Retry | GiveUp:
        return decide(
            self.policy(thread),
            ErrorClass.named(failure.error_class),
            failed,
            jitter=random.uniform(0, 0.5),  # noqa: S311 - spreads a crowd, guards nothing
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
    """What a provider answered, by its number and its name; its words are not for a log."""
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


def _spent(log: Sequence[Event]) -> timedelta:
    """How long the round has run: without the time it waited for somebody, and without the time nobody ran it."""
    spent = timedelta()
    since: datetime | None = None
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
            case _:
                pass
    return spent + (log[-1].at - since if since else timedelta())


def _verdict(log: Sequence[Event]) -> RoundFinished:
    """A graph that ended after a person said no has failed, for that person's reason.

    Unless the round is a run: then what an answer means is between the graph and whoever gives it.
    """
    has_spec = any(
        isinstance(event.body, RoundStarted | Resolution) and event.body.spec is not None for event in log
    )
    human = {
        event.body.call_id
        for event in log
        if isinstance(event.body, Suspension) and event.body.executor is Executor.HUMAN
    }
    for event in reversed(log):
        match event.body:
            case Resolution(call_id=call_id, answer=answer) if call_id in human:
                said = answer if isinstance(answer, dict) else {}
                is_no_or_yes = not has_spec and isinstance(said.get("approved"), bool)
                if call_id.startswith(GATE) or is_no_or_yes:
                    if is_yes(answer):
                        break
                    return _finished(Status.FAILED, str(said.get("feedback") or "rejected"))
            case _:
                pass
    return _finished(Status.COMPLETED)


def _finished(status: Status, reason: str = "", error: str = "") -> RoundFinished:
    """An exception may quote anything; what no database can hold must not cost the reason."""
    return RoundFinished(status=status, reason=clean_text(reason), error=clean_text(error))
