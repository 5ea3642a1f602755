"""A thread that somebody looks at, or goes on looking at, does not expire under their eyes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from websockets.asyncio.client import connect

from clew.api import events, thread_access
from clew.api.auth import Authenticator
from clew.api.authorization import Authorization
from clew.api.events import events_router
from clew.api.http import create_http
from clew.api.limits import RateLimits
from clew.api.streams import LiveEventOut, Streams
from clew.api.thread_access import REMEMBERED, ThreadAccess
from clew.api.watch import Watch
from clew.api.ws import ws_router
from clew.domain.errors import Invalid, NotFound, StorageFull
from clew.domain.thread import Owner
from clew.server.database import new_id, utc_now
from clew.stores.postgres import open_postgres
from clew.stores.sql.threads import ThreadRows
from clew.stores.sqlite import open_sqlite
from tests.app import House, open_house
from tests.samples import ANN, NOW, opened
from tests.serving import served
from tests.waiting import until

pytestmark = pytest.mark.anyio

SECONDS = 30
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
ANYBODY = Owner()


@dataclass(slots=True)
class Hands:
    """A clock that goes on when it is told to."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


class Counted(ThreadRows):
    """Threads that list every access that was written, or refused, batch by batch."""

    batches: list[list[str]]
    is_full = False
    damaged = ""

    async def touch(self, thread_ids: Sequence[str], *, now: datetime, grain: timedelta) -> list[str]:
        if self.is_full:
            raise StorageFull("the disk is full")
        if self.damaged in thread_ids:
            raise Invalid("a number too big")
        written = await super().touch(thread_ids, now=now, grain=grain)
        if written:
            self.batches.append(written)
        return [*written]

    @property
    def touched(self) -> list[str]:
        return [one for batch in self.batches for one in batch]


@dataclass(frozen=True, slots=True)
class Desk:
    """Looks at some threads, by a clock of ours."""

    threads: Counted
    clock: Hands = field(default_factory=Hands)

    def access(self) -> ThreadAccess:
        return ThreadAccess(self.threads, self.clock)

    async def accessed(self, thread_id: str) -> datetime | None:
        return (await self.threads.get(thread_id)).last_accessed_at

    async def is_written(self, thread_id: str) -> bool:
        return await self.accessed(thread_id) == self.clock.now


