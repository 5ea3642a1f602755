"""Which threads are due, and when a clock is not to be believed."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.retention import (
    JUMP,
    SETTLING,
    Reason,
    Selection,
    Ticks,
    is_due,
    selection,
    tick,
    trash,
    written_at,
)
from clew.domain.thread import Owner, Status, Thread
from tests.samples import ANN, NOW, opened

DAY = timedelta(days=1)


def thread(
    status: Status = Status.COMPLETED, *, ttl: timedelta | None = 30 * DAY, unseen: timedelta = 40 * DAY
) -> Thread:
    seen = NOW - unseen
    made = opened(ttl=ttl).thread
    return replace(made, status=status, last_accessed_at=seen, expires_at=None if ttl is None else seen + ttl)


def due(one: Thread, wanted: Selection, *, has_deadline: bool = False, has_future_runs: bool = False) -> bool:
    return is_due(one, wanted, has_deadline=has_deadline, has_future_runs=has_future_runs)


EXPIRED = selection(now=NOW, days_old=None)


@pytest.mark.accept("003-18")
def test_whatever_does_not_run_is_due_when_its_time_is_over() -> None:
    assert [status for status in Status if due(thread(status), EXPIRED)] == [
        status for status in Status if status is not Status.RUNNING
    ]


@pytest.mark.accept("003-4")
def test_an_age_counts_from_the_last_look_and_else_each_threads_own_time() -> None:
    long, short = thread(ttl=90 * DAY), thread(ttl=7 * DAY, unseen=10 * DAY)
    assert (due(long, EXPIRED), due(short, EXPIRED)) == (False, True)
    week = selection(now=NOW, days_old=7)
    assert (due(long, week), due(short, week)) == (True, True)
    month = selection(now=NOW, days_old=30)
    assert (due(long, month), due(short, month)) == (True, False)


def test_what_is_kept_is_kept_whatever_its_age() -> None:
    for wanted in (EXPIRED, selection(now=NOW, days_old=1)):
        assert not due(thread(ttl=None, unseen=5000 * DAY), wanted)


@pytest.mark.accept("003-20")
def test_what_waits_with_a_deadline_is_not_due_before_it() -> None:
    assert not due(thread(Status.BLOCKED), EXPIRED, has_deadline=True)
    assert due(thread(Status.BLOCKED), EXPIRED)
    assert due(thread(Status.COMPLETED), EXPIRED, has_deadline=True), "of an earlier round, and answered"


def test_what_is_to_run_later_is_not_due_before() -> None:
    for wanted in (EXPIRED, selection(now=NOW, days_old=1)):
        for status in Status:
            assert not due(thread(status), wanted, has_future_runs=True)


@pytest.mark.accept("003-35")
def test_a_selection_of_an_owner_is_of_no_other() -> None:
    for owner, mine in (
        (ANN, True),
        (Owner(tenant="acme"), True),
        (Owner(tenant="acme", user_id="bob"), False),
        (Owner(tenant="rival", user_id="ann"), False),
    ):
        assert due(thread(), selection(now=NOW, days_old=None, owner=owner)) is mine


def test_the_trash_is_emptied_after_a_week() -> None:
    assert trash(now=NOW) == Selection(reason=Reason.DELETED, before=NOW - 7 * DAY)


class TestClock:
    def test_a_clock_that_goes_on_is_believed(self) -> None:
        ticks = tick(None, now=NOW)
        for hours in range(1, 60):
            now = NOW + timedelta(hours=hours)
            ticks = tick(ticks, now=now)
            assert ticks.is_settled(now=now)

    def test_so_is_one_that_is_looked_at_once_a_day(self) -> None:
        """By a job that starts a day after the last one has ended."""
        ticks, now = tick(None, now=NOW), NOW
        for _ in range(30):
            now += DAY + timedelta(minutes=10)
            ticks = tick(ticks, now=now)
            assert ticks.is_settled(now=now)

    @pytest.mark.parametrize("jump", [30 * DAY, 26 * timedelta(hours=1), -30 * DAY, -26 * timedelta(hours=1)])
    def test_one_that_jumped_is_not_until_it_has_settled(self, jump: timedelta) -> None:
        now = NOW + jump
        ticks = tick(tick(None, now=NOW), now=now)
        assert not ticks.is_settled(now=now)
        for minutes in (1, 30, 59):
            later = now + timedelta(minutes=minutes)
            ticks = tick(ticks, now=later)
            assert not ticks.is_settled(now=later)
        assert tick(ticks, now=now + SETTLING).is_settled(now=now + SETTLING)

    def test_one_that_is_put_right_has_jumped_again(self) -> None:
        wrong = tick(tick(None, now=NOW), now=NOW + 30 * DAY)
        right = tick(wrong, now=NOW + timedelta(minutes=5))
        assert right == Ticks(last_at=NOW + timedelta(minutes=5), jumped_at=NOW + timedelta(minutes=5))

    @given(st.lists(st.integers(-(10**6), 10**6).map(lambda n: timedelta(minutes=n)), max_size=20))
    def test_whatever_it_does_a_jump_is_never_followed_by_trust(self, moves: list[timedelta]) -> None:
        ticks, now = tick(None, now=NOW), NOW
        for move in moves:
            before, now = now, now + move
            ticks = tick(ticks, now=now)
            assert not (abs(now - before) > JUMP and ticks.is_settled(now=now))


@pytest.mark.parametrize("body", ["", "x", "{}", "[]", "null", '{"ts": 5}', '{"ts": "yesterday"}'])
def test_a_checkpoint_that_cannot_be_read_has_no_age(body: str) -> None:
    assert written_at(body) is None


def test_a_checkpoint_says_when_it_was_made() -> None:
    assert written_at(f'{{"ts": "{NOW.isoformat()}"}}') == NOW
    assert written_at(f'{{"ts": "{NOW.replace(tzinfo=None).isoformat()}"}}') == NOW
