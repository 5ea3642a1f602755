"""The clock by which events are dated: the database's, whatever the clock of this machine says."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import cast

import anyio
import pytest

from clew.stores.sql.database_clock import DatabaseClock
from clew.stores.sql.work import Database, Work

pytestmark = pytest.mark.anyio

NEAR = timedelta(seconds=2)


@pytest.mark.fault("D2")
@pytest.mark.parametrize("wrong", [timedelta(minutes=-5), timedelta(0), timedelta(days=30)])
async def test_a_wrong_clock_is_corrected(database: Database, wrong: timedelta) -> None:
    clock = DatabaseClock(database, lambda: datetime.now(UTC) + wrong)
    await clock.measure()
    assert abs(clock() - datetime.now(UTC)) < NEAR


class LateDatabase:
    """A database whose question travels slowly, and its answer in no time; or the other way round."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.before = self.after = 0.0

    async def glance(self, work: Callable[[], Work[int]]) -> int:
        await anyio.sleep(self.before)
        answer = await self._database.glance(work)
        await anyio.sleep(self.after)
        return answer


async def test_a_slow_answer_does_not_set_the_clock_back(database: Database) -> None:
    """Two things that follow each other are dated in this order."""
    late = LateDatabase(database)
    clock = DatabaseClock(cast(Database, late), lambda: datetime.now(UTC))
    for late.before, late.after in ((0.2, 0.0), (0.0, 0.2)):
        await clock.measure()
        assert abs(clock() - datetime.now(UTC)) < timedelta(milliseconds=50)


async def test_a_clock_that_is_set_is_corrected_by_the_next_measurement(database: Database) -> None:
    wrong = timedelta(0)
    clock = DatabaseClock(database, lambda: datetime.now(UTC) + wrong)
    await clock.measure()
    wrong = timedelta(hours=1)
    assert clock() - datetime.now(UTC) > timedelta(minutes=59)
    await clock.measure()
    assert abs(clock() - datetime.now(UTC)) < NEAR
