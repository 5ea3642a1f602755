"""One run's pen, and what waits to be stored for it, without the run."""

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from clew.checkpointer.deferred_inputs import DeferredInput, DeferredInputs
from clew.domain.errors import Unavailable
from clew.domain.events import StageCompleted
from clew.domain.lifecycle import Stamp
from clew.engine.notifier import LocalNotifier
from clew.engine.recorder import SOON, Recorder
from clew.ports.checkpoints import StoredCheckpoint, Superstep
from tests.databases import open_database, open_store
from tests.samples import opened
from tests.waiting import until

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
        recorder = Recorder(change.thread, fence=0, store=store, notifier=LocalNotifier(), stamp=stamp)
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        try:
            recorder.note(StageCompleted(stage="one"))
            recorder.leave()
            await asyncio.sleep(2 * SOON)
        finally:
            loop.set_task_factory(None)
        assert begun == []


@pytest.mark.parametrize(
    ("error", "name"), [(ValueError("what Ada said"), "ValueError"), (Unavailable("no Ada"), "UNAVAILABLE")]
)
async def test_an_input_that_cannot_be_stored_is_not_quoted(
    caplog: pytest.LogCaptureFixture, error: Exception, name: str
) -> None:
    async def commit(_: list[DeferredInput]) -> None:
        raise error

    row = StoredCheckpoint(thread_id="t1", ns="", id="c1", parent_id=None, body="{}", metadata="{}", apart={})
    inputs = DeferredInputs(commit)
    inputs.add(DeferredInput(Superstep(checkpoint=row), empty_checkpoint(), None))
    await inputs.settle()
    await until(lambda: caplog.messages)
    assert caplog.messages == [f"an input checkpoint of thread t1 was not stored: {name}"]
    assert "Ada" not in caplog.text
