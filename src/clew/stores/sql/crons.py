"""Crons: scheduled runs, and which of them are due."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from pydantic import TypeAdapter

from clew.domain.crons import SLACK, CronJob, CronSearch
from clew.domain.errors import InvalidState, LostLease, NotFound
from clew.domain.events import RunSpec
from clew.domain.thread import Owner
from clew.ports.authorization import FilteredOwner
from clew.stores.codec import MICROSECOND, dump, legible, load, maybe_micros, maybe_moment, micros, moment
from clew.stores.sql.existence import hold
from clew.stores.sql.ownership import owned, seen_thread
from clew.stores.sql.quotas import require_number
from clew.stores.sql.work import (
    FOR_UPDATE,
    SKIP_LOCKED,
    Database,
    Row,
    Statement,
    Tables,
    Value,
    Work,
    glances,
    placeholders,
    reads,
    writes,
)

_LASTING: Final = "id, tenant, user_id, thread_id, created_at"
_CHANGING: Final = (
    "schedule, timezone, end_at, is_enabled, keeps, spec, input, updated_at, next_at, counted_at"
)
_COLUMNS: Final = f"{_LASTING}, {_CHANGING}"
_SELECT: Final = f"SELECT {_COLUMNS} FROM crons"
# Its time has come; or that was counted by a clock far ahead of ours, and is to be counted anew.
_DUE: Final = "is_enabled = 1 AND (next_at <= $1 OR counted_at > $2) AND claimed_until <= clew_now()"
# Unchanged since it was claimed.
_CLAIMED: Final = " WHERE id = $1 AND COALESCE(next_at, 0) = $2 AND counted_at = $3 RETURNING 1"
_SPEC = TypeAdapter(RunSpec)


class CronRows(Tables):
    """The Crons port on a SQL database."""

    def __init__(self, db: Database, process: str | None = None, *, quota: int = 0) -> None:
        """`process` is who claims: at its death its leases end. A tenant may have `quota` crons; 0 is any number."""
        super().__init__(db)
        self._process = process
        self._quota = quota

    @writes
    def add(self, job: CronJob, *, most: int) -> Work[None]:
        if job.thread_id is not None:
            yield from hold(job.thread_id)
        ((there,),) = yield Statement(
            "SELECT count(*) FROM crons WHERE tenant = $1 AND user_id = $2",
            (job.owner.tenant, job.owner.user_id),
        )
        if there >= most:
            raise InvalidState(f"more than {most} crons: delete some first")
        yield Statement(
            f"INSERT INTO crons ({_COLUMNS}) VALUES ({placeholders(1, 15)})",
            (
                job.id,
                job.owner.tenant,
                job.owner.user_id,
                job.thread_id,
                micros(job.created_at),
                *_changing(job),
            ),
        )
        yield from require_number("crons", job.owner.tenant, self._quota)

    @reads
    def get(self, cron_id: str, owner: Owner) -> Work[CronJob]:
        return (yield from _one(cron_id, owner))

    @reads
    def find(self, owner: Owner, wanted: CronSearch) -> Work[list[CronJob]]:
        mine, args = owned(owner, 1)
        seen, more = seen_thread(owner, "thread_id", len(args) + 1)
        rows = yield Statement(f"{_SELECT} WHERE 1 = 1{mine}{seen}", (*args, *more))
        return [job for job in legible(rows, _job, "crons") if wanted.wants(job) and _is_seen(job, owner)]

    @writes
    def revise(self, cron_id: str, owner: Owner, change: Callable[[CronJob], CronJob]) -> Work[CronJob]:
        after = change((yield from _one(cron_id, owner, FOR_UPDATE)))
        yield Statement(
            f"UPDATE crons SET ({_CHANGING}) = ({placeholders(2, 10)}), claimed_until = 0, claimed_by = NULL WHERE id = $1",
            (cron_id, *_changing(after)),
        )
        return after

    @writes
    def delete(self, cron_id: str, owner: Owner) -> Work[None]:
        yield from _one(cron_id, owner, FOR_UPDATE)
        yield Statement("DELETE FROM crons WHERE id = $1", (cron_id,))

    @glances
    def are_due(self, *, now: datetime) -> Work[bool]:
        return bool((yield Statement(f"SELECT 1 FROM crons WHERE {_DUE} LIMIT 1", _due_at(now))))

    @writes
    def claim(self, *, now: datetime, lease: timedelta, limit: int) -> Work[list[CronJob]]:
        rows = yield Statement(
            "UPDATE crons SET claimed_until = clew_now() + $3, claimed_by = $5 WHERE id IN"
            f" (SELECT id FROM crons WHERE {_DUE} ORDER BY next_at LIMIT $4 {SKIP_LOCKED}) RETURNING {_COLUMNS}",
            (*_due_at(now), lease // MICROSECOND, limit, self._process),
        )
        return legible(rows, _job, "crons")

    @writes
    def heartbeat(self, claimed: CronJob, *, lease: timedelta) -> Work[None]:
        yield from _lease(claimed, lease, self._process)

    @writes
    def snooze(self, claimed: CronJob, *, wait: timedelta) -> Work[None]:
        yield from _lease(claimed, wait, None)

    @writes
    def release(self, claimed: CronJob, counted: CronJob) -> Work[bool]:
        rows = yield Statement(
            f"UPDATE crons SET next_at = $4, counted_at = $5, claimed_until = 0, claimed_by = NULL{_CLAIMED}",
            (*_claimed(claimed), maybe_micros(counted.next_at), micros(counted.counted_at)),
        )
        return bool(rows)


def _one(cron_id: str, owner: Owner, lock: str = "") -> Work[CronJob]:
    mine, args = owned(owner, 2)
    rows = yield Statement(f"{_SELECT} WHERE id = $1{mine} {lock}", (cron_id, *args))
    if not rows or not _is_seen(job := _job(rows[0]), owner):
        raise _unknown(cron_id)
    return job


def _is_seen(job: CronJob, owner: Owner) -> bool:
    return not isinstance(owner, FilteredOwner) or owner.crons.matches(job.spec.metadata)


def _lease(claimed: CronJob, wait: timedelta, process: str | None) -> Work[None]:
    rows = yield Statement(
        f"UPDATE crons SET claimed_until = clew_now() + $4, claimed_by = $5{_CLAIMED}",
        (*_claimed(claimed), wait // MICROSECOND, process),
    )
    if not rows:
        raise LostLease(f"cron {claimed.id!r} is no longer claimed here")


def _claimed(job: CronJob) -> tuple[str, int, int]:
    return job.id, maybe_micros(job.next_at) or 0, micros(job.counted_at)


def _due_at(now: datetime) -> tuple[int, int]:
    return micros(now), micros(now + SLACK)


def _unknown(cron_id: str) -> NotFound:
    return NotFound(f"no cron {cron_id!r}")


def _changing(job: CronJob) -> tuple[Value, ...]:
    return (
        job.schedule,
        job.timezone,
        maybe_micros(job.end_at),
        int(job.is_enabled),
        int(job.keeps),
        dump(_SPEC.dump_python(job.spec, mode="json")),
        dump(job.input),
        micros(job.updated_at),
        maybe_micros(job.next_at),
        micros(job.counted_at),
    )


def _job(row: Row) -> CronJob:
    return CronJob(
        id=row[0],
        owner=Owner(tenant=row[1], user_id=row[2]),
        thread_id=row[3],
        created_at=moment(row[4]),
        schedule=row[5],
        timezone=row[6],
        end_at=maybe_moment(row[7]),
        is_enabled=bool(row[8]),
        keeps=bool(row[9]),
        spec=_SPEC.validate_python(load(row[10])),
        input=load(row[11]),
        updated_at=moment(row[12]),
        next_at=maybe_moment(row[13]),
        counted_at=moment(row[14]),
    )
