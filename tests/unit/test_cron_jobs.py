"""When a run that is ordered again and again is due."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clew.domain.crons import SLACK, CronJob, CronSearch, counted, is_time
from clew.domain.errors import Invalid
from clew.domain.events import RunSpec
from clew.domain.thread import Owner

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
JOB = CronJob(
    id="c",
    owner=Owner(),
    spec=RunSpec(run_id="", assistant_id="a", graph="g", metadata={"team": {"name": "x"}}),
    schedule="0 * * * *",
    created_at=NOON,
    updated_at=NOON,
    counted_at=NOON,
)


def test_the_next_time_is_after_now_however_many_went_by() -> None:
    late = counted(replace(JOB, next_at=NOON - timedelta(days=900)), now=NOON)
    assert (late.next_at, late.counted_at) == (NOON + HOUR, NOON)


def test_after_the_end_there_is_no_next_time() -> None:
    assert counted(replace(JOB, end_at=NOON + HOUR), now=NOON).next_at == NOON + HOUR
    assert counted(replace(JOB, end_at=NOON + HOUR - timedelta(seconds=1)), now=NOON).next_at is None


@pytest.mark.parametrize("wrong", [{"schedule": "often"}, {"timezone": "Mars"}])
def test_what_cannot_be_counted_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        counted(replace(JOB, **wrong), now=NOON)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"next_at": NOON}, True),
        ({"next_at": NOON - timedelta(days=900)}, True),  # missed, and made up for once
        ({"next_at": NOON + timedelta(seconds=1)}, False),
        ({"next_at": None}, False),
        ({"next_at": NOON, "is_enabled": False}, False),
        ({"next_at": NOON, "end_at": NOON}, True),
        ({"next_at": NOON - HOUR, "end_at": NOON - timedelta(seconds=1)}, False),  # missed, and over
        ({"next_at": NOON, "counted_at": NOON + SLACK}, True),
        ({"next_at": NOON, "counted_at": NOON + SLACK * 2}, False),  # by a clock that was wrong
    ],
)
def test_when_it_is_time(changes: dict[str, Any], expected: bool) -> None:
    assert is_time(replace(JOB, **changes), now=NOON) is expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, True),
        ({"assistant_id": "a", "thread_id": "t", "is_enabled": True}, True),
        ({"assistant_id": "b"}, False),
        ({"thread_id": "u"}, False),
        ({"is_enabled": False}, False),
        ({"metadata": {"team": {}}}, True),
        ({"metadata": {"team": {"name": "y"}}}, False),
    ],
)
def test_what_a_search_wants(wanted: dict[str, Any], expected: bool) -> None:
    assert CronSearch(**wanted).wants(replace(JOB, thread_id="t")) is expected


def test_two_pages_never_show_the_same_one() -> None:
    jobs = [replace(JOB, id=str(n), next_at=NOON if n % 2 else None) for n in range(7)]
    shown = [
        one.id
        for offset in range(0, 8, 2)
        for one in CronSearch(sort_by="next_run_date", descending=False, limit=2, offset=offset).page(jobs)
    ]
    assert shown == ["1", "3", "5", "0", "2", "4", "6"]
