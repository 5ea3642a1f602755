"""Postgres connections that are cut at every request of every operation: each is an outage, and nothing else."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from clew.domain.errors import Unavailable
from clew.domain.events import rebuild
from clew.domain.thread import Thread
from clew.ports.checkpoints import StoredCheckpoint, Superstep
from clew.ports.histories import HistoryId, NewMessage, Shape
from clew.ports.threads import Store
from clew.stores.postgres import PostgresDatabase, open_postgres
from clew.stores.postgres_histories import open_histories
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.tool_calls import CallRows
from clew.stores.sql.work import Database, Statement, Work
from tests.databases import open_store
from tests.postgres_proxy import WAYS, PostgresProxy, Way, postgres_proxy
from tests.samples import NOW, asks, opened, recorded, said

pytestmark = pytest.mark.anyio

LEASE = timedelta(minutes=5)
# What Postgres says before it closes a connection: an administrator, a crash, a start, a database that was dropped,
# idle too long (two ways), a transaction too long, a broken protocol, too many connections, a standby's conflict, a
# broken row, a rejected login.
CODES = (
    *("57P01", "57P02", "57P03", "57P04", "57P05"),
    *("25P03", "25P04", "08006", "08P01", "53300", "40001", "XX001", "28000"),
)


@dataclass(frozen=True, slots=True)
class Ground:
    """One trial's thread, and the stores through the proxy."""

    db: PostgresDatabase
    store: Store
    thread: Thread


async def _commit(ground: Ground) -> None:
    await ground.store.commit(recorded(ground.thread, said()))


async def _commit_call(ground: Ground) -> None:
    await ground.store.commit(recorded(ground.thread, said(), asks("c2")))


async def _open(ground: Ground) -> None:
    await ground.store.commit(opened(f"{ground.thread.id}-new"))


async def _claim(ground: Ground) -> None:
    await ground.store.claim("r1", lease=LEASE, limit=1)


async def _start_call(ground: Ground) -> None:
    await CallRows(ground.db).start(ground.thread.id, "c1", fence=0, now=NOW)


async def _checkpoint(ground: Ground) -> None:
    row = StoredCheckpoint(
        thread_id=ground.thread.id,
        ns="",
        id="1",
        parent_id=None,
        body="{}",
        metadata="{}",
        apart={},
    )
    await CheckpointRows(ground.db).put([Superstep(checkpoint=row, values=())], fence=0)


async def _remember(ground: Ground) -> None:
    place = HistoryId(namespace=("chat",), key=ground.thread.id)
    await open_histories(ground.db).append(
        place, [NewMessage(role="user", content="q", id="1")], shape=Shape(chunk_size=4)
    )


async def _delete(ground: Ground) -> None:
    await ground.store.tombstone(ground.thread.id, now=NOW)
    await ground.store.purge(only=ground.thread.id)


WRITES = (_commit, _commit_call, _open, _claim, _start_call, _checkpoint, _remember, _delete)
READS: tuple[Callable[[Ground], Awaitable[Any]], ...] = (
    lambda ground: ground.store.get(ground.thread.id),
    lambda ground: ground.store.read(ground.thread.id, limit=1),
    lambda ground: ground.store.read(ground.thread.id),
    lambda ground: ground.store.find(limit=3),
    lambda ground: ground.store.has_work(),
    lambda ground: CallRows(ground.db).find(ground.thread.id),
)


@pytest.fixture
async def through(postgres_url: str) -> AsyncIterator[tuple[PostgresProxy, PostgresDatabase]]:
    async with postgres_proxy(postgres_url) as (proxy, url), open_postgres(url, pool_max=3) as db:
        yield proxy, db


@pytest.fixture
async def straight(postgres_url: str) -> AsyncIterator[Database]:
    async with open_postgres(postgres_url) as db:
        yield db


async def _ground(through: PostgresDatabase, straight: Database, name: str) -> Ground:
    """A thread of its own, and connections that are open."""
    store = open_store(straight)
    change = opened(name)
    await store.commit(change)
    change = recorded(change.thread, asks("c1"))
    await store.commit(change)
    await asyncio.gather(*(through.glance(_nothing) for _ in range(3)))
    return Ground(through, open_store(through), change.thread)


def _nothing() -> Work[None]:
    yield Statement("SELECT 1")


async def _is_whole(straight: Database, thread_id: str) -> bool:
    """Whether the row is what the log says: all of a change was written, or none of it."""
    store = open_store(straight)
    return rebuild(await store.read(thread_id)) == await store.get(thread_id)


