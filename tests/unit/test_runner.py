"""What the local runner is made of: slots, back-off after an outage, quarantine of crash loops."""

import asyncio

import pytest

from clew.domain.errors import Conflict, Unavailable
from clew.domain.records import Lease
from clew.runners.backoff import OutageBackoff
from clew.runners.quarantine import Quarantine
from clew.runners.slots import Slots

pytestmark = pytest.mark.anyio


class TestSlots:
    async def test_a_slot_is_occupied_by_a_run_or_reserved(self) -> None:
        slots = Slots(4, lambda: 1)
        assert slots.free == 3
        with slots.reserved(2):
            assert slots.free == 1
            with slots.reserved(1):
                assert slots.free == 0
        assert slots.free == 3

    async def test_a_reservation_that_fails_leaves_its_slot(self) -> None:
        slots = Slots(1, lambda: 0)
        with pytest.raises(Conflict), slots.reserved(1):
            raise Conflict("refused")
        assert slots.free == 1

    async def test_more_runs_than_slots_are_none_free(self) -> None:
        assert Slots(1, lambda: 2).free < 0

    async def test_it_is_settled_once_nothing_is_reserved(self) -> None:
        slots = Slots(2, lambda: 0)
        await slots.settled()
        with slots.reserved(1):
            with slots.reserved(1):
                pass
            waiting = asyncio.ensure_future(slots.settled())
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting


class Outage:
    """A store that is away or not, and a clock."""

    def __init__(self) -> None:
        self.is_away = False
        self.released = 0
        self.now = 100.0
        self.backoff = OutageBackoff(
            probe=self.probe, release=self.release, seconds=3.0, now=lambda: self.now
        )

    async def probe(self) -> None:
        if self.is_away:
            raise Unavailable("away")

    async def release(self) -> None:
        await self.probe()
        self.released += 1


class TestBackoff:
    async def test_without_an_outage_there_is_no_wait(self) -> None:
        outage = Outage()
        outage.is_away = True  # and it is not even probed
        assert await outage.backoff.remaining() <= 0

    async def test_another_error_is_no_outage(self) -> None:
        outage = Outage()
        outage.backoff.met(Conflict("no"))
        assert await outage.backoff.remaining() <= 0

    async def test_after_an_outage_live_runners_renew_first(self) -> None:
        outage = Outage()
        outage.backoff.met(Unavailable("away"))
        outage.is_away = True
        with pytest.raises(Unavailable):
            await outage.backoff.remaining()
        outage.now += 60
        outage.is_away = False
        assert await outage.backoff.remaining() == 3.0  # from the first answer, not from the first error
        outage.now += 2
        assert await outage.backoff.remaining() == 1.0
        outage.now += 2
        assert await outage.backoff.remaining() <= 0
        assert outage.released == 0

    async def test_what_was_claimed_unknowingly_is_released_once(self) -> None:
        outage = Outage()
        outage.backoff.lost_answer()
        outage.backoff.met(Unavailable("away"))
        outage.backoff.met(Conflict("no"))  # is no sign that the store was never away
        outage.is_away = True
        with pytest.raises(Unavailable):
            await outage.backoff.remaining()
        assert outage.backoff.is_unsure
        outage.is_away = False
        await outage.backoff.remaining()
        await outage.backoff.remaining()
        assert (outage.released, outage.backoff.is_unsure) == (1, False)


def lease(recoveries: int) -> Lease:
    return Lease(thread_id="t1", fence=1, recoveries=recoveries)


class TestQuarantine:
    def made(self, max_recoveries: int = 5) -> Quarantine:
        self.now = 100.0
        return Quarantine(max_recoveries=max_recoveries, poll_seconds=10, now=lambda: self.now)

    @pytest.mark.parametrize(("most", "first"), [(5, 4), (2, 1), (1, 1), (0, 1)])
    def test_a_thread_is_a_suspect_before_it_is_given_up(self, most: int, first: int) -> None:
        quarantine = self.made(most)
        assert [quarantine.is_suspect(lease(n)) for n in (0, first - 1, first, first + 1)] == [
            False,
            False,
            True,
            True,
        ]

    def test_every_thread_is_one_or_the_other(self) -> None:
        quarantine = self.made()
        assert quarantine.trusted[0] == 0
        assert quarantine.trusted[1] + 1 == quarantine.suspects[0]

    def test_one_runs_at_a_time(self) -> None:
        quarantine = self.made()
        assert not quarantine.may_query([lease(0), lease(4)])
        assert quarantine.may_query([lease(0), lease(3)])

    def test_they_are_queried_once_a_poll_interval_or_when_one_has_ended(self) -> None:
        quarantine = self.made()
        assert quarantine.may_query([])
        assert not quarantine.may_query([])
        self.now += 10
        assert quarantine.may_query([])
        assert not quarantine.may_query([])
        quarantine.ended()
        assert quarantine.may_query([])

    def test_a_suspect_that_runs_here_costs_no_query(self) -> None:
        quarantine = self.made()
        assert not quarantine.may_query([lease(4)])
        assert quarantine.may_query([])
