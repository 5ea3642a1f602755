"""Times that come again, as crontab writes them: five fields, in UTC."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

MACROS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# The 29th of February comes back after eight years at the latest.
_FAR = timedelta(days=366 * 8)


@dataclass(frozen=True, slots=True)
class Cron:
    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    # Crontab's oldest rule: where both kinds of day are restricted, either will do.
    either_day: bool

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for what is no such expression, or for a day that never comes."""
        fields = MACROS.get(text, text).lower().split()
        if len(fields) != 5:
            raise ValueError("expected five fields: minute hour day month weekday")
        minute, hour, day, month, weekday = fields
        cron = cls(
            text=text,
            minutes=_field(minute, 0, 59),
            hours=_field(hour, 0, 23),
            days=_field(day, 1, 31),
            months=_field(month, 1, 12, names=_MONTHS, first=1),
            weekdays=frozenset(number % 7 for number in _field(weekday, 0, 7, names=_DAYS)),
            either_day=not day.startswith("*") and not weekday.startswith("*"),
        )
        cron.next_after(datetime(2024, 1, 1, tzinfo=UTC))
        return cron

    def next_after(self, moment: datetime) -> datetime:
        """The first time after this moment, which must be in UTC."""
        at = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = moment + _FAR
        while at < end:
            if at.month not in self.months:
                at = (at.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
            elif not self._on_day(at):
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            elif at.hour not in self.hours:
                at = at.replace(minute=0) + timedelta(hours=1)
            elif at.minute not in self.minutes:
                at += timedelta(minutes=1)
            else:
                return at
        raise ValueError("that day never comes")

    def comes_at(self, at: datetime) -> bool:
        """Whether this minute is one of its times."""
        return (
            at.month in self.months
            and self._on_day(at)
            and at.hour in self.hours
            and at.minute in self.minutes
        )

    def _on_day(self, at: datetime) -> bool:
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return day or weekday if self.either_day else day and weekday


def _field(text: str, low: int, high: int, *, names: tuple[str, ...] = (), first: int = 0) -> frozenset[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        begin, dash, end = (str(low), "-", str(high)) if span == "*" else span.partition("-")
        start = _number(begin, names, first)
        # `5/15` goes on to the end, `5` is only itself.
        stop = _number(end, names, first) if dash else high if slash else start
        stride = _number(step, (), 0) if slash else 1
        if not (low <= start <= stop <= high and stride > 0):
            raise ValueError(f"expected {low} to {high}, not {part!r}")
        numbers.update(range(start, stop + 1, stride))
    return frozenset(numbers)


def _number(text: str, names: tuple[str, ...], first: int) -> int:
    if text in names:
        return names.index(text) + first
    if not (text.isascii() and text.isdigit() and len(text) <= 2):
        raise ValueError(f"expected a number, not {text!r}")
    return int(text)