@pytest.mark.fault("B3")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__.strip("_"))
async def test_a_write_that_is_cut_off_is_done_or_unavailable(
    through: tuple[PostgresProxy, PostgresDatabase],
    straight: Database,
    write: Callable[[Ground], Awaitable[None]],
    way: Way,
) -> None:
    proxy, db = through
    # A deletion has dozens of requests: each way of cutting it takes others of them.
    places = itertools.count(1 + WAYS.index(way), len(WAYS)) if write is _delete else itertools.count(1)
    for at in places:
        ground = await _ground(db, straight, f"t{at}")
        cut = proxy.cut(at, way)
        try:
            await write(ground)
        except Unavailable:
            assert cut.is_done
        await db.read(_nothing)
        if write is not _delete:
            assert await _is_whole(straight, ground.thread.id)
        if not cut.is_done:
            break
    assert at > 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("read", READS, ids=("get", "page", "log", "find", "has_work", "calls"))
async def test_a_read_that_is_cut_off_is_asked_again(
    through: tuple[PostgresProxy, PostgresDatabase],
    straight: Database,
    read: Callable[[Ground], Awaitable[Any]],
    way: Way,
) -> None:
    proxy, db = through
    ground = await _ground(db, straight, "t1")
    expected = await read(ground)
    for at in itertools.count(1):
        await asyncio.gather(*(db.glance(_nothing) for _ in range(3)))
        cut = proxy.cut(at, way)
        for _ in range(3):
            assert await read(ground) == expected
        if not cut.is_done:
            break
    assert at > 1


@pytest.mark.parametrize("sqlstate", CODES)
@pytest.mark.parametrize("way", ["fatal", "late"])
async def test_whatever_the_servers_last_words_are_it_is_an_outage(
    through: tuple[PostgresProxy, PostgresDatabase], straight: Database, way: Way, sqlstate: str
) -> None:
    proxy, db = through
    for at in (1, 2, 3):
        ground = await _ground(db, straight, f"t{at}")
        proxy.cut(at, way, sqlstate)
        for _ in range(2):
            try:
                await _commit_call(ground)
            except Unavailable:
                continue
            break
        await db.read(_nothing)
        assert await _is_whole(straight, ground.thread.id)


@pytest.mark.parametrize("code", ["57014", "53200", "58030", "25006", "53400"])
async def test_a_statement_the_server_could_not_carry_out_is_an_outage(
    through: tuple[PostgresProxy, PostgresDatabase], code: str
) -> None:
    """Cancelled by an administrator, out of memory, a disk that fails, a standby: the connection outlives it."""
    _, db = through
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$"

    def refused() -> Work[None]:
        yield Statement(raising)

    for run in (db.write, db.read, db.glance):
        with pytest.raises(Unavailable):
            await run(refused)
    with pytest.raises(Unavailable):
        await db.fetch(raising)


@pytest.mark.fault("B2")
async def test_a_database_that_is_silent_is_given_up_in_time_by_every_call(postgres_url: str) -> None:
    async with (
        postgres_proxy(postgres_url) as (proxy, url),
        open_postgres(url, deadline=1.0, pool_max=3) as db,
    ):
        await asyncio.gather(*(db.glance(_nothing) for _ in range(3)))
        proxy.freeze()
        loop = asyncio.get_running_loop()
        for call in (
            lambda: db.write(_nothing),
            lambda: db.read(_nothing),
            lambda: db.glance(_nothing),
            lambda: db.fetch("SELECT 1"),
        ):
            since = loop.time()
            with pytest.raises(Unavailable):
                await call()
            # Once the deadline, however often it may be tried again.
            assert loop.time() - since < 1.9
        proxy.thaw()
        async with asyncio.timeout(30):
            await db.read(_nothing)


@pytest.mark.fault("B2")
@pytest.mark.parametrize("at", range(1, 6))
async def test_a_database_that_falls_silent_in_a_transaction_is_given_up_in_time(
    postgres_url: str, at: int
) -> None:
    async with postgres_proxy(postgres_url) as (proxy, url), open_postgres(url, deadline=1.0) as db:
        step = itertools.count(1)

        def work() -> Work[None]:
            for _ in range(4):
                if next(step) == at:
                    proxy.freeze()
                yield Statement("SELECT 1")
            proxy.freeze()

        since = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable):
            await db.write(work)
        assert asyncio.get_running_loop().time() - since < 1.9


@pytest.mark.fault("A11")
@pytest.mark.parametrize("at", range(1, 7))
async def test_a_process_that_is_frozen_in_a_transaction_keeps_no_thread_from_the_others(
    postgres_url: str, straight: Database, at: int
) -> None:
    """Wherever it stopped: between two statements, or while it prepares the next one."""
    store = open_store(straight)
    await store.commit(opened("t1"))
    async with postgres_proxy(postgres_url) as (proxy, url), open_postgres(url, deadline=0.5) as db:

        def work() -> Work[None]:
            yield Statement("UPDATE threads SET name = name WHERE id = 't1'")
            yield Statement("SELECT count(*) FROM threads")
            yield Statement("SELECT max(last_seq) FROM threads")

        cut = proxy.cut(at, "frozen")
        with pytest.raises(Unavailable):
            await db.write(work)
        assert cut.is_done
        async with asyncio.timeout(20):
            while not await store.claim("r2", lease=LEASE, limit=1):
                await asyncio.sleep(0.05)
