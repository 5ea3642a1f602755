"""Times that come again, as crontab writes them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.cron import Cron

THURSDAY = datetime(2026, 1, 1, 10, 30, 15, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


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
    assert Cron.parse(expression).next_after(THURSDAY) == at(next_time)


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
        *("0 0 30 feb *", "@often", "1.5 * * * *", "* * mon * *", "100000000000 * * * *"),
    ],
)
def test_what_is_no_such_expression(expression: str) -> None:
    with pytest.raises(ValueError, match=r"expected|never comes"):
        Cron.parse(expression)


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
    cron = Cron.parse(f"{minute} {hour} * * {weekday}")
    found = cron.next_after(moment)
    assert moment < found <= moment + timedelta(days=7, minutes=1)
    assert (found.minute, found.hour, found.isoweekday() % 7) == (minute, hour, weekday)


def test_it_shows_as_it_was_written() -> None:
    assert str(Cron.parse("@daily")) == "@daily"
