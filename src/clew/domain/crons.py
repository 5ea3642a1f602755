"""Cron jobs: scheduled runs, when each is due, and when it is due next."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from clew.domain.errors import Invalid
from clew.domain.events import RunSpec
from clew.domain.items import contains
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


MACROS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
_RANGES = ("0 to 59", "0 to 23", "1 to 31", "1 to 12", "0 to 7")
# cronsim also takes seconds, `L` and `#`, which crontab and other cron libraries read differently or not at all.
_PART = re.compile(r"(?:\*|(?:\d{1,2}|[a-z]{3})(?:-(?:\d{1,2}|[a-z]{3}))?)(?:/\d{1,2})?", re.ASCII)
# cronsim reads `5-5/15` as `5/15`, which goes on to the end of the range.
_ONE_VALUE = re.compile(r"\b(\w+)-\1/\d+")
_EVERY_HOUR = 24
_ANY_TIME = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Schedule:
    """As written, as cronsim reads it, and the zone whose clocks count; UTC without one."""

    text: str
    expression: str
    zone: ZoneInfo | None = None

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str, timezone: str | None = None) -> Self:
        """Raises Invalid, which names what is wrong: a field out of its range, a day that never comes, a zone."""
        try:
            expression = _read(text)
        except ValueError as exc:
            raise Invalid(f"no schedule, {text!r}: {exc}", field="schedule") from None
        return cls(text, expression, None if timezone is None else _zone(timezone))

    def next_after(self, moment: datetime) -> datetime:
        """The first time after this moment, both in UTC.

        With named hours, a time that clocks skip comes after the skip by the same minutes, and a time that clocks show
        twice comes once. With every hour, the schedule follows real hours through both changes.
        """
        if self.zone is None:
            return next(CronSim(self.expression, moment))
        # cronsim counts on the wall clock, as if it were UTC: its own rules for a change of clocks are Debian's, which
        # move a skipped time to the first minute after the skip.
        here = moment.astimezone(self.zone)
        times = CronSim(self.expression, here.replace(tzinfo=UTC, fold=0))
        wall = next(times)
        as_if_unchanged = wall - (here.utcoffset() or timedelta())
        while (at := wall.replace(tzinfo=self.zone).astimezone(UTC)) <= moment:
            wall = next(times)
        if len(times.hours) == _EVERY_HOUR and self._comes_at(as_if_unchanged.astimezone(self.zone)):
            return min(at, as_if_unchanged)
        return at

    def _comes_at(self, here: datetime) -> bool:
        wall = here.replace(tzinfo=UTC, fold=0)
        return next(CronSim(self.expression, wall - timedelta(seconds=1))) == wall


def _read(text: str) -> str:
    """The expression for cronsim. Raises ValueError with what was expected."""
    fields = MACROS.get(text, text).lower().split()
    if len(fields) != len(_RANGES):
        raise ValueError("expected five fields: minute hour day month weekday")
    for place, (given, expected) in enumerate(zip(fields, _RANGES, strict=True)):
        for part in given.split(","):
            alone = ["*"] * len(fields)
            alone[place] = part
            if not (_PART.fullmatch(part) and _is_valid(alone)):
                raise ValueError(f"expected {expected}, not {part!r}")
    if not _is_valid(fields):
        raise ValueError("that day never comes")
    return _ONE_VALUE.sub(r"\1", " ".join(fields))


def _is_valid(fields: list[str]) -> bool:
    try:
        CronSim(" ".join(fields), _ANY_TIME)
    except CronSimError:
        return False
    return True


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        raise Invalid(f"no time zone {name!r}", field="timezone") from None
