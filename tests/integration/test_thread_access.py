"""A thread that somebody looks at, or goes on looking at, does not expire under their eyes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from clew.api import events, thread_access
from clew.api.auth import Authenticator
from clew.api.events import events_router
from clew.api.http import create_http
from clew.api.limits import RateLimits
from clew.api.streams import LiveEventOut, Streams
from clew.api.thread_access import REMEMBERED, ThreadAccess
from clew.api.watch import Watch
from clew.api.ws import ws_router
from clew.domain.errors import NotFound, Unavailable
from clew.domain.thread import Owner
from clew.server.database import new_id, utc_now
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
    """Threads that list every access that was written, or refused."""

    touched: list[str]
    is_full = False

    async def touch(
        self, thread_ids: Sequence[str], *, now: datetime, grain: timedelta, waits: bool = False
    ) -> list[str]:
        if self.is_full:
            self.touched += thread_ids
            raise Unavailable("the disk is full")
        written = await super().touch(thread_ids, now=now, grain=grain, waits=waits)
        self.touched += written
        return [*written]


@dataclass(frozen=True, slots=True)
class Desk:
    """Looks at some threads, by a clock of ours."""

    threads: Counted
    clock: Hands = field(default_factory=Hands)

    def access(self) -> ThreadAccess:
        return ThreadAccess(self.threads, self.clock)


@pytest.fixture
async def desk() -> AsyncGenerator[Desk]:
    async with open_sqlite(None) as db:
        threads = Counted(db)
        threads.touched = []
        for thread_id in ("w1", "w2"):
            await threads.commit(opened(thread_id, ttl=DAY))
        yield Desk(threads)


@pytest.mark.accept("003-3")
async def test_a_look_is_written_once_a_second_however_many_look(desk: Desk) -> None:
    access = desk.access()
    for _ in range(3):
        desk.clock.now += SECOND
        for n in range(100):
            seen = await asyncio.gather(*(access.at("w1", ANN) for _ in range(3)))
            assert n % 100 or {thread.last_accessed_at for thread in seen} == {desk.clock.now}
            assert (await desk.threads.get("w1")).last_accessed_at == seen[0].last_accessed_at
            desk.clock.now += timedelta(milliseconds=1)
    assert desk.threads.touched == ["w1"] * 3
    thread = await desk.threads.get("w1")
    assert thread.expires_at == (thread.last_accessed_at or NOW) + DAY


async def test_a_look_that_lasts_is_written_once_a_minute(desk: Desk) -> None:
    access = desk.access()
    for _ in range(3):
        desk.clock.now += MINUTE + timedelta(seconds=1)
        for _ in range(100):
            await asyncio.gather(*(access.keep(("w1", "w2")) for _ in range(3)))
            desk.clock.now += timedelta(milliseconds=1)
    assert sorted(desk.threads.touched) == ["w1"] * 3 + ["w2"] * 3
    thread = await desk.threads.get("w2")
    assert thread.expires_at == (thread.last_accessed_at or NOW) + DAY
    assert desk.clock.now - (thread.last_accessed_at or NOW) < MINUTE


async def test_looks_at_many_threads_are_written_together(desk: Desk) -> None:
    batches: list[Sequence[str]] = []

    class Batched(Counted):
        async def touch(self, thread_ids: Sequence[str], **more: Any) -> list[str]:
            batches.append(thread_ids)
            return await ThreadRows.touch(self, thread_ids, **more)

    threads = Batched(desk.threads._db)
    for n in range(40):
        await threads.commit(opened(f"m{n}", ttl=DAY))
    desk.clock.now += MINUTE
    access = ThreadAccess(threads, desk.clock)
    await asyncio.gather(*(access.at(f"m{n}", ANN) for n in range(40)))
    assert sorted(one for batch in batches for one in batch) == sorted(f"m{n}" for n in range(40))
    assert len(batches) <= 5
    assert {(await threads.get(f"m{n}")).last_accessed_at for n in range(40)} == {desk.clock.now}


async def test_a_database_that_is_slow_to_write_keeps_no_reader_waiting(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()
    monkeypatch.setattr(thread_access, "PATIENCE_SECONDS", 0.01)

    class Slow(Counted):
        async def touch(self, thread_ids: Sequence[str], **more: Any) -> list[str]:
            await goes_on.wait()
            return await ThreadRows.touch(self, thread_ids, **more)

    threads = Slow(desk.threads._db)
    desk.clock.now += MINUTE
    access = ThreadAccess(threads, desk.clock)
    async with asyncio.timeout(SECONDS):
        assert (await access.at("w1", ANN)).last_accessed_at == desk.clock.now
    assert (await threads.get("w1")).last_accessed_at == NOW
    goes_on.set()

    async def is_written() -> bool:
        return (await threads.get("w1")).last_accessed_at == desk.clock.now

    await until(is_written)


async def test_whoever_looks_once_is_not_taken_for_whoever_looked_before(desk: Desk) -> None:
    """What this process remembers may be wrong of the database, into which an older copy was put."""
    access = desk.access()
    for _ in range(2):
        await access.at("w1", ANN)
        assert desk.threads.touched == [], "it was opened this very second"
    desk.clock.now += 2 * MINUTE
    await access.keep(("w1",))
    await desk.threads.tombstone("w1", now=NOW)
    await desk.threads.purge()
    await desk.threads.forget_tombstones(older=-100 * DAY)
    await desk.threads.commit(opened("w1", ttl=DAY))
    await access.at("w1", ANN)
    assert (await desk.threads.get("w1")).last_accessed_at == desk.clock.now


async def test_a_disk_that_is_full_keeps_nobody_from_looking(desk: Desk) -> None:
    access = desk.access()
    desk.clock.now += 2 * MINUTE
    desk.threads.is_full = True
    await access.at("w1", ANN)
    assert (await desk.threads.get("w1")).last_accessed_at == NOW
    await access.keep(("w1", "w2"))
    desk.threads.is_full = False
    desk.clock.now += 2 * MINUTE
    await access.keep(("w1", "w2"))
    assert (await desk.threads.get("w2")).last_accessed_at == desk.clock.now


async def test_what_was_looked_at_is_not_remembered_for_ever(desk: Desk) -> None:
    access = desk.access()
    desk.clock.now += 2 * MINUTE
    await access.keep(["w1", *(f"n{n}" for n in range(REMEMBERED))])
    assert len(access._noted) == REMEMBERED


async def test_to_subscribe_is_to_look(desk: Desk) -> None:
    async def tell(event: LiveEventOut) -> None:
        pass

    desk.clock.now += 2 * MINUTE
    watch = Watch(desk.threads, desk.access(), ANN, (), tell)
    await watch.subscribe("w1")
    with pytest.raises(NotFound):
        await Watch(desk.threads, desk.access(), ANYBODY, (), tell).subscribe("w2")
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
                ws_router(*rooms, **both, limits=RateLimits(), ping_seconds=0.05),
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
        assert await place.accessed("w1") == place.clock.now
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
