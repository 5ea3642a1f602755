"""Bulk deletion of threads: found by age, and checked again in the transaction that deletes them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from clew.domain.errors import Corrupt
from clew.domain.retention import Candidate, CleanupJob, Gone, Orphan, Reason, Selection
from clew.domain.runs import SOURCE
from clew.domain.thread import Owner, Status
from clew.failpoints import failpoint
from clew.stores.codec import dump, load, maybe_moment, micros, moment
from clew.stores.sql import cluster_state
from clew.stores.sql.histories import delete_histories
from clew.stores.sql.items import delete_items
from clew.stores.sql.ownership import owned, owned_threads
from clew.stores.sql.purge import AT_ONCE, THEIRS, erase
from clew.stores.sql.work import (
    FOR_UPDATE,
    SKIP_LOCKED,
    Row,
    Statement,
    Tables,
    Texts,
    Value,
    Work,
    among,
    glances,
    reads,
    writes,
)

DUTY = "cleanup"
TURN = "cleanup schedule"
# For so long the result of a cleanup is kept.
REMEMBERED = timedelta(days=90)
# So many checkpointed threads are read at once, in search of those without an owner.
STEPS = 2000

# Postgres need not wait for the disk at every portion: what it lost would still be due, and its job not finished. The
# commit that finishes the job does wait, and with it is on disk all that was committed before.
UNHURRIED = Statement("SELECT 1 /*+ , set_config('synchronous_commit', 'off', true) */")

_AGE: Mapping[Reason, str] = {
    Reason.UNUSED: "last_accessed_at",
    Reason.EXPIRED: "expires_at",
    Reason.STALE: "last_accessed_at + prune_after",
    Reason.IDLE: "last_accessed_at",
    Reason.DELETED: "deleted_at",
    Reason.OWNED: "created_at",
}
_COLUMNS = "id, selection, deleted, failed, after_age, after_id, started_at, finished_at"


class CleanupRows(Tables):
    """The Cleanups port on a SQL database."""

    @writes
    def begin(self, job: CleanupJob, *, runner: str, lease: timedelta) -> Work[bool]:
        return (yield from _begin(job, runner, lease))

    @writes
    def begin_turn(
        self, job: CleanupJob, is_due: Callable[[datetime], bool], *, runner: str, lease: timedelta
    ) -> Work[bool]:
        if not (yield from cluster_state.is_turn(TURN, is_due, now=job.started_at)):
            return False
        # One turn, one job: a turn taken without a job would be lost if its process died.
        begun = yield from _begin(job, runner, lease)
        if begun:
            yield from cluster_state.take_turn(TURN, now=job.started_at)
        return begun

    @glances
    def are_due(self) -> Work[bool]:
        return bool((yield Statement("SELECT 1 FROM cleanups WHERE finished_at IS NULL LIMIT 1")))

    @writes
    def claim(self, *, runner: str, lease: timedelta) -> Work[CleanupJob | None]:
        if not (yield from cluster_state.claim(DUTY, runner, lease)):
            return None
        rows = yield Statement(
            f"SELECT {_COLUMNS} FROM cleanups WHERE finished_at IS NULL ORDER BY started_at, id LIMIT 1"
        )
        if not rows:
            yield from cluster_state.release(DUTY, runner)
            return None
        return _job(rows[0])

    @writes
    def heartbeat(self, *, runner: str, lease: timedelta) -> Work[None]:
        yield from cluster_state.heartbeat(DUTY, runner, lease)

    @reads
    def last(self) -> Work[CleanupJob | None]:
        rows = yield Statement(f"SELECT {_COLUMNS} FROM cleanups ORDER BY started_at DESC, id DESC LIMIT 1")
        return _job(rows[0]) if rows else None

    @reads
    def due(self, wanted: Selection, *, after: tuple[int, str] | None, limit: int) -> Work[list[Candidate]]:
        age = _AGE[wanted.reason]
        where, args = condition(wanted, 1)
        if after is not None:
            where += f" AND ({age}, id) > (${len(args) + 1}, ${len(args) + 2})"
            args += after
        rows = yield Statement(
            f"SELECT id, {age}, last_seq, status FROM threads WHERE {where} ORDER BY {age}, id LIMIT ${len(args) + 1}",
            (*args, limit),
        )
        return [
            Candidate(id=row[0], age=row[1], rows=_size(row[2]), waits=row[3] == Status.BLOCKED)
            for row in rows
        ]

    @reads
    def count(self, wanted: Selection) -> Work[tuple[int, int]]:
        where, args = condition(wanted, 1)
        mine, owner_args = owned_threads(wanted.owner, len(args) + 1)
        every = "1 = 1" if wanted.reason is Reason.OWNED else "deleted_at IS NULL"
        rows = yield Statement(
            f"SELECT count(*), COALESCE(sum(CASE WHEN {where} THEN 1 ELSE 0 END), 0) FROM threads"
            f" WHERE {every}{mine}",
            (*args, *owner_args),
        )
        number, due = int(rows[0][0]), int(rows[0][1])
        return due, number - due

    @writes
    def delete(
        self, job: CleanupJob, some: Sequence[Candidate], *, runner: str, lease: timedelta, now: datetime
    ) -> Work[list[Gone]]:
        yield from cluster_state.heartbeat(DUTY, runner, lease)
        yield UNHURRIED
        ids = yield from _hold((candidate.id for candidate in some), job.selection.reason)
        # A log too long for one transaction is left to the purge, which takes it in slices.
        is_short = sum(candidate.rows for candidate in some) <= AT_ONCE
        if job.selection.soft:
            gone = yield from _bin(ids, job.selection, now)
        else:
            gone = yield from _bury(ids, job.selection, now, is_purged=is_short)
        if gone and not job.selection.soft:
            failpoint("cleanup_mid_thread")
            if is_short:
                yield from erase([one.thread_id for one in gone])
        yield _progress(job, deleted=len(gone), after=some[-1])
        return gone

    @writes
    def forget(self, owner: Owner, *, limit: int) -> Work[int]:
        histories = yield from delete_histories(owner, limit=limit)
        return histories + (yield from delete_items(owner, limit=limit))

    @writes
    def forget_usage(self, owner: Owner) -> Work[None]:
        mine, args = owned(owner, 1)
        yield Statement(f"DELETE FROM token_usage WHERE 1 = 1{mine}", args)

    @writes
    def skip(self, job: CleanupJob, one: Candidate, *, runner: str, lease: timedelta) -> Work[None]:
        yield from cluster_state.heartbeat(DUTY, runner, lease)
        yield _progress(job, failed=1, after=one)

    async def orphans(self, *, after: str) -> tuple[list[Orphan], str | None]:
        nobodys, last = await self._nobodys(after)
        found: list[Orphan] = []
        for some in _chunks(nobodys):
            found += await self._newest(some)
        return found, last

    @reads
    def _nobodys(self, after: str) -> Work[tuple[list[str], str | None]]:
        # From one thread's checkpoints to the next one's by the index: what is in between is not read.
        rows = yield Statement(
            "WITH RECURSIVE walk (thread_id, step) AS ("
            " SELECT min(thread_id), 1 FROM checkpoints WHERE thread_id > $1"
            " UNION ALL SELECT (SELECT min(thread_id) FROM checkpoints WHERE thread_id > walk.thread_id), step + 1"
            " FROM walk WHERE walk.thread_id IS NOT NULL AND step < $2)"
            " SELECT thread_id, EXISTS (SELECT 1 FROM threads WHERE id = walk.thread_id) FROM walk"
            " WHERE thread_id IS NOT NULL ORDER BY step",
            (after, STEPS),
        )
        nobodys = [thread_id for thread_id, is_owned in rows if not is_owned]
        return nobodys, rows[-1][0] if len(rows) == STEPS else None

    async def _newest(self, some: Sequence[str]) -> list[Orphan]:
        try:
            return await self._read_newest(some)
        except Corrupt:
            if len(some) > 1:
                return [found for one in some for found in await self._newest([one])]
            # A checkpoint that cannot be read is of no use, so its age does not matter.
            return await self._read_newest(some, body="''")

    @reads
    def _read_newest(self, some: Sequence[str], body: str = "body") -> Work[list[Orphan]]:
        rows = yield Statement(
            f"SELECT thread_id, seq, {body} FROM checkpoints WHERE seq IN (SELECT max(seq) FROM checkpoints"
            f" WHERE {THEIRS} GROUP BY thread_id)",
            (Texts(some),),
        )
        return [Orphan(thread_id=row[0], newest=row[1], body=row[2]) for row in rows]

    @writes
    def delete_orphans(
        self, job: CleanupJob, some: Sequence[Orphan], *, runner: str, lease: timedelta
    ) -> Work[list[Gone]]:
        yield from cluster_state.heartbeat(DUTY, runner, lease)
        rows = yield Statement(
            f"SELECT thread_id, max(seq) FROM checkpoints WHERE {THEIRS}"
            " AND NOT EXISTS (SELECT 1 FROM threads WHERE id = checkpoints.thread_id) GROUP BY thread_id",
            (Texts(orphan.thread_id for orphan in some),),
        )
        seen = {orphan.thread_id: orphan.newest for orphan in some}
        gone = [thread_id for thread_id, newest in rows if newest == seen[thread_id]]
        if gone:
            yield from erase(gone)
            yield Statement("UPDATE cleanups SET deleted = deleted + $2 WHERE id = $1", (job.id, len(gone)))
        return [Gone(thread_id=thread_id, tenant="") for thread_id in gone]

    @writes
    def release(self, job: CleanupJob, *, runner: str, finished_at: datetime | None) -> Work[CleanupJob]:
        if finished_at is not None:
            yield Statement(
                "UPDATE cleanups SET finished_at = $2 WHERE id = $1", (job.id, micros(finished_at))
            )
            yield Statement(
                "DELETE FROM cleanups WHERE finished_at < $1", (micros(finished_at - REMEMBERED),)
            )
        yield from cluster_state.release(DUTY, runner)
        rows = yield Statement(f"SELECT {_COLUMNS} FROM cleanups WHERE id = $1", (job.id,))
        return _job(rows[0])


def _begin(job: CleanupJob, runner: str, lease: timedelta) -> Work[bool]:
    if not (yield from cluster_state.claim(DUTY, runner, lease)):
        return False
    yield Statement(
        f"INSERT INTO cleanups ({_COLUMNS}) VALUES ($1, $2, 0, 0, NULL, NULL, $3, NULL)",
        (job.id, _dump_selection(job.selection), micros(job.started_at)),
    )
    return True


def condition(wanted: Selection, first: int) -> tuple[str, tuple[Value, ...]]:
    """`domain.retention.is_due` in SQL."""
    where, args = f"{_AGE[wanted.reason]} < ${first}", (micros(wanted.before),)
    if wanted.reason is Reason.STALE:
        where += " AND prune_after IS NOT NULL AND deleted_at IS NULL AND status <> 'running'"
    if wanted.reason is Reason.IDLE:
        where += " AND prune_after IS NULL"
    if wanted.reason in (Reason.UNUSED, Reason.IDLE, Reason.EXPIRED):
        where += (
            " AND deleted_at IS NULL AND ttl IS NOT NULL AND status <> 'running' AND NOT (status = 'blocked'"
            " AND EXISTS (SELECT 1 FROM tool_calls AS c WHERE c.thread_id = threads.id"
            " AND c.status = 'pending' AND c.deadline IS NOT NULL))"
            " AND NOT EXISTS (SELECT 1 FROM crons WHERE crons.thread_id = threads.id AND crons.is_enabled = 1"
            " AND crons.next_at IS NOT NULL)"
            " AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.thread_id = threads.id"
            f" AND inbox.source = '{SOURCE}' AND inbox.status = 'queued')"
        )
    mine, owner_args = owned_threads(wanted.owner, first + 1)
    return where + mine, (*args, *owner_args)


def _hold(ids: Iterable[str], reason: Reason) -> Work[Texts]:
    # A statement of its own: whether they are due is checked once no caller can start a run on them. A transaction that
    # holds one of them works on it, or hangs: the others do not wait for that, unless none of them may stay.
    lock = FOR_UPDATE if reason is Reason.OWNED else SKIP_LOCKED
    rows = yield Statement(f"SELECT id FROM threads WHERE {among('id', 1)} ORDER BY id {lock}", (Texts(ids),))
    return Texts(row[0] for row in rows)


def _bury(ids: Texts, wanted: Selection, now: datetime, *, is_purged: bool) -> Work[list[Gone]]:
    where, args = condition(wanted, 2)
    at = f"CAST(${len(args) + 2} AS BIGINT)"
    rows = yield Statement(
        "INSERT INTO tombstones (thread_id, tenant, deleted_at, purged_at)"
        f" SELECT id, tenant, {at}, {'clew_now()' if is_purged else 'NULL'}"
        f" FROM threads WHERE {among('id', 1)} AND {where}"
        " ON CONFLICT (thread_id) DO UPDATE SET purged_at = excluded.purged_at RETURNING thread_id, tenant",
        (ids, *args, micros(now)),
    )
    gone = [Gone(thread_id=row[0], tenant=row[1]) for row in rows]
    if gone:
        buried = Texts(one.thread_id for one in gone)
        yield Statement(f"DELETE FROM threads WHERE {among('id', 1)}", (buried,))
    return gone


def _bin(ids: Texts, wanted: Selection, now: datetime) -> Work[list[Gone]]:
    where, args = condition(wanted, 2)
    rows = yield Statement(
        f"UPDATE threads SET deleted_at = ${len(args) + 2}, fence = fence + 1"
        f" WHERE {among('id', 1)} AND {where} RETURNING id, tenant",
        (ids, *args, micros(now)),
    )
    return [Gone(thread_id=row[0], tenant=row[1]) for row in rows]


def _progress(job: CleanupJob, *, after: Candidate, deleted: int = 0, failed: int = 0) -> Statement:
    return Statement(
        "UPDATE cleanups SET deleted = deleted + $2, failed = failed + $3, after_age = $4, after_id = $5 WHERE id = $1",
        (job.id, deleted, failed, after.age, after.id),
    )


def _size(last_seq: object) -> int:
    # A damaged row must not keep the others from being deleted, nor itself.
    return last_seq if isinstance(last_seq, int) else 0


def _dump_selection(wanted: Selection) -> str:
    owner = wanted.owner
    return dump(
        {
            "reason": wanted.reason,
            "before": micros(wanted.before),
            "owner": None if owner is None else [owner.tenant, owner.user_id],
            "soft": wanted.soft,
        }
    )


def _job(row: Row) -> CleanupJob:
    given = load(row[1])
    try:
        owner = None if given["owner"] is None else Owner(tenant=given["owner"][0], user_id=given["owner"][1])
        wanted = Selection(
            reason=Reason(given["reason"]), before=moment(given["before"]), owner=owner, soft=given["soft"]
        )
    except (KeyError, TypeError, ValueError, IndexError) as exc:
        raise Corrupt(f"cleanup {row[0]!r} cannot be read back") from exc
    return CleanupJob(
        id=row[0],
        selection=wanted,
        deleted=row[2],
        failed=row[3],
        after=None if row[5] is None else (row[4], row[5]),
        started_at=moment(row[6]),
        finished_at=maybe_moment(row[7]),
    )


def _chunks(items: Sequence[str], size: int = 200) -> Iterable[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
