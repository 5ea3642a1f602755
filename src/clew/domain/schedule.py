"""Times that come again by the clocks of some place, which people put forward and back."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self
from zoneinfo import ZoneInfo

from clew.domain.cron import Cron
from clew.domain.errors import Invalid

EVERY_HOUR = frozenset(range(24))


@dataclass(frozen=True, slots=True)
class Schedule:
    cron: Cron
    zone: ZoneInfo | None = None  # UTC without one

    @classmethod
    def parse(cls, text: str, timezone: str | None = None) -> Self:
        """Raises Invalid, which names what is wrong."""
        try:
            cron = Cron.parse(text)
        except ValueError as exc:
            raise Invalid(f"no schedule, {text!r}: {exc}", field="schedule") from None
        return cls(cron, None if timezone is None else _zone(timezone))

    def next_after(self, moment: datetime) -> datetime:
        """The first time after this moment, both in UTC.

        Where hours are named, a time that clocks skip comes when they have skipped it, and one that they show twice
        comes once. Where every hour counts, clocks may do what they like: the hours go on.
        """
        if self.zone is None:
            return self.cron.next_after(moment)
        here = moment.astimezone(self.zone)
        wall = here.replace(tzinfo=UTC, fold=0)
        if self.cron.hours == EVERY_HOUR:
            at = self.cron.next_after(wall).replace(tzinfo=UTC) - (here.utcoffset() or UTC.utcoffset(None))
            if self.cron.comes_at(at.astimezone(self.zone)):
                return at
        while True:
            wall = self.cron.next_after(wall)
            at = wall.replace(tzinfo=self.zone).astimezone(UTC)
            if at > moment:
                return at


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        raise Invalid(f"no time zone {name!r}", field="timezone") from None
