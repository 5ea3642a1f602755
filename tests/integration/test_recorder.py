"""One run's pen, without the run."""

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from clew.domain.events import StageCompleted
from clew.domain.lifecycle import Stamp
from clew.engine.bus import LocalBus
from clew.engine.recorder import SOON, Recorder
from tests.databases import open_database, open_store
from tests.samples import opened

pytestmark = pytest.mark.anyio


def stamp() -> Stamp:
    return Stamp(datetime.now(UTC), lambda: uuid.uuid4().hex)


async def test_a_run_that_is_left_begins_nothing_more() -> None:
    """Begun while the process ends, it would be cut off before its first step."""
    begun: list[Any] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        begun.append(coro)
        return asyncio.Task(coro, loop=loop, **more)

    async with open_database("memory") as db:
        store = open_store(db)
        change = opened("t1")
        await store.commit(change)
        recorder = Recorder(change.thread, fence=0, store=store, bus=LocalBus(), stamp=stamp)
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        try:
            recorder.note(StageCompleted(stage="one"))
            recorder.leave()
            await asyncio.sleep(2 * SOON)
        finally:
            loop.set_task_factory(None)
        assert begun == []
