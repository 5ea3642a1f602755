"""Times that come again by the clocks of some place."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.errors import Invalid
from clew.domain.schedule import Schedule

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago")
SCHEDULES = ("* * * * *", "30 * * * *", "*/20 * * * *", "30 2 * * *", "0 0 * * *", "15 1-3 * * sun")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def times(schedule: str, zone: str | None, start: str, count: int) -> list[str]:
    """The next times, as clocks there show them."""
    parsed = Schedule.parse(schedule, zone)
    moment = at(start)
    shown = []
    for _ in range(count):
        moment = parsed.next_after(moment)
        shown.append(moment.astimezone(ZoneInfo(zone or "UTC")).strftime("%d %H:%M%z"))
    return shown


def test_without_a_zone_it_is_utc() -> None:
    assert times("0 9 * * *", None, "2026-03-28T12:00+00:00", 2) == ["29 09:00+0000", "30 09:00+0000"]


def test_nine_oclock_is_when_clocks_there_show_nine() -> None:
    shown = times("0 9 * * *", "Europe/Berlin", "2026-03-28T00:00+00:00", 3)
    assert shown == ["28 09:00+0100", "29 09:00+0200", "30 09:00+0200"]


def test_a_time_that_clocks_skip_comes_when_they_have_skipped_it() -> None:
    shown = times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", 2)
    assert shown == ["29 03:30+0200", "30 02:30+0200"]


def test_times_that_become_one_come_once() -> None:
    shown = times("0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00+00:00", 3)
    assert shown == ["29 03:00+0200", "30 02:00+0200", "30 03:00+0200"]


def test_a_time_that_clocks_show_twice_comes_once() -> None:
    shown = times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+00:00", 2)
    assert shown == ["25 02:30+0200", "26 02:30+0100"]
    # Begun between the two, it is past.
    assert times("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10+00:00", 1) == ["26 02:30+0100"]


def test_where_every_hour_counts_none_is_left_out_and_none_is_double() -> None:
    assert times("30 * * * *", "Europe/Berlin", "2026-10-24T23:35+00:00", 4) == [
        "25 02:30+0200",
        "25 02:30+0100",
        "25 03:30+0100",
        "25 04:30+0100",
    ]
    assert times("30 * * * *", "Europe/Berlin", "2026-03-28T23:35+00:00", 3) == [
        "29 01:30+0100",
        "29 03:30+0200",
        "29 04:30+0200",
    ]


@given(
    st.sampled_from(ZONES),
    st.sampled_from(SCHEDULES),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - naive bounds
)
def test_it_always_goes_on(zone: str, schedule: str, moment: datetime) -> None:
    parsed = Schedule.parse(schedule, zone)
    following = parsed.next_after(moment)
    assert moment < following <= moment + timedelta(days=16)
    assert following.tzinfo is UTC
    # Nothing lies between: asked again from just before, it says the same.
    assert parsed.next_after(following - timedelta(seconds=1)) == following


@pytest.mark.parametrize(
    "zone", ["", "Mars/Olympus", "America", "../../etc/passwd", "/etc/localtime", "a\0b", "x" * 300]
)
def test_what_is_no_time_zone(zone: str) -> None:
    with pytest.raises(Invalid) as refused:
        Schedule.parse("* * * * *", zone)
    assert refused.value.field == "timezone"


def test_a_bad_schedule_is_named() -> None:
    with pytest.raises(Invalid, match="'61 \\* \\* \\* \\*'") as refused:
        Schedule.parse("61 * * * *")
    assert refused.value.field == "schedule"
