"""What runs streamed: kept in order, by number, for a while, and gone with the thread."""

from datetime import timedelta

import pytest

from clew.domain.errors import NotFound
from clew.domain.events import RunSpec
from clew.domain.records import StreamPart
from clew.engine.notifier import LocalNotifier
from clew.engine.stream_parts import LocalStreamParts
from clew.ports.streams import StreamPartStore
from clew.ports.threads import Store
from clew.stores.sql.stream_parts import PAGE, StreamPartRows
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import ANN, NOW, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
def chunks(database: Database) -> StreamPartStore:
    return StreamPartRows(database)


def parts(first: int, last: int) -> list[StreamPart]:
    return [
        StreamPart(number, "values|a:1", f'{{"é": {number}}}'.encode()) for number in range(first, last + 1)
    ]


async def test_parts_are_read_after_any_number(store: Store, chunks: StreamPartStore) -> None:
    await store.commit(opened("t1"))
    await chunks.add("t1", "r1", parts(1, 3), now=NOW)
    await chunks.add("t1", "r1", parts(10_000_000_001, 10_000_000_002), now=NOW)
    everything = parts(1, 3) + parts(10_000_000_001, 10_000_000_002)
    assert await chunks.after("t1", "r1", 0) == everything
    assert await chunks.after("t1", "r1", 2) == everything[2:]
    assert await chunks.after("t1", "r1", 10_000_000_002) == []


async def test_parts_are_of_one_run_of_one_thread(store: Store, chunks: StreamPartStore) -> None:
    for thread_id in ("t1", "t2"):
        await store.commit(opened(thread_id))
    await chunks.add("t1", "r1", parts(1, 1), now=NOW)
    await chunks.add("t1", "r2", parts(2, 2), now=NOW)
    assert await chunks.after("t1", "r1", 0) == parts(1, 1)
    assert await chunks.after("t1", "r2", 0) == parts(2, 2)
    assert await chunks.after("t2", "r1", 0) == []


async def test_what_is_kept_stays_as_it_was_told_first(store: Store, chunks: StreamPartStore) -> None:
    await store.commit(opened("t1"))
    await chunks.add("t1", "r1", parts(1, 2), now=NOW)
    await chunks.add("t1", "r1", [StreamPart(2, "other", b"{}"), *parts(3, 3)], now=NOW)
    assert await chunks.after("t1", "r1", 0) == parts(1, 3)


async def test_a_reader_who_is_far_behind_gets_a_page_at_a_time(
    store: Store, chunks: StreamPartStore
) -> None:
    await store.commit(opened("t1"))
    await chunks.add("t1", "r1", parts(1, PAGE + 10), now=NOW)
    assert await chunks.after("t1", "r1", 0) == parts(1, PAGE)
    assert await chunks.after("t1", "r1", PAGE) == parts(PAGE + 1, PAGE + 10)


async def test_old_parts_are_forgotten_some_at_a_time(store: Store, chunks: StreamPartStore) -> None:
    await store.commit(opened("t1"))
    await chunks.add("t1", "r1", parts(1, 5), now=NOW)
    await chunks.add("t1", "r2", parts(6, 7), now=NOW + timedelta(hours=1))
    older_than = NOW + timedelta(minutes=1)
    assert await chunks.forget(older_than=older_than, limit=3) == 3
    assert await chunks.forget(older_than=older_than, limit=3) == 2
    assert await chunks.forget(older_than=older_than, limit=3) == 0
    assert await chunks.after("t1", "r2", 0) == parts(6, 7)


async def test_parts_go_with_their_thread(store: Store, chunks: StreamPartStore, database: Database) -> None:
    await store.commit(opened("t1"))
    await chunks.add("t1", "r1", parts(1, 5), now=NOW)
    await store.tombstone("t1", ANN, now=NOW)
    while await store.purge(only="t1"):
        pass
    for gone in ("t1", "never"):
        with pytest.raises(NotFound):
            await chunks.add(gone, "r1", parts(6, 6), now=NOW)
    assert len(await query(database, "SELECT 1 FROM chunks")) == 0


async def test_threads_that_other_processes_read_are_known_for_a_while(chunks: StreamPartStore) -> None:
    await chunks.announce("here", ["t1", "t2"], until=timedelta(seconds=30))
    await chunks.announce("there", ["t2", "t3"], until=timedelta(seconds=30))
    assert sorted(await chunks.read_elsewhere("here")) == ["t2", "t3"]
    assert sorted(await chunks.read_elsewhere("nowhere")) == ["t1", "t2", "t3"]
    await chunks.announce("there", ["t2", "t3"], until=timedelta(0))
    assert await chunks.read_elsewhere("here") == []


async def test_what_is_streamed_before_a_checkpoint_is_kept_for_a_reader_elsewhere(
    store: Store, chunks: StreamPartStore
) -> None:
    """However soon after its beginning the process is killed."""
    await store.commit(opened("t1"))
    await chunks.announce("elsewhere", ["t1"], until=timedelta(minutes=1))
    here = LocalStreamParts(chunks, LocalNotifier(), lambda: NOW, process="here")
    tell = here.begin("t1", RunSpec(run_id="r1", graph="g", assistant_id="a"), attempt=1)
    tell("custom", b"{}")
    await here.flush("r1")
    assert [part.name for part in await chunks.of_thread("t1", 0)] == ["custom"]
