"""Cron schedules: what is accepted, when they come next, and what a change of clocks does to them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.crons import Schedule
from clew.domain.errors import Invalid

THURSDAY = datetime(2026, 1, 1, 10, 30, 15, tzinfo=UTC)
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


@pytest.mark.fault("D3")
def test_a_time_that_clocks_skip_comes_when_they_have_skipped_it() -> None:
    shown = times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", 2)
    assert shown == ["29 03:30+0200", "30 02:30+0200"]


def test_times_that_become_one_come_once() -> None:
    shown = times("0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00+00:00", 3)
    assert shown == ["29 03:00+0200", "30 02:00+0200", "30 03:00+0200"]


@pytest.mark.fault("D3")
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


@pytest.mark.parametrize(
    ("expression", "next_time"),
    [
        ("* * * * *", "2026-01-01T10:31"),
        ("30 10 * * *", "2026-01-02T10:30"),
        ("0 0 * * *", "2026-01-02T00:00"),
        ("@daily", "2026-01-02T00:00"),
        ("*/15 * * * *", "2026-01-01T10:45"),
        ("5/20 * * * *", "2026-01-01T10:45"),
        ("0 3,9-11/2 * * *", "2026-01-01T11:00"),
        ("0 0 * * mon", "2026-01-05T00:00"),
        ("0 0 * * 7", "2026-01-04T00:00"),
        ("0 0 * * sun", "2026-01-04T00:00"),
        ("0 12 15 * *", "2026-01-15T12:00"),
        ("0 12 31 feb,MAR *", "2026-03-31T12:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 13 * fri", "2026-01-02T00:00"),  # the 13th or a Friday
        ("0 0 */2 * fri", "2026-01-09T00:00"),  # a star restricts nothing: both must hold
    ],
)
def test_when_it_comes_next(expression: str, next_time: str) -> None:
    assert Schedule.parse(expression).next_after(THURSDAY) == at(f"{next_time}+00:00")


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *(
            "a * * * *",
            "*/0 * * * *",
            "5-1 * * * *",
            "1,,2 * * * *",
            "-1 * * * *",
            "1- * * * *",
            "\u0661 * * * *",
        ),
        *("* * L * *", "* * LW * *", "* * * * 5L", "* * * * mon#2", "* * * * fr\u0131", "1-1000 * * * *"),
        *("0 0 30 feb *", "@often", "1.5 * * * *", "* * mon * *", "100000000000 * * * *"),
    ],
)
def test_what_is_no_such_expression(expression: str) -> None:
    with pytest.raises(Invalid, match=r"expected|never comes"):
        Schedule.parse(expression)


@given(
    st.integers(0, 59),
    st.integers(0, 23),
    st.integers(0, 6),
    st.integers(0, 20 * 365 * 24 * 60).map(timedelta),
)
def test_it_is_later_and_nothing_was_left_out(
    minute: int, hour: int, weekday: int, offset: timedelta
) -> None:
    moment = THURSDAY + timedelta(minutes=offset.days)
    schedule = Schedule.parse(f"{minute} {hour} * * {weekday}")
    found = schedule.next_after(moment)
    assert moment < found <= moment + timedelta(days=7, minutes=1)
    assert (found.minute, found.hour, found.isoweekday() % 7) == (minute, hour, weekday)


def test_it_shows_as_it_was_written() -> None:
    assert str(Schedule.parse("@daily")) == "@daily"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("* * *", "expected five fields: minute hour day month weekday"),
        ("61 * * * *", "expected 0 to 59, not '61'"),
        ("* * 1,32 * *", "expected 1 to 31, not '32'"),
        ("* * * * 5-1", "expected 0 to 7, not '5-1'"),
        ("0 0 31 4,6 *", "that day never comes"),
    ],
)
def test_a_refusal_names_the_part_and_its_range(expression: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        Schedule.parse(expression)
    assert str(refused.value) == f"no schedule, {expression!r}: {reason}"


def test_a_range_of_one_value_with_a_step_is_that_value() -> None:
    assert times("5-5/15 * * * *", None, "2026-01-01T10:00+00:00", 2) == ["01 10:05+0000", "01 11:05+0000"]


def test_a_day_beyond_a_change_of_clocks_begins_at_midnight_there() -> None:
    assert times("* * * 11 *", "America/New_York", "2026-02-01T00:00+00:00", 1) == ["01 00:00-0400"]


def test_a_day_that_is_rare_comes() -> None:
    expression = "0 0 29 2 */7"  # a Sunday
    after = at("2032-03-01T00:00+00:00")
    assert Schedule.parse(expression).next_after(after) == at("2060-02-29T00:00+00:00")
