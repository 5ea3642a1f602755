"""Thread writes: the statements of the one write path, and why a row refused a change."""

from datetime import datetime, timedelta

from clew.domain.errors import Conflict, LostLease, NotFound
from clew.domain.lifecycle import Change
from clew.domain.thread import Status, Thread
from clew.ports.guards import Claim
from clew.stores.codec import (
    MICROSECOND,
    micros,
)
from clew.stores.sql.thread_rows import COLUMNS, thread_row
from clew.stores.sql.turns import queueing
from clew.stores.sql.work import (
    Statement,
    Update,
    Work,
    placeholders,
)

# What happens in a thread is written down as an access once a minute.
ACCESS_GRAIN = timedelta(minutes=1)


def refuse(change: Change, fence: int | None) -> Work[None]:
    """Say why the thread row did not take the change."""
    thread_id = change.thread.id
    rows = yield Statement("SELECT last_seq, fence, deleted_at FROM threads WHERE id = $1", (thread_id,))
    if not rows or rows[0][2] is not None:
        raise NotFound(f"no thread {thread_id!r}")
    if fence is not None and rows[0][1] != fence:
        raise LostLease(f"thread {thread_id!r} is run by another runner now")
    raise Conflict(f"thread {thread_id!r} is at seq {rows[0][0]}, not at {change.read_at}")


# Placeholders $1 to $22 are thread_row's.
_INSERT = f"INSERT INTO threads ({COLUMNS}) VALUES ({placeholders(1, 24)}) ON CONFLICT (id) DO NOTHING"
_QUEUEING = queueing(priority=21, tenant=2, turn=25)
_INSERT_CLAIMED = (
    f"INSERT INTO threads ({COLUMNS}, fence, lease_owner, lease_until, rank)"
    f" VALUES ({placeholders(1, 26)}, clew_now() + $27, {_QUEUEING['rank']}) ON CONFLICT (id) DO NOTHING"
)
_INSERT_QUEUED = (
    f"INSERT INTO threads ({COLUMNS}, {', '.join(_QUEUEING)})"
    f" VALUES ({placeholders(1, 24)}, {', '.join(_QUEUEING.values())}) ON CONFLICT (id) DO NOTHING"
)
# What never changes after the first commit is not written again.
_FOLDED = (
    "graph = $4, name = $5, status = $6, stage = $7, round = $8, round_seq = $9, settings = $10, fsm_state = $11, stats = $12,"
    " redacted = $13, last_seq = $14, failure_reason = $15, ttl = $16, round_started_at = $18, last_active_at = $19,"
    " prune_after = $20, priority = $21, seal = $22"
)
# A thread that stops running gives up its lease, and a new fence refuses writes under the old one.
_RESTS = ", lease_owner = NULL, lease_until = NULL, recoveries = 0, fence = fence + 1"
# The immutable columns are compared: they bind $2, $3 and $17, and a foreign row is never overwritten.
_READ_AT = (
    " WHERE id = $1 AND tenant = $2 AND user_id = $3 AND created_at = $17 AND last_seq = $23"
    " AND deleted_at IS NULL"
)
# One that is claimed as it begins or goes on. No other runner has it: it did not run before.
_CLAIMED = (
    ", rank = COALESCE(CAST($21 AS BIGINT), 0), recoveries = 0, fence = $24, lease_owner = $25,"
    " lease_until = clew_now() + $26"
)
# A thread that runs on, one that came further, one that stops running, and one that waits for a runner.
_LEASES = {
    "runs": "",
    "completes_stage": ", recoveries = 0",
    "rests": _RESTS,
    # One that runs already keeps its place.
    "queued": "".join(
        f", {column} = CASE WHEN status = 'running' THEN {column} ELSE {value} END"
        for column, value in queueing(priority=21, tenant=2, turn=24).items()
    ),
}
_UPDATE = {case: f"UPDATE threads SET {_FOLDED}{more}{_READ_AT}" for case, more in _LEASES.items()}
_UPDATE_CLAIMED = (
    f"UPDATE threads SET {_FOLDED}{_CLAIMED}{_READ_AT} AND fence = $24 - 1 AND status <> 'running'"
)
_UPDATE_FENCED = {case: f"{sql} AND fence = $24" for case, sql in _UPDATE.items()}
MEND = {
    runs: f"UPDATE threads SET tenant = $2, user_id = $3, created_at = $17, {_FOLDED}"
    f"{'' if runs else _RESTS} WHERE id = $1"
    for runs in (True, False)
}


def insert(thread: Thread, claim: Claim | None, turn: int) -> Update:
    now = micros(thread.last_active_at)
    expires = None if thread.ttl is None else now + thread.ttl // MICROSECOND
    row = (*thread_row(thread), now, expires)
    if thread.status is not Status.RUNNING:
        return Update(_INSERT, row)
    if claim is None:
        return Update(_INSERT_QUEUED, (*row, turn))
    return Update(_INSERT_CLAIMED, (*row, *_lease(claim)))


def _lease(claim: Claim) -> tuple[int, str, int]:
    return claim.fence, claim.runner, claim.lease // MICROSECOND


def update(change: Change, fence: int | None, claim: Claim | None, turn: int) -> Update:
    row = thread_row(change.thread)
    if claim is not None:
        return Update(_UPDATE_CLAIMED, (*row, change.read_at, *_lease(claim)))
    if change.starts_a_run and fence is None:
        return Update(_UPDATE["queued"], (*row, change.read_at, turn))
    case = "completes_stage" if change.completes_stage else "runs"
    if change.thread.status is not Status.RUNNING:
        case = "rests"
    if fence is None:
        return Update(_UPDATE[case], (*row, change.read_at))
    return Update(_UPDATE_FENCED[case], (*row, change.read_at, fence))


def is_long_ago(thread: Thread) -> bool:
    """Whether the last look is so long ago that this activity is written down as one."""
    return thread.last_active_at - (thread.last_accessed_at or thread.created_at) > ACCESS_GRAIN


def require_unseen(thread_id: str, since: datetime) -> Work[None]:
    # A look is no event, so the log does not tell of it.
    rows = yield Statement(
        "SELECT 1 FROM threads WHERE id = $1 AND last_accessed_at <= $2", (thread_id, micros(since))
    )
    if not rows:
        raise Conflict(f"thread {thread_id!r} was looked at meanwhile")


def accessed(thread_id: str, now: datetime) -> Statement:
    return Statement(
        "UPDATE threads SET last_accessed_at = $2, expires_at = CAST($2 AS BIGINT) + ttl"
        " WHERE id = $1 AND last_accessed_at < CAST($2 AS BIGINT) - CAST($3 AS BIGINT)",
        (thread_id, micros(now), ACCESS_GRAIN // MICROSECOND),
    )


def expiring(thread_id: str, now: datetime) -> Statement:
    """Count the time to live of a thread, which has just changed, from now on."""
    return Statement(
        "UPDATE threads SET last_accessed_at = $2, expires_at = CAST($2 AS BIGINT) + ttl WHERE id = $1",
        (thread_id, micros(now)),
    )
