"""The clock by which events are dated: the database's, whatever the clock of this machine says."""

from datetime import UTC, datetime, timedelta

import pytest

from clew.stores.sql.database_clock import DatabaseClock
from clew.stores.sql.work import Database

pytestmark = pytest.mark.anyio

NEAR = timedelta(seconds=2)


@pytest.mark.fault("D2")
@pytest.mark.parametrize("wrong", [timedelta(minutes=-5), timedelta(0), timedelta(days=30)])
async def test_a_wrong_clock_is_corrected(database: Database, wrong: timedelta) -> None:
    clock = DatabaseClock(database, lambda: datetime.now(UTC) + wrong)
    await clock.measure()
    assert abs(clock() - datetime.now(UTC)) < NEAR


async def test_a_clock_that_is_set_is_corrected_by_the_next_measurement(database: Database) -> None:
    wrong = timedelta(0)
    clock = DatabaseClock(database, lambda: datetime.now(UTC) + wrong)
    await clock.measure()
    wrong = timedelta(hours=1)
    assert clock() - datetime.now(UTC) > timedelta(minutes=59)
    await clock.measure()
    assert abs(clock() - datetime.now(UTC)) < NEAR
