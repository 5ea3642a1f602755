"""How long a round has run, read from its log: waits and the time without a process do not count."""

from datetime import timedelta

import pytest

from clew.domain.events import Body, Event, Log, Resolution, RoundStarted
from clew.engine.step import time_spent
from tests.samples import NOW, waits

START = RoundStarted(round=1)
WORK = Log(message="at work")
RECOVERED = Log(message="the round continues", level="warning", ref="recovered:1")
ANSWER = Resolution(call_id="i1", outcome="answered", answer="yes")
DAY = 86_400


@pytest.mark.parametrize(
    ("log", "seconds"),
    [
        ([], 0),
        ([(0, START), (5, WORK)], 5),
        ([(0, START), (5, waits("i1")), (DAY, ANSWER), (DAY + 2, WORK)], 7),
        # The process died after 5 s; another one continued a day later.
        ([(0, START), (5, WORK), (DAY, RECOVERED), (DAY + 2, WORK)], 7),
        ([(0, START), (5, WORK), (DAY, RECOVERED), (DAY + 2, WORK), (2 * DAY, RECOVERED)], 7),
        ([(0, START), (3, waits("i1")), (9, ANSWER), (DAY, RECOVERED), (DAY + 2, WORK)], 5),
        # A round that begins anew after the recovery of the one before.
        ([(0, START), (DAY, RECOVERED), (DAY + 1, START), (DAY + 4, WORK)], 3),
    ],
)
def test_waits_and_times_without_a_process_do_not_count(log: list[tuple[int, Body]], seconds: int) -> None:
    events = [
        Event(thread_id="t1", seq=n, id=str(n), round=1, body=body, at=NOW + timedelta(seconds=at))
        for n, (at, body) in enumerate(log, 1)
    ]
    assert time_spent(events) == timedelta(seconds=seconds)
