"""Retention of threads: how long a time to live may be, which threads are due for deletion, when the clock is not trusted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from clew.domain.errors import Invalid
from clew.domain.thread import Owner, Status, Thread

# The longest duration allowed: a longer one cannot be added to a date.
LONGEST = timedelta(days=36_600)
LONGEST_MINUTES = LONGEST // timedelta(minutes=1)
# For so long a soft-deleted thread can be restored.
GRACE = timedelta(days=7)
# For so long the tombstone of a deleted thread is kept, so that no late write reuses its id. The longest round may
# take a week, a lease an hour, and a request is repeated within two days.
REMEMBERED = timedelta(days=90)
# A clock that moved so far since the last tick has jumped, or no process ran meanwhile. A day, and an hour of slack for
# what runs once a day.
JUMP = timedelta(hours=25)
# Clocks that were wrong at a start are put right within minutes; for so long nothing is deleted for its age.
SETTLING = timedelta(hours=1)


class Reason(StrEnum):
    UNUSED = "unused"  # not accessed since
    EXPIRED = "expired"  # its own time to live was over by then
    STALE = "stale"  # the time after which it loses its old checkpoints was over by then
    IDLE = "idle"  # not accessed since, and without such a time
    DELETED = "deleted"  # soft-deleted, and not restored since
    OWNED = "owned"  # whatever its age: everything of its owner is to go


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which threads a cleanup is about. Both ends are fixed when it begins, however long it takes."""

    reason: Reason
    before: datetime
    owner: Owner | None = None  # None: of all owners
    soft: bool = False


def selection(
    *, now: datetime, days_old: int | None, owner: Owner | None = None, soft: bool = False
) -> Selection:
    """What a cleanup is about that was asked for with or without an age."""
    if days_old is None:
        return Selection(reason=Reason.EXPIRED, before=now, owner=owner, soft=soft)
    return Selection(reason=Reason.UNUSED, before=now - timedelta(days=days_old), owner=owner, soft=soft)


# Later than any thread was made.
ALWAYS = datetime(9999, 12, 31, tzinfo=UTC)


def owned_by(tenant: str, user_id: str | None = None) -> Selection:
    """All threads of a tenant, or of one user of it. Raises Invalid without a name: that would select other users' threads too."""
    if not tenant.strip():
        raise Invalid("a tenant's name is needed", field="tenant")
    if user_id is not None and not user_id.strip():
        raise Invalid("a user's id is needed", field="user_id")
    return Selection(reason=Reason.OWNED, before=ALWAYS, owner=Owner(tenant=tenant, user_id=user_id or ""))


def trash(*, now: datetime) -> Selection:
    return Selection(reason=Reason.DELETED, before=now - GRACE)


def is_due(thread: Thread, wanted: Selection, *, has_deadline: bool, has_future_runs: bool) -> bool:
    """Whether a cleanup takes the thread. `has_deadline`: one of the answers it waits for is due at a certain time.
    `has_future_runs`: runs of it are scheduled, by a cron or once.

    A thread without a time to live is kept whatever its age. One that runs is never taken, nor one with scheduled
    runs, however seldom. One that waits for an answer is taken once nothing it waits for has a deadline any more: what has
    one expires first, and the thread goes on; what has none expires when the thread is taken.
    The store asks the same in SQL, inside the transaction that deletes; a contract holds the two together.
    """
    if wanted.reason is Reason.OWNED:
        return thread.created_at < wanted.before and _belongs(thread.owner, wanted.owner)
    if wanted.reason is Reason.STALE:
        since = None
        if thread.prune_after is not None and thread.last_accessed_at is not None:
            since = after(thread.last_accessed_at, thread.prune_after)
        is_at_rest = thread.status is not Status.RUNNING
        return (
            is_at_rest
            and since is not None
            and since < wanted.before
            and _belongs(thread.owner, wanted.owner)
        )
    if wanted.reason is Reason.IDLE and thread.prune_after is not None:
        return False
    if thread.ttl is None or thread.status is Status.RUNNING or has_future_runs:
        return False
    if thread.status is Status.BLOCKED and has_deadline:
        return False
    since = thread.last_accessed_at if wanted.reason in (Reason.UNUSED, Reason.IDLE) else thread.expires_at
    return since is not None and since < wanted.before and _belongs(thread.owner, wanted.owner)


def _belongs(owner: Owner, wanted: Owner | None) -> bool:
    if wanted is None:
        return True
    return owner.tenant == wanted.tenant and wanted.user_id in ("", owner.user_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupJob:
    """A cleanup that was begun. What is left of it goes on after a kill, from behind `after`."""

    id: str
    selection: Selection
    started_at: datetime
    deleted: int = 0
    failed: int = 0
    after: tuple[int, str] | None = None  # the last one it checked: by age, then by id
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A thread that was due when it was read; that is checked again when it is deleted."""

    id: str
    age: int
    rows: int  # about how many rows it has
    waits: bool = False  # for an answer: its calls expire before it goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    thread_id: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """Checkpoints without a thread, as old as the newest of them."""

    thread_id: str
    newest: int
    body: str


def written_at(body: str) -> datetime | None:
    """When a checkpoint was made, as its body says; None if that cannot be read, and so the checkpoint is of no use."""
    try:
        at = datetime.fromisoformat(json.loads(body)["ts"])
    except (KeyError, TypeError, ValueError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binned:
    """A soft-deleted thread."""

    id: str
    owner: Owner
    graph: str
    name: str
    deleted_at: datetime

    @property
    def gone_at(self) -> datetime:
        """From when on it cannot be restored."""
        return self.deleted_at + GRACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an owner's threads amount to."""

    threads: int
    by_status: Mapping[str, int]
    by_graph: Mapping[str, int]
    events: int
    oldest: datetime | None
    due: int
    deleted: int  # soft-deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """When the clock was last read, and when a jump was last detected."""

    last_at: datetime
    jumped_at: datetime | None = None

    def is_settled(self, *, now: datetime) -> bool:
        return self.jumped_at is None or now - self.jumped_at >= SETTLING


def tick(before: Ticks | None, *, now: datetime) -> Ticks:
    """Read the clock once more. A jump cannot be told from a long absence, so both are waited out."""
    if before is None:
        return Ticks(last_at=now)
    jumped = abs(now - before.last_at) > JUMP
    return Ticks(last_at=now, jumped_at=now if jumped else before.jumped_at)


def minutes(number: float, *, field: str) -> timedelta:
    """Raises Invalid for a number that is no duration."""
    return _within(number, timedelta(minutes=1), field)


def after(moment: datetime, length: timedelta) -> datetime:
    """The moment so much later; the last one there is, if that is beyond the calendar."""
    try:
        return moment + length
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def require_duration(length: timedelta | None, *, field: str) -> None:
    """Raises Invalid unless it is more than nothing and at most a hundred years; None is no limit."""
    if length is not None and not timedelta() < length <= LONGEST:
        raise Invalid(f"expected more than nothing and at most {LONGEST.days} days", field=field)


def require_seconds(number: float | None, *, field: str) -> None:
    """The same for a number of seconds."""
    if number is not None:
        _within(number, timedelta(seconds=1), field)


def _within(number: float, unit: timedelta, field: str) -> timedelta:
    most = LONGEST // unit
    if not 0 < number <= most:  # also of what is no number
        raise Invalid(f"expected more than 0 and at most {most}", field=field)
    # Less than a millionth of a second is still more than nothing.
    return max(timedelta.resolution, number * unit)
