"""A watcher that is told what happens while it looks at what is open already."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from clew.api.streams import LiveEventOut
from clew.api.thread_access import ThreadAccess
from clew.api.watch import Watch
from clew.domain.thread import Owner
from clew.ports.notifier import Subscription
from clew.server.database import utc_now
from tests.app import open_house
from tests.waiting import until

pytestmark = pytest.mark.anyio


class Late:
    """A subscription that is rung a little after what it is rung for."""

    def __init__(self, subscription: Subscription) -> None:
        self._bell = subscription
        self.is_late = True

    async def wait(self, seconds: float) -> bool:
        return await self._bell.wait(seconds)

    def rung(self) -> Mapping[str, int | None]:
        return {} if self.is_late else self._bell.rung()


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("graph", ["slow", "gated"])
async def test_what_begins_while_it_looks_around_is_told_from_its_beginning_and_once(
    tmp_path: Path, graph: str, is_late: bool
) -> None:
    told: list[LiveEventOut] = []

    async def tell(event: LiveEventOut) -> None:
        told.append(event)

    async with open_house("memory", tmp_path) as house:
        threads = house.app.stores.threads
        watch = Watch(threads, ThreadAccess(threads, utc_now), Owner(), (), tell)
        with house.app.execution.notifier.subscribe() as subscription:
            before = await house.run("gated", log=[])  # waits for somebody when the watcher comes
            subscription.rung()
            thread = await house.start(graph, log=[])
            if graph != "slow":
                thread = await house.rest(thread)
            late = Late(subscription)
            late.is_late = is_late
            await watch.announce(late)
            late.is_late = False
            telling = asyncio.create_task(watch.tell_on(late))
            try:
                await until(
                    lambda: not sum(event.workflow_id == thread.id for event in told) < thread.last_seq
                )
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
        if graph == "slow":
            await house.app.execution.commands.stop(thread.id, None)
    seqs = [event.sequence or 0 for event in told if event.workflow_id == thread.id][: thread.last_seq]
    # What waits is told first if it was seen before the subscription was heard.
    assert (sorted(seqs) if is_late else seqs) == list(range(1, thread.last_seq + 1))
    assert [event.event_type for event in told if event.workflow_id == before.id] == ["approval_required"]
