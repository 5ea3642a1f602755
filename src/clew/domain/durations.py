"""Durations: the longest one allowed; a longer one cannot be added to a date."""

from datetime import UTC, datetime, timedelta

from clew.domain.errors import Invalid

LONGEST = timedelta(days=36_600)
LONGEST_MINUTES = LONGEST // timedelta(minutes=1)


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