@pytest.fixture
async def desk() -> AsyncGenerator[Desk]:
    async with open_sqlite(None) as db:
        threads = Counted(db)
        threads.batches = []
        for thread_id in ("w1", "w2"):
            await threads.commit(opened(thread_id, ttl=DAY))
        yield Desk(threads)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are written at short intervals."""
    monkeypatch.setattr(thread_access, "COLLECT_SECONDS", 0.01)


@pytest.mark.accept("003-3")
async def test_a_look_is_written_once_however_many_look(desk: Desk, often: None) -> None:
    access = desk.access()
    for n in range(3):
        desk.clock.now += SECOND
        seen = await asyncio.gather(*(access.at("w1", ANN) for _ in range(300)))
        assert {thread.last_accessed_at for thread in seen} == {desk.clock.now}, "shown before it is written"
        await until(lambda: desk.is_written("w1"))
        desk.clock.now += timedelta(milliseconds=999)
        await access.at("w1", ANN)
        assert desk.threads.batches == [["w1"]] * (n + 1)
    await access.close()
    assert desk.threads.batches == [["w1"]] * 3
    thread = await desk.threads.get("w1")
    assert thread.expires_at == (thread.last_accessed_at or NOW) + DAY


async def test_no_reader_waits_for_a_write(desk: Desk, often: None) -> None:
    goes_on = asyncio.Event()

    class Slow(Counted):
        async def touch(self, thread_ids: Sequence[str], **more: Any) -> list[str]:
            await goes_on.wait()
            return await ThreadRows.touch(self, thread_ids, **more)

    threads = Slow(desk.threads._db)
    access = ThreadAccess(threads, desk.clock)
    async with asyncio.timeout(SECONDS):
        for _ in range(3):
            desk.clock.now += MINUTE
            assert (await access.at("w1", ANN)).last_accessed_at == desk.clock.now
            await asyncio.sleep(0.02)
    assert await desk.accessed("w1") == NOW
    goes_on.set()
    await until(lambda: desk.is_written("w1"))
    await access.close()


async def test_looks_at_many_threads_are_written_together(desk: Desk) -> None:
    for n in range(40):
        await desk.threads.commit(opened(f"m{n}", ttl=DAY))
    desk.clock.now += MINUTE
    access = desk.access()
    for n in range(40):
        await access.at(f"m{n}", ANN)
        await asyncio.sleep(0)
    await until(lambda: desk.is_written("m39"))
    assert [sorted(batch) for batch in desk.threads.batches] == [sorted(f"m{n}" for n in range(40))]


async def test_looks_that_wait_are_written_when_the_server_stops(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_access, "COLLECT_SECONDS", 3600)
    access = desk.access()
    desk.clock.now += MINUTE
    await access.at("w1", ANN)
    access.keep(("w2",))
    await asyncio.sleep(0)  # the writer begins to collect
    async with asyncio.timeout(SECONDS):
        await access.close()
    assert sorted(desk.threads.touched) == ["w1", "w2"]


async def test_a_row_that_cannot_be_written_keeps_no_other(
    desk: Desk, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(5):
        await desk.threads.commit(opened(f"m{n}", ttl=DAY))
    desk.threads.damaged = "m3"
    desk.clock.now += MINUTE
    access = desk.access()
    for n in range(5):
        await access.at(f"m{n}", ANN)
    await until(lambda: desk.is_written("m4"))
    await access.close()
    assert sorted(desk.threads.touched) == ["m0", "m1", "m2", "m4"]
    assert [record.__dict__["thread_id"] for record in caplog.records] == ["m3"]


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_a_row_that_is_locked_is_written_once_it_is_free(where: str, often: None) -> None:
    async with asyncpg.create_pool(where, min_size=1, max_size=1) as pool, open_postgres(where) as db:
        desk = Desk(threads := Counted(db))
        threads.batches = []
        for thread_id in ("w1", "w2"):
            await threads.commit(opened(thread_id, ttl=DAY))
        desk.clock.now += MINUTE
        access = desk.access()
        async with pool.acquire() as holder, holder.transaction():
            await holder.execute("SELECT 1 FROM threads WHERE id = 'w1' FOR UPDATE")
            for thread_id in ("w1", "w2"):
                await access.at(thread_id, ANN)
            await until(lambda: desk.is_written("w2"))
            assert threads.touched == ["w2"]
        await until(lambda: desk.is_written("w1"))
        await access.close()


async def test_a_look_that_lasts_is_written_once_a_minute(desk: Desk, often: None) -> None:
    access = desk.access()
    for _ in range(3):
        desk.clock.now += MINUTE + timedelta(seconds=1)
        for _ in range(300):
            access.keep(("w1", "w2"))
        await until(lambda: desk.is_written("w2"))
        desk.clock.now += timedelta(seconds=59)
        access.keep(("w1", "w2"))
    await access.close()
    assert sorted(desk.threads.touched) == ["w1"] * 3 + ["w2"] * 3
    thread = await desk.threads.get("w2")
    assert thread.expires_at == (thread.last_accessed_at or NOW) + DAY


async def test_whoever_looks_once_is_not_taken_for_whoever_looked_before(desk: Desk, often: None) -> None:
    """What this process remembers may be wrong of the database, into which an older copy was put."""
    access = desk.access()
    for _ in range(2):
        await access.at("w1", ANN)
    desk.clock.now += 2 * MINUTE
    access.keep(("w1",))
    await until(lambda: desk.is_written("w1"))
    assert desk.threads.touched == ["w1"], "it was opened in the second of the first look"
    await desk.threads.tombstone("w1", now=NOW)
    await desk.threads.purge()
    await desk.threads.forget_tombstones(older=-100 * DAY)
    await desk.threads.commit(opened("w1", ttl=DAY))
    await access.at("w1", ANN)
    await until(lambda: desk.is_written("w1"))


async def test_a_disk_that_is_full_keeps_no_client_from_looking(desk: Desk, often: None) -> None:
    access = desk.access()
    desk.clock.now += 2 * MINUTE
    desk.threads.is_full = True
    assert (await access.at("w1", ANN)).last_accessed_at == desk.clock.now
    await asyncio.sleep(0.05)
    assert await desk.accessed("w1") == NOW
    desk.threads.is_full = False
    await until(lambda: desk.is_written("w1"))
    assert desk.threads.touched == ["w1"], "tried again once there is room"


async def test_a_look_that_cannot_be_written_is_given_up(desk: Desk, often: None) -> None:
    access = desk.access()
    desk.clock.now += 2 * MINUTE
    desk.threads.is_full = True
    await access.at("w1", ANN)
    desk.clock.now += thread_access.PATIENCE

    async def is_over() -> bool:
        return access._writing is None

    await until(is_over)
    assert not access._waiting


async def test_what_was_looked_at_is_not_remembered_for_ever(desk: Desk) -> None:
    access = desk.access()
    desk.clock.now += 2 * MINUTE
    access.keep(["w1", *(f"n{n}" for n in range(REMEMBERED))])
    assert len(access._noted) == REMEMBERED
    await access.close()


async def test_to_subscribe_is_to_look(desk: Desk) -> None:
    async def tell(event: LiveEventOut) -> None:
        pass

    desk.clock.now += 2 * MINUTE
    access = desk.access()
    await Watch(desk.threads, access, ANN, (), tell).subscribe("w1")
    with pytest.raises(NotFound):
        await Watch(desk.threads, access, ANYBODY, (), tell).subscribe("w2")
    await access.close()
    assert desk.threads.touched == ["w1"]


@dataclass(frozen=True, slots=True)
class Place:
    """Streams and sockets by a clock of ours."""

    house: House
    address: str
    clock: Hands

    async def accessed(self, thread_id: str) -> datetime:
        thread = await self.house.app.stores.threads.get(thread_id)
        assert thread.last_accessed_at is not None
        return thread.last_accessed_at

    async def becomes_kept(self, thread_id: str) -> None:
        """Time goes on, and it is noticed that somebody looks at the thread."""
        self.clock.now += 2 * DAY
        await until(lambda: self._is_kept(thread_id))
        thread = await self.house.app.stores.threads.get(thread_id)
        assert thread.expires_at == self.clock.now + DAY

    async def _is_kept(self, thread_id: str) -> bool:
        return await self.accessed(thread_id) == self.clock.now

    async def open(self, thread_id: str) -> None:
        """A thread that waits to be begun: nothing happens to it by itself."""
        change = opened(thread_id, owner=ANYBODY, ttl=DAY, held=True)
        await self.house.app.stores.threads.commit(change)


@pytest.fixture
async def place(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Place]:
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.05)
    async with open_house(where, tmp_path, CLEW_SHUTDOWN_SECONDS="0.2") as house:
        app, execution = house.app, house.app.execution
        clock = Hands(NOW + timedelta(hours=1))
        authenticator = Authenticator(app.stores.keys, clock=utc_now, open_locally=True)
        both: dict[str, Any] = {
            "authenticator": authenticator,
            "access": ThreadAccess(app.stores.threads, clock),
            "streams": Streams(app.stopping, app.metrics),
        }
        rooms = (app.stores.threads, execution.notifier, execution.live)
        http = create_http(
            [
                events_router(*rooms, **both),
                ws_router(
                    *rooms, **both, limits=RateLimits(), authorization=Authorization(), ping_seconds=0.05
                ),
            ],
            authenticator=authenticator,
            metrics=app.metrics,
            new_id=new_id,
            max_body_bytes=1024,
        )
        async with served(http, app.stopping) as address:
            yield Place(house, address, clock)


async def test_a_stream_that_stays_open_keeps_its_thread(place: Place) -> None:
    await place.open("w1")
    url = f"http://{place.address}/api/workflows/w1/events"
    async with (
        httpx.AsyncClient(verify=False, timeout=SECONDS) as client,
        client.stream("GET", url) as answer,
    ):
        assert answer.status_code == 200
        await until(lambda: place._is_kept("w1"))
        for _ in range(2):
            await place.becomes_kept("w1")


async def test_a_socket_keeps_what_it_is_subscribed_to_and_nothing_else(place: Place) -> None:
    for thread_id in ("w1", "w2", "w3"):
        await place.open(thread_id)
    await place.house.app.stores.threads.commit(opened("theirs", owner=ANN, ttl=DAY, held=True))
    before = await place.accessed("w2")
    query = "?workflow_id=w1&workflow_id=theirs&workflow_id=nothing"
    async with connect(f"ws://{place.address}/ws/events{query}", proxy=None) as socket:

        async def say(what: str, **more: str) -> None:
            await socket.send(json.dumps({"type": what, **more}))

        await place.becomes_kept("w1")
        await say("subscribe", workflow_id="w3")
        await place.becomes_kept("w3")
        await place.becomes_kept("w1")
        await say("unsubscribe", workflow_id="w1")
        await say("ping")
        while json.loads(await socket.recv()) != {"type": "pong"}:
            pass
        left = await place.accessed("w1")
        await place.becomes_kept("w3")
        assert await place.accessed("w1") == left, "nobody looks at it any more"
    assert await place.accessed("w2") == await place.accessed("theirs") == before


async def test_to_hear_of_everything_is_not_to_look_at_it(place: Place) -> None:
    await place.open("w1")
    before = await place.accessed("w1")
    async with connect(f"ws://{place.address}/ws/events", proxy=None) as socket:
        place.clock.now += 2 * DAY
        for _ in range(3):
            assert json.loads(await socket.recv())["type"] in ("event", "ping")
    assert await place.accessed("w1") == before


async def test_what_is_deleted_is_not_looked_at(place: Place) -> None:
    await place.open("w1")
    async with connect(f"ws://{place.address}/ws/events?workflow_id=w1", proxy=None) as socket:
        await place.becomes_kept("w1")
        await place.house.app.execution.commands.delete("w1", None)
        while json.loads(await socket.recv()).get("payload", {}).get("event_type") != "workflow_deleted":
            pass
        place.clock.now += DAY
        for _ in range(3):
            await socket.recv()
    with pytest.raises(NotFound):
        await place.house.app.stores.threads.get("w1")
