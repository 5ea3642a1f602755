"""Cron jobs: scheduled runs, when each is due, and when it is due next."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from clew.domain.events import RunSpec
from clew.domain.metadata import contains
from clew.domain.schedule import Schedule
from clew.domain.thread import Json, Owner

SortKey: TypeAlias = Literal[
    "cron_id", "assistant_id", "thread_id", "next_run_date", "end_time", "created_at", "updated_at"
]

# Clocks of several machines differ; by more than this, one of them was wrong.
SLACK = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CronJob:
    id: str
    owner: Owner
    spec: RunSpec  # without the id of a run: each time has its own
    input: Json = None
    schedule: str
    timezone: str | None = None
    thread_id: str | None = None  # without one, each time has a thread of its own
    keeps: bool = False  # that thread stays after the run
    end_at: datetime | None = None
    is_enabled: bool = True
    created_at: datetime
    updated_at: datetime
    next_at: datetime | None = None
    counted_at: datetime  # when that was found out


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSearch:
    """A search for cron jobs: filters, sort order and page."""

    assistant_id: str | None = None
    thread_id: str | None = None
    is_enabled: bool | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)
    sort_by: SortKey = "created_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0

    def wants(self, job: CronJob) -> bool:
        return (
            self.assistant_id in (None, job.spec.assistant_id)
            and self.thread_id in (None, job.thread_id)
            and self.is_enabled in (None, job.is_enabled)
            and contains(job.spec.metadata, self.metadata)
        )

    def page(self, jobs: Iterable[CronJob]) -> list[CronJob]:
        """What is equal in the order stands by id, so that two pages never show the same one."""
        ordered = sorted(jobs, key=lambda one: one.id)
        ordered.sort(key=lambda one: _sort_key(one, self.sort_by), reverse=self.descending)
        return ordered[self.offset : self.offset + self.limit]


def counted(job: CronJob, *, now: datetime) -> CronJob:
    """With its next time, which is after now however many went by: what was missed is not made up for.

    Raises Invalid for a schedule or a time zone that is none.
    """
    at = Schedule.parse(job.schedule, job.timezone).next_after(now)
    is_past = job.end_at is not None and at > job.end_at
    return replace(job, next_at=None if is_past else at, counted_at=now)


def is_time(job: CronJob, *, now: datetime) -> bool:
    """Whether a run is to begin. One that was missed is begun late, unless the job has ended meanwhile.

    A time that was counted by a clock far ahead of this one proves nothing.
    """
    if not job.is_enabled or job.next_at is None or job.counted_at > now + SLACK:
        return False
    return job.next_at <= now and (job.end_at is None or now <= job.end_at)


def _sort_key(job: CronJob, by: SortKey) -> Any:
    match by:
        case "cron_id":
            return job.id
        case "assistant_id":
            return job.spec.assistant_id
        case "thread_id":
            return job.thread_id or ""
        case "next_run_date":
            return job.next_at or _NEVER
        case "end_time":
            return job.end_at or _NEVER
        case "created_at":
            return job.created_at
        case "updated_at":
            return job.updated_at


_NEVER = datetime.max.replace(tzinfo=UTC)
