"""Cleanup: deletes what is due in portions, one cleanup at a time in the whole cluster, each within a budget.

What exceeds the budget, or was interrupted by a kill, is continued in the background: see `chores`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, Literal

from clew.domain import lifecycle, retention
from clew.domain.errors import (
    ClewError,
    Conflict,
    Corrupt,
    InvalidState,
    LostLease,
    NotFound,
    StorageFull,
    Unavailable,
)
from clew.domain.retention import Candidate, CleanupJob, Gone, Orphan, Reason, Selection
from clew.domain.thread import Status
from clew.engine.leased_loop import LeasedLoop
from clew.engine.sweeper import Chore
from clew.ports.clock import Clock
from clew.ports.guards import Unseen
from clew.ports.retention import Cleanups, ClusterState, Space
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls

logger = logging.getLogger(__name__)

PAGE = 500
ORPHANS = 50
EXPIRED_AT_ONCE = 50
FORGOTTEN = 1000
JUMPED = "no cleanup: the clock jumped, or no process ran for more than 25 hours"
# How many ids an answer names; all of them are in the log.
NAMED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupOutcome:
    """What a cleanup has done so far."""

    job: CleanupJob | None = None  # None: another one is under way, or it is only a preview
    thread_ids: tuple[str, ...] = ()
    preserved: int = 0
    due: int = 0  # still to be deleted
    more: bool = False
    is_preview: bool = False

    @property
    def status(self) -> Literal["completed", "more", "already_running", "dry_run"]:
        if self.is_preview:
            return "dry_run"
        if self.job is None:
            return "already_running"
        return "more" if self.more else "completed"


@dataclass(slots=True)
class Portions:
    """How much to delete in one transaction: as much as fits into a few milliseconds."""

    rows: int = 1000
    one_by_one: int = 0  # so many are taken by themselves
    FEWEST = 250
    MOST = 10_000
    IDS = 500

    def cut(self, candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
        """Portions of about as many rows. A thread larger than that is one by itself."""
        portion: list[Candidate] = []
        weight = 0
        for candidate in candidates:
            if portion and (
                self.one_by_one or weight + candidate.rows > self.rows or len(portion) == self.IDS
            ):
                self.one_by_one = max(0, self.one_by_one - 1)
                yield portion
                portion, weight = [], 0
            portion.append(candidate)
            weight += candidate.rows
        if portion:
            yield portion

    def took(self, seconds: float) -> None:
        if seconds > 0.05:
            self.rows = max(self.FEWEST, self.rows // 2)
        elif seconds < 0.02:
            self.rows = min(self.MOST, self.rows * 2)

    def took_too_long(self) -> None:
        """One thread of the failed portion was too large. The next ones are tried one by one to find it."""
        self.one_by_one = self.IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    rows: Cleanups
    # Of the database that holds chat histories and store items, which may be another one.
    memory: Cleanups
    cluster_state: ClusterState
    store: Store
    calls: Calls
    space: Space
    clock: Clock
    new_id: Callable[[], str]
    # Called with the id of every deleted thread: this process then drops its cached state.
    evict: Callable[[str], None]
    lease: timedelta
    budget_seconds: float
    ttl: timedelta  # of what has none of its own: checkpoints without a thread
    # When to clean up unasked: the next time after the last one. None is never.
    next_turn: Callable[[datetime], datetime] | None = None
    portions: Portions = field(default_factory=Portions)
    # Deletions under way, also those whose caller has left.
    under_way: set[asyncio.Task[Sequence[Gone]]] = field(default_factory=set)
    # Set while deleted rows still occupy disk space.
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def preview(self, wanted: Selection) -> CleanupOutcome:
        """What a cleanup would delete now. Changes nothing."""
        found = await self.rows.due(wanted, after=None, limit=NAMED)
        due, kept = await self.rows.count(wanted)
        lost = await self._lost(wanted)
        named = [*(one.id for one in found), *lost][:NAMED]
        return CleanupOutcome(thread_ids=tuple(named), preserved=kept, due=due + len(lost), is_preview=True)

    async def run(self, wanted: Selection, *, force: bool = False) -> CleanupOutcome:
        """Delete what is due, as much as fits into the budget.

        Raises InvalidState when the clock jumped lately, unless forced.
        """
        await self._require_steady_clock(force)
        job = CleanupJob(id=self.new_id(), selection=wanted, started_at=self.clock())
        runner = self.new_id()
        if not await self.rows.begin(job, runner=runner, lease=self.lease):
            return CleanupOutcome()
        return await self._work(job, runner)

    async def delete_all(self, wanted: Selection) -> CleanupOutcome:
        """Delete every thread of an owner, whatever it does, as many as fit into the budget.

        Raises InvalidState while another cleanup is under way.
        """
        # Not by age, so the clock does not matter.
        outcome = await self.run(wanted, force=True)
        if outcome.job is None:
            raise InvalidState("a cleanup is under way; try again when it has ended")
        return outcome

    async def continue_unfinished(self) -> bool:
        """Continue a job that another process left, or return the freed disk space; True if there may be more."""
        loop = LeasedLoop(
            _UnfinishedJobs(rows=self.rows, new_id=self.new_id),
            self._continue,
            name="cleanup",
            about=lambda claimed: {"source": claimed.job.id},
            lease=self.lease,
            concurrency=1,
            poll_seconds=0.0,
        )
        if await loop.turn():
            return True
        return await self.give_back() if self.freed.is_set() else False

    async def _continue(self, claimed: "ClaimedCleanup") -> None:
        # No client waits for this one. The search for orphans starts anew each time, so it has to end once.
        await self._work(claimed.job, claimed.runner, looks_on=True)

    async def empty_trash(self) -> bool:
        """Purge soft-deleted threads that were not restored."""
        wanted = retention.trash(now=self.clock())
        # Usually there is none, and then no job is written.
        if not await self.rows.due(wanted, after=None, limit=1):
            return False
        return (await self.run(wanted)).more

    async def tick(self) -> bool:
        """Check the clock; run the scheduled cleanup when it is due and this process gets it."""
        now = self.clock()
        ticks = await self.cluster_state.tick(now=now)
        if ticks.jumped_at == now:
            logger.error(JUMPED)
        next_turn = self.next_turn
        # A scheduled cleanup that is due while the clock is not trusted runs later.
        if next_turn is None or not ticks.is_settled(now=now):
            return False
        job = CleanupJob(
            id=self.new_id(), selection=retention.selection(now=now, days_old=None), started_at=now
        )
        runner = self.new_id()
        # One that meets another cleanup is not begun, and is tried again at the next tick.
        if await self.rows.begin_turn(
            job, lambda last: next_turn(last) <= now, runner=runner, lease=self.lease
        ):
            await self._work(job, runner)
        return False

    async def forget_deleted(self) -> bool:
        """Delete tombstones of threads once no run from before the deletion can still be running."""
        now = self.clock()
        if not (await self.cluster_state.tick(now=now)).is_settled(now=now):
            return False
        return await self.store.forget_tombstones(older=retention.REMEMBERED, limit=FORGOTTEN) == FORGOTTEN

    async def give_back(self) -> bool:
        """Not part of a cleanup itself: the caller of one does not wait for this."""
        self.freed.clear()
        await self.space.give_back(seconds=1)
        return False

    def chores(self) -> list[Chore]:
        return [
            Chore(name="cleanup", seconds=min(5.0, self.lease.total_seconds()), do=self.continue_unfinished),
            Chore(name="cleanup_schedule", seconds=60, do=self.tick),
            Chore(name="empty_trash", seconds=600, do=self.empty_trash),
            Chore(name="forget_deleted", seconds=3600, do=self.forget_deleted),
            Chore(name="give_back_space", seconds=600, do=self.give_back),
        ]

    async def _require_steady_clock(self, force: bool) -> None:
        now = self.clock()
        ticks = await self.cluster_state.tick(now=now)
        if ticks.jumped_at is None or force or ticks.is_settled(now=now):
            return
        until = ticks.jumped_at + retention.SETTLING
        logger.error(JUMPED)
        raise InvalidState(
            "the clock moved by more than 25 hours since it was last read: a wrong one would delete everything."
            f" Nothing is deleted for its age until {until:%Y-%m-%d %H:%M} UTC, unless forced"
        )

    async def _work(self, job: CleanupJob, runner: str, *, looks_on: bool = False) -> CleanupOutcome:
        started = time.monotonic()
        until = started + self.budget_seconds
        gone: list[str] = []
        try:
            finished = await self._threads(job, runner, until, gone)
            if finished:
                finished = await self._orphans(job, runner, inf if looks_on else until, gone)
            if finished:
                finished = await self._memory(job, inf if looks_on else until)
        except (Unavailable, LostLease, asyncio.CancelledError):
            raise  # the lease runs out, and another process continues
        except Exception:
            with suppress(ClewError):
                await self.rows.release(job, runner=runner, finished_at=None)
            raise
        job = await self.rows.release(job, runner=runner, finished_at=self.clock() if finished else None)
        due, kept = await self.rows.count(job.selection)
        logger.info(
            "cleanup",
            extra={
                "source": job.id,
                "deleted": len(gone),
                "preserved": kept,
                "failed": job.failed,
                "seconds": round(time.monotonic() - started, 3),
            },
        )
        return CleanupOutcome(
            job=job, thread_ids=tuple(gone[:NAMED]), preserved=kept, due=due, more=not finished
        )

    async def _memory(self, job: CleanupJob, until: float) -> bool:
        """Delete what graphs stored about an owner whose data is deleted; whether none of it is left."""
        owner = job.selection.owner
        if job.selection.reason is not Reason.OWNED or owner is None:
            return True
        await self.rows.forget_usage(owner)
        while await self.memory.forget(owner, limit=PAGE):
            if time.monotonic() >= until:
                return False
        return True

    async def _threads(self, job: CleanupJob, runner: str, until: float, gone: list[str]) -> bool:
        """Whether all threads that are due were processed."""
        after = job.after
        while found := await self.rows.due(job.selection, after=after, limit=PAGE):
            for portion in self.portions.cut(found):
                began = time.monotonic()
                if job.selection.reason in (Reason.UNUSED, Reason.EXPIRED):
                    await self._expire_calls(job.selection, [one.id for one in portion if one.waits])
                gone += [one.thread_id for one in await self._delete(job, portion, runner, until)]
                self.portions.took(time.monotonic() - began)
                if time.monotonic() >= until:
                    # Seen afterwards, so that every run gets a little further.
                    return portion[-1] is found[-1] and len(found) < PAGE
            after = found[-1].age, found[-1].id
            if len(found) < PAGE:
                break
        return True

    async def _expire_calls(self, wanted: Selection, thread_ids: Sequence[str]) -> None:
        """Expire the open calls of these threads in their logs, before they are deleted."""
        for start in range(0, len(thread_ids), EXPIRED_AT_ONCE):
            some = thread_ids[start : start + EXPIRED_AT_ONCE]
            await asyncio.gather(*(self._expire_calls_of(wanted, thread_id) for thread_id in some))

    async def _expire_calls_of(self, wanted: Selection, thread_id: str) -> None:
        try:
            thread = await self.store.get(thread_id)
            calls = [await self.calls.get(thread_id, call_id) for call_id in thread.pending]
            has_deadline = any(call.deadline for call in calls)
            is_due = retention.is_due(thread, wanted, has_deadline=has_deadline, has_future_runs=False)
            if thread.status is not Status.BLOCKED or not is_due:
                return
            stamp = lifecycle.Stamp(self.clock(), self.new_id)
            change = lifecycle.expire_all(thread, calls, stamp=stamp)
            await self.store.commit(change, Unseen(thread.last_accessed_at or thread.created_at))
        except (Conflict, NotFound):
            return  # read, answered or deleted at the same moment: whether it is due is checked once more
        except Corrupt as exc:
            # An unreadable thread can still be deleted.
            logger.warning("calls cannot expire", extra={"thread_id": thread_id, "code": exc.code})

    async def _delete(
        self, job: CleanupJob, portion: Sequence[Candidate], runner: str, until: float
    ) -> list[Gone]:
        deletion = self.rows.delete(job, portion, runner=runner, lease=self.lease, now=self.clock())
        try:
            gone = await self._to_its_end(job, deletion)
        except (StorageFull, LostLease):
            raise
        except Exception as exc:
            if isinstance(exc, Unavailable):
                # The database is away, or too slow for one of these. The next run takes them one by one.
                self.portions.took_too_long()
                if len(portion) > 1:
                    raise
                await self.rows.are_due()  # raises while the database is away
            if len(portion) == 1:
                logger.error(  # noqa: TRY400 - an error that is expected here; where it broke is of no interest
                    "a thread could not be cleaned up",
                    extra={"thread_id": portion[0].id, "error_class": type(exc).__name__},
                )
                await self.rows.skip(job, portion[0], runner=runner, lease=self.lease)
                return []
            # One of them cannot be deleted: the others are deleted without it.
            half = len(portion) // 2
            first = await self._delete(job, portion[:half], runner, until)
            return first + await self._delete(job, portion[half:], runner, until)
        if not job.selection.soft:
            for one in portion:
                if one.rows > Portions.MOST:
                    await self._purge(one.id, until)
        return list(gone)

    async def _to_its_end(
        self, job: CleanupJob, deletion: Coroutine[Any, Any, Sequence[Gone]]
    ) -> Sequence[Gone]:
        """The caller may have disconnected before these are deleted: each is logged all the same."""

        async def work() -> Sequence[Gone]:
            gone = await deletion
            for one in gone:
                self._note(job, one)
            return gone

        task = asyncio.create_task(work())
        self.under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Sequence[Gone]]) -> None:
        self.under_way.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: a caller that still waits gets it too

    async def _purge(self, thread_id: str, until: float) -> None:
        """Delete the rows of a log too long for one transaction. A chore deletes what the budget or a kill leaves."""
        while time.monotonic() < until and await self.store.purge(only=thread_id):
            pass

    async def _orphans(self, job: CleanupJob, runner: str, until: float, gone: list[str]) -> bool:
        """Whether all checkpoints without a thread were processed."""
        before = self._lost_before(job.selection)
        if before is None:
            return True
        after: str | None = ""
        while after is not None:
            if time.monotonic() >= until:
                return False
            found, after = await self.rows.orphans(after=after)
            old = [one for one in found if _is_older(one, before)]
            for start in range(0, len(old), ORPHANS):
                if time.monotonic() >= until:
                    return False
                some = old[start : start + ORPHANS]
                deletion = self.rows.delete_orphans(job, some, runner=runner, lease=self.lease)
                gone += [one.thread_id for one in await self._to_its_end(job, deletion)]
        return True

    async def _lost(self, wanted: Selection) -> list[str]:
        """The threads whose checkpoints would be deleted, as far as the budget allows."""
        until = time.monotonic() + self.budget_seconds
        before = self._lost_before(wanted)
        found: list[str] = []
        after: str | None = ""
        while before is not None and after is not None and time.monotonic() < until:
            some, after = await self.rows.orphans(after=after)
            found += [one.thread_id for one in some if _is_older(one, before)]
        return found

    def _lost_before(self, wanted: Selection) -> datetime | None:
        """How old checkpoints without a thread must be. They belong to no tenant, so only a whole cleanup takes them."""
        if wanted.owner is not None or wanted.soft or wanted.reason is Reason.DELETED:
            return None
        return wanted.before if wanted.reason is Reason.UNUSED else wanted.before - self.ttl

    def _note(self, job: CleanupJob, one: Gone) -> None:
        self.freed.set()
        self.evict(one.thread_id)
        logger.info(
            "thread deleted",
            extra={
                "thread_id": one.thread_id,
                "tenant": one.tenant,
                "source": job.id,
                "code": job.selection.reason.upper(),
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedCleanup:
    """A cleanup job and the runner that has its lease."""

    job: CleanupJob
    runner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnfinishedJobs:
    """Cleanup jobs that are not finished as leased jobs. One cleanup at a time runs in the whole cluster."""

    rows: Cleanups
    new_id: Callable[[], str]

    async def are_due(self) -> bool:
        return await self.rows.are_due()

    async def claim(
        self,
        *,
        lease: timedelta,
        limit: int,  # noqa: ARG002 - there is one lease for all of them
        alive: Collection[ClaimedCleanup],  # noqa: ARG002
    ) -> list[ClaimedCleanup]:
        runner = self.new_id()
        job = await self.rows.claim(runner=runner, lease=lease)
        return [] if job is None else [ClaimedCleanup(job=job, runner=runner)]

    async def heartbeat(self, claimed: ClaimedCleanup, *, lease: timedelta) -> None:
        await self.rows.heartbeat(runner=claimed.runner, lease=lease)

    async def snooze(self, claimed: ClaimedCleanup, *, wait: timedelta) -> None:  # noqa: ARG002 - until the next poll
        await self.rows.release(claimed.job, runner=claimed.runner, finished_at=None)


def _is_older(orphan: Orphan, before: datetime) -> bool:
    at = retention.written_at(orphan.body)
    return at is None or at < before
