"""The run queue, without the server around it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import pytest

from clew.domain.errors import NotFound
from clew.domain.events import RunSpec
from clew.domain.runs import RunRequest, RunStatus
from clew.engine.notifier import LocalNotifier
from clew.engine.run_queue import RunQueue
from clew.stores.sql.conversations import ConversationRows
from clew.stores.sql.inbox import InboxRows
from clew.stores.sql.work import Database
from tests.databases import open_database, open_store, query
from tests.samples import ANN, NOW, new_id, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    async with open_database("memory") as db:
        yield db


@pytest.fixture
def queue(database: Database) -> RunQueue:
    """Its loop does not run, so no run in it is ever started."""
    return RunQueue(
        inbox=InboxRows(database),
        conversations=ConversationRows(database),
        store=open_store(database),
        commands=cast(Any, None),
        notifier=LocalNotifier(),
        clock=lambda: NOW,
        new_id=new_id,
        stopping=asyncio.Event(),
        poll_seconds=1,
        lease=timedelta(seconds=1),
    )


def queued(run_id: str, *, later: bool = False) -> RunRequest:
    return RunRequest(
        spec=RunSpec(run_id=run_id, assistant_id="a1", graph="echo", modes=("values",)),
        input={"run": run_id},
        message=None,
        user_id="ann",
        asked_at=NOW,
        not_before=NOW + timedelta(hours=1) if later else None,
    )


async def test_a_queued_run_is_listed_as_it_was_asked_for(database: Database, queue: RunQueue) -> None:
    await open_store(database).commit(opened("t1"))
    await queue.put("t1", queued("r1", later=True))
    assert not await queue.is_awaited("t1")
    await queue.put("t1", queued("r2"))
    assert await queue.is_awaited("t1")
    runs = await queue.list("t1")
    assert [run.spec for run in runs] == [queued("r1").spec, queued("r2").spec]
    assert [(run.input, run.status) for run in runs] == [
        ({"run": "r1"}, RunStatus.PENDING),
        ({"run": "r2"}, RunStatus.PENDING),
    ]


async def test_a_run_is_withdrawn_once_and_forgotten_when_told_so(
    database: Database, queue: RunQueue
) -> None:
    await open_store(database).commit(opened("t1"))
    await queue.put("t1", queued("r1"))
    assert await queue.withdraw("t1", "r1")
    assert not await queue.withdraw("t1", "r1")
    assert not await queue.withdraw("t1", "never")
    assert not await queue.is_awaited("t1")
    assert [run.status for run in await queue.list("t1")] == [RunStatus.INTERRUPTED]
    await queue.discard("t1", "r1")
    assert await queue.list("t1") == []


async def test_nothing_waits_for_a_thread_that_was_deleted_meanwhile(
    database: Database, queue: RunQueue
) -> None:
    """The client saw the thread a moment before."""
    store = open_store(database)
    await store.commit(opened("t1"))
    await store.tombstone("t1", ANN, now=NOW)
    for later in (False, True):
        with pytest.raises(NotFound):
            await queue.put("t1", queued("r1", later=later))
    for table in ("inbox", "conversations"):
        assert len(await query(database, f"SELECT 1 FROM {table}")) == 0
