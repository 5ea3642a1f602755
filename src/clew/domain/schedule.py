"""Cron schedules: five fields, in UTC or by the clocks of a time zone. The library cronsim counts the times."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from clew.domain.errors import Invalid

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
    for place, (field, expected) in enumerate(zip(fields, _RANGES, strict=True)):
        for part in field.split(","):
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
