"""/ws/events: many workflows through one socket, for those who may hear of them."""

import asyncio
import json
import socket as network
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from clew.api.auth import Authenticator
from clew.api.authorization import Authorization
from clew.api.http import create_http
from clew.api.limits import RateLimits
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.api.ws import MAX_MESSAGE, MESSAGES_PER_SECOND, ws_router
from clew.domain.events import AssistantMessage, Log, Opening, Suspension
from clew.domain.lifecycle import redact
from clew.domain.thread import Owner, Status, Thread
from clew.engine.commands import Request
from clew.server.database import new_id, utc_now
from tests.app import House, open_house
from tests.databases import query
from tests.http_client import new_key
from tests.samples import ANN, opened, recorded, stamp
from tests.serving import served
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

SECONDS = 30
QUIET = 0.3


@dataclass(frozen=True, slots=True)
class Socket:
    connection: ClientConnection

    async def send(self, type: str, **more: Any) -> None:
        await self.connection.send(json.dumps({"type": type, **more}))

    async def next(self, seconds: float = SECONDS) -> Any:
        async with asyncio.timeout(seconds):
            return json.loads(await self.connection.recv())

    async def until(self, *types: str) -> list[Any]:
        """Payloads up to the first of one of these types, that one included."""
        seen: list[Any] = []
        while not seen or seen[-1]["event_type"] not in types:
            message = await self.next()
            assert message["type"] == "event", message
            seen.append(message["payload"])
        return seen

    async def is_quiet(self) -> bool:
        try:
            await self.next(QUIET)
        except TimeoutError:
            return True
        return False

    async def closed(self) -> int:
        """The code it was closed with, whatever came before."""
        with suppress(ConnectionClosed):
            async with asyncio.timeout(SECONDS):
                while True:
                    await self.connection.recv()
        assert self.connection.close_code is not None
        return self.connection.close_code


@dataclass(frozen=True, slots=True)
class Place:
    house: House
    address: str

    @asynccontextmanager
    async def socket(
        self, query: str = "", *, key: str | None = None, **headers: str
    ) -> AsyncGenerator[Socket]:
        shown = ({"Authorization": f"Bearer {key}"} if key else {}) | headers
        origin: Any = shown.pop("origin", None)
        async with connect(
            f"ws://{self.address}/ws/events{query}",
            additional_headers=shown,
            origin=origin,
            max_size=2**24,
            proxy=None,
        ) as connection:
            yield Socket(connection)

    async def approve(self, thread: Thread) -> None:
        await self.house.app.execution.commands.approve(thread.id, None, approved=True)


@pytest.fixture
async def place(where: str, tmp_path: Path) -> AsyncGenerator[Place]:
    async with (
        open_house(where, tmp_path, CLEW_SHUTDOWN_SECONDS="0.2") as house,
        served(house.app.http, house.app.stopping) as address,
    ):
        yield Place(house, address)


@pytest.fixture
async def small_place(tmp_path: Path) -> AsyncGenerator[Place]:
    """The same in memory, where the database makes no difference."""
    async with (
        open_house("memory", tmp_path, CLEW_SHUTDOWN_SECONDS="0.2") as house,
        served(house.app.http, house.app.stopping) as address,
    ):
        yield Place(house, address)


@asynccontextmanager
async def hasty(tmp_path: Path, **patience: float) -> AsyncGenerator[Place]:
    """Only the socket, by a server that looks often, and whose patience with its clients is given."""
    async with open_house("memory", tmp_path, CLEW_SHUTDOWN_SECONDS="0.2") as house:
        app = house.app
        authenticator = Authenticator(app.stores.keys, clock=utc_now, open_locally=True)
        router = ws_router(
            app.stores.threads,
            app.execution.notifier,
            app.execution.live,
            authenticator=authenticator,
            access=ThreadAccess(app.stores.threads, utc_now),
            streams=Streams(app.stopping, app.metrics, most=8, most_of_one=4, check_seconds=0.1),
            limits=RateLimits(),
            authorization=Authorization(),
            ping_seconds=0.1,
            **patience,
        )
        http = create_http(
            [router], authenticator=authenticator, metrics=app.metrics, new_id=new_id, max_body_bytes=1024
        )
        async with served(http, app.stopping) as address:
            yield Place(house, address)


@pytest.fixture
async def hasty_place(tmp_path: Path) -> AsyncGenerator[Place]:
    async with hasty(tmp_path, auth_seconds=SECONDS) as place:
        yield place


def sequences(payloads: list[Any]) -> list[int]:
    return [payload["sequence"] for payload in payloads]


class TestWatching:
    @pytest.mark.accept("001-5", "001-12", "001-15", "001-18", "001-37")
    async def test_without_a_subscription_everything_of_ones_own_is_told(self, place: Place) -> None:
        async with place.socket() as socket:
            assert await socket.is_quiet()
            first = await place.house.start("gated", log=[])
            seen = await socket.until("approval_required")
            assert [payload["event_type"] for payload in seen] == [
                *("workflow_started", "stage_changed", "stage_completed", "approval_required"),
            ]
            assert {payload["workflow_id"] for payload in seen} == {first.id}
            second = await place.house.start("broken", log=[])
            failed = await socket.until("workflow_failed")
            assert {payload["workflow_id"] for payload in failed} == {second.id}
            assert "no such issue" in failed[-1]["data"]["error"]
            await place.house.rest(first, (Status.BLOCKED,))
            await place.approve(first)
            seen += await socket.until("workflow_completed")
        assert sequences(seen) == list(range(1, len(seen) + 1))

    @pytest.mark.accept("001-15")
    async def test_subscriptions_choose_and_can_be_taken_back(self, place: Place) -> None:
        wanted = await place.house.run("gated", log=[])
        other = await place.house.run("gated", log=[])
        async with place.socket() as socket:
            announced = [await socket.next(), await socket.next()]
            assert {message["payload"]["workflow_id"] for message in announced} == {wanted.id, other.id}
            await socket.send("subscribe", workflow_id=wanted.id)
            again = await socket.next()
            assert again["payload"]["event_type"] == "approval_required"
            await place.approve(other)
            await place.house.rest(other, (Status.COMPLETED,))
            await place.approve(wanted)
            seen = await socket.until("workflow_completed")
            assert {payload["workflow_id"] for payload in seen} == {wanted.id}
            assert sequences(seen) == list(range(wanted.last_seq + 1, wanted.last_seq + len(seen) + 1))
            for verb, more in (("unsubscribe", {"workflow_id": wanted.id}), ("subscribe_all", {})):
                await socket.send(verb, **more)
                await socket.send("ping")
                assert await socket.next() == {"type": "pong"}
                third = await place.house.run("two_steps", log=[])
                seen = await socket.until("workflow_completed")
                assert {payload["workflow_id"] for payload in seen} == {third.id}
                await socket.send("subscribe", workflow_id=wanted.id)

    @pytest.mark.accept("001-11")
    @pytest.mark.mainly_sqlite(False)
    async def test_what_waits_is_told_again_after_a_restart(self, where: str, tmp_path: Path) -> None:
        async with open_house(where, tmp_path) as house:
            gate = await house.run("gated", log=[])
            tool = await house.run("agent", "tools: send_mail to=ada; read_clipboard")
            done = await house.run("two_steps", log=[])
            logs = [await house.log(thread) for thread in (gate, tool, done)]
        async with (
            open_house(where, tmp_path) as house,
            served(house.app.http, house.app.stopping) as address,
        ):
            place = Place(house, address)
            async with place.socket() as socket:
                told = [(await socket.next())["payload"] for _ in range(3)]
                assert await socket.is_quiet()
            by_thread = {
                thread.id: [payload for payload in told if payload["workflow_id"] == thread.id]
                for thread in (gate, tool, done)
            }
            (asked,) = by_thread[gate.id]
            assert (asked["event_type"], asked["sequence"]) == ("approval_required", gate.last_seq)
            assert {payload["event_type"] for payload in by_thread[tool.id]} == {
                "approval_required",
                "suspension",
            }
            assert by_thread[done.id] == []
            # Nothing was written for it.
            assert [await house.log(thread) for thread in (gate, tool, done)] == logs
            async with place.socket(f"?workflow_id={gate.id}") as socket:
                assert (await socket.next())["payload"] == asked
                assert await socket.is_quiet()
                await place.approve(gate)
                assert (await socket.until("workflow_completed"))[0]["sequence"] == gate.last_seq + 1

    async def test_only_ones_own_is_told(self, place: Place) -> None:
        keys = place.house.app.stores.keys
        commands = place.house.app.execution.commands
        ann = await new_key(keys)
        bob = await new_key(keys, owner=Owner(tenant=ANN.tenant, user_id="bob"))
        rival = await new_key(keys, owner=Owner(tenant="rival", user_id=ANN.user_id))
        tenant = await new_key(keys, owner=Owner(tenant=ANN.tenant))
        async with (
            place.socket(key=ann) as mine,
            place.socket(key=bob) as his,
            place.socket(key=rival) as theirs,
            place.socket(key=tenant) as ours,
        ):
            for socket in (mine, his, theirs, ours):
                await socket.send("ping")
                assert await socket.next() == {"type": "pong"}
            thread = await commands.start(Opening(owner=ANN, graph="gated"), Request(message="hello"))
            for socket in (mine, ours):
                assert {p["workflow_id"] for p in await socket.until("approval_required")} == {thread.id}
            for socket in (his, theirs):
                await socket.send("subscribe", workflow_id=thread.id)
                foreign = await socket.next()
                await socket.send("subscribe", workflow_id="nothing")
                missing = await socket.next()
                assert foreign["error"]["code"] == missing["error"]["code"] == "NOT_FOUND"
                assert json.dumps(foreign).replace(thread.id, "nothing") == json.dumps(missing)
                assert await socket.is_quiet()
        async with place.socket(f"?workflow_id={thread.id}", key=bob) as his:
            assert (await his.next())["error"]["code"] == "NOT_FOUND"
            await commands.approve(thread.id, None, approved=True)
            await place.house.rest(thread, (Status.COMPLETED,))
            assert await his.is_quiet()

    async def test_a_deleted_workflow_is_told_and_forgotten(self, place: Place) -> None:
        thread = await place.house.run("gated", log=[])
        async with place.socket() as socket:
            await socket.until("approval_required")
            await place.house.app.execution.commands.delete(thread.id, None)
            assert (await socket.until("workflow_deleted"))[-1]["workflow_id"] == thread.id
            assert await socket.is_quiet()

    async def test_a_workflow_that_is_brought_back_is_told_of_again(self, place: Place) -> None:
        commands = place.house.app.execution.commands
        thread = await place.house.run("gated", log=[])
        await commands.soft_delete(thread.id, None)
        async with place.socket() as socket:
            assert await socket.is_quiet()
            await commands.restore(thread.id, None)
            assert (await socket.until("approval_required"))[-1]["sequence"] == thread.last_seq
            await place.approve(thread)
            await socket.until("workflow_completed")

    async def test_a_workflow_that_cannot_be_read_closes_no_socket(self, place: Place) -> None:
        house = place.house
        damaged = await house.run("gated", log=[])
        unreadable = await house.run("gated", log=[])
        (asked,) = [event.seq for event in await house.log(damaged) if isinstance(event.body, Suspension)]
        sql = "UPDATE events SET content = 'x' WHERE thread_id = $1 AND seq = $2"
        await query(house.app.stores.db, sql, damaged.id, asked)
        await query(house.app.stores.db, sql, unreadable.id, asked)
        await query(house.app.stores.db, "UPDATE threads SET stats = 'x' WHERE id = $1", unreadable.id)
        fine = await house.run("two_steps", log=[])
        mine = f"?workflow_id={damaged.id}&workflow_id={unreadable.id}&workflow_id={fine.id}"
        for asking in (
            "",
            f"?since={fine.id}:1",
            f"?since={damaged.id}:1",
            f"?since={damaged.id}:{asked}",
            f"?since={unreadable.id}:1",
            f"{mine}&since={fine.id}:1",
        ):
            async with place.socket(asking) as socket:
                await socket.send("subscribe", workflow_id=damaged.id)
                await socket.send("subscribe", workflow_id=unreadable.id)
                await socket.send("subscribe_all")
                thread = await house.start("two_steps", log=[])
                told: Any = {}
                while (told.get("workflow_id"), told.get("event_type")) != (thread.id, "workflow_completed"):
                    told = (await socket.next()).get("payload", {})

    async def test_what_is_redacted_is_not_told(self, small_place: Place) -> None:
        store = small_place.house.app.stores.threads
        change = opened("w1", "a secret", owner=Owner(), held=True)
        await store.commit(change)
        stopped = await small_place.house.app.execution.commands.stop("w1", None)
        await store.commit(redact(stopped, change.events[1].id, stamp=stamp()))
        async with small_place.socket("?since=w1:0") as socket:
            seen = await socket.until("redacted")
        assert "a secret" not in json.dumps(seen)

    @pytest.mark.accept("001-13")
    async def test_words_are_told_to_those_who_may_hear_them(self, small_place: Place) -> None:
        keys = small_place.house.app.stores.keys
        ann, bob = await new_key(keys), await new_key(keys, owner=Owner(tenant=ANN.tenant, user_id="bob"))
        async with small_place.socket(key=ann) as mine, small_place.socket(key=bob) as his:
            for socket in (mine, his):
                await socket.send("ping")
                assert await socket.next() == {"type": "pong"}
            thread = await small_place.house.app.execution.commands.start(
                Opening(owner=ANN, graph="agent", settings={"verbose": True}),
                Request(message="slowly: one two three"),
            )
            seen = await mine.until("workflow_completed")
            tokens = [payload for payload in seen if payload["event_type"] == "llm_token"]
            assert {(payload["workflow_id"], payload["sequence"]) for payload in tokens} == {
                (thread.id, None)
            }
            assert "".join(token["data"]["token"] for token in tokens).startswith("you said")
            assert await his.is_quiet()


class TestComingBack:
    @pytest.mark.accept("001-16", "001-18")
    async def test_what_was_missed_comes_in_order(self, place: Place) -> None:
        thread = await place.house.run("gated", log=[])
        async with place.socket() as socket:
            last = (await socket.until("approval_required"))[-1]
        await place.approve(thread)
        thread = await place.house.rest(thread, (Status.COMPLETED,))
        async with place.socket(f"?since={last['id']}") as socket:
            missed = await socket.until("workflow_completed")
            assert sequences(missed) == list(range(last["sequence"] + 1, thread.last_seq + 1))
            assert await socket.next() == {"type": "backfill_complete", "count": len(missed)}
            more = await place.house.app.execution.commands.next_round(
                thread.id, None, Request(graph_input={"log": []})
            )
            assert (await socket.until("approval_required"))[0]["sequence"] == more.round_seq
        async with place.socket(f"?since={thread.id}:{more.last_seq}") as socket:
            await socket.until("approval_required")
            assert (await socket.next())["type"] == "backfill_complete"

    @pytest.mark.accept("001-16")
    async def test_several_workflows_come_as_one(self, place: Place) -> None:
        first = await place.house.run("two_steps", log=[])
        threads = [await place.house.run("two_steps", log=[]) for _ in range(3)]
        async with place.socket(f"?since={first.id}:1") as socket:
            seen: list[Any] = []
            while (message := await socket.next())["type"] == "event":
                seen.append(message["payload"])
        assert message == {"type": "backfill_complete", "count": len(seen)}
        times = [datetime.fromisoformat(payload["timestamp"]) for payload in seen]
        assert times == sorted(times)
        for thread in threads:
            told = [payload["sequence"] for payload in seen if payload["workflow_id"] == thread.id]
            assert told == list(range(1, thread.last_seq + 1))
        async with place.socket(f"?since={first.id}:1&workflow_id={threads[0].id}") as socket:
            told = sequences(await socket.until("workflow_completed"))
            assert told == list(range(1, threads[0].last_seq + 1))
            assert (await socket.next())["type"] == "backfill_complete"

    @pytest.mark.accept("001-16")
    @pytest.mark.parametrize("since", ["nothing", "nothing:4", "{0}:99", "{0}:x", "{0}:-1", ":", "evt_1", ""])
    async def test_an_unknown_event_is_said_to_be_so(self, small_place: Place, since: str) -> None:
        thread = await small_place.house.run("gated", log=[])
        async with small_place.socket(f"?since={since.format(thread.id)}") as socket:
            assert await socket.next() == {"type": "backfill_expired"}
            # Whoever has lost its place is told what waits now.
            assert (await socket.next())["payload"]["sequence"] == thread.last_seq
            await small_place.approve(thread)
            await socket.until("workflow_completed")

    async def test_an_event_of_somebody_else_is_an_unknown_one(self, small_place: Place) -> None:
        keys = small_place.house.app.stores.keys
        bob = await new_key(keys, owner=Owner(tenant=ANN.tenant, user_id="bob"))
        await small_place.house.app.stores.threads.commit(opened("w1", held=True))
        async with small_place.socket("?since=w1:1", key=bob) as socket:
            assert await socket.next() == {"type": "backfill_expired"}
            assert await socket.is_quiet()

    async def test_a_bell_that_rings_late_repeats_nothing(self, small_place: Place) -> None:
        """The client came back with an event the bell had not yet rung for."""
        store, notifier = small_place.house.app.stores.threads, small_place.house.app.execution.notifier
        await store.commit(opened("w1", owner=Owner(), held=True))
        end = (await store.get("w1")).last_seq
        async with small_place.socket(f"?since=w1:{end}") as socket:
            assert await socket.next() == {"type": "backfill_complete", "count": 0}
            notifier.publish("w1", end - 1)
            assert await socket.is_quiet()
            await store.commit(recorded(await store.get("w1"), Log(message="news")))
            notifier.publish("w1", end)
            assert (await socket.next())["payload"]["sequence"] == end + 1

    @pytest.mark.mainly_sqlite(False)
    async def test_nothing_is_lost_between_the_past_and_the_present(self, place: Place) -> None:
        """While a client catches up, others write."""
        store, notifier = place.house.app.stores.threads, place.house.app.execution.notifier
        await store.commit(opened("w1", owner=Owner(), held=True))
        total = 300

        async def write() -> None:
            for n in range(total):
                thread = await store.get("w1")
                await store.commit(recorded(thread, Log(message=str(n))))
                notifier.publish("w1", thread.last_seq)

        writing = asyncio.create_task(write())
        seen: list[int] = []
        while len(seen) < total + 2:
            async with place.socket(f"?since=w1:{len(seen)}") as socket:
                for _ in range(60):
                    message = await socket.next()
                    if message["type"] == "event":
                        seen.append(message["payload"]["sequence"])
                    if len(seen) == total + 2:
                        break
        await writing
        assert seen == list(range(1, total + 3))


class TestDoor:
    async def test_a_key_in_a_header_or_in_the_first_message(self, small_place: Place) -> None:
        key = await new_key(small_place.house.app.stores.keys)
        await small_place.house.app.stores.threads.commit(opened("w1", held=True))
        async with small_place.socket(**{"X-API-Key": key}) as socket:
            await socket.send("ping")
            assert await socket.next() == {"type": "pong"}
        async with small_place.socket("?since=w1:1") as socket:
            await socket.send("auth", key=key)
            assert (await socket.until("user_msg"))[-1]["workflow_id"] == "w1"

    @pytest.mark.fault("E7")
    async def test_nothing_else_opens_it(self, small_place: Place) -> None:
        keys = small_place.house.app.stores.keys
        key = await new_key(keys)
        blind = await new_key(keys, scopes=frozenset({"write"}))
        revoked = await new_key(keys)
        await keys.revoke(f"key_{revoked.split('_')[1]}", now=utc_now())
        for headers, status in (
            ({"Authorization": "Bearer nonsense"}, 401),
            ({"Authorization": f"Bearer {revoked}"}, 401),
            ({"Authorization": f"Basic {key}"}, 401),
            ({"Authorization": f"Bearer {blind}"}, 403),
            ({"X-API-Key": key, "origin": "http://evil.example"}, 403),
            ({"origin": "http://evil.example"}, 403),
            ({"X-API-Key": key, "origin": "null"}, 403),
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with small_place.socket(**headers):
                    pass
            assert refused.value.response.status_code == status, headers
        for first in (
            *(
                '{"type": "subscribe_all"}',
                '{"type": "auth"}',
                "hello",
                "[]",
                "",
                "7",
                '{"type": "auth", "key": 7}',
            ),
            *(json.dumps({"type": "auth", "key": wrong}) for wrong in ("", "x", blind, revoked, f"{key}é")),
        ):
            async with small_place.socket() as socket:
                await socket.connection.send(first)
                assert await socket.closed() == 1008, first
        async with small_place.socket(f"?key={key}&api_key={key}&token={key}") as socket:
            await socket.send("ping")
            assert await socket.closed() == 1008

    @pytest.mark.fault("E7")
    async def test_whoever_says_nothing_is_not_waited_for(self, tmp_path: Path) -> None:
        async with hasty(tmp_path, auth_seconds=0.3) as place:
            await new_key(place.house.app.stores.keys)
            async with place.socket() as socket:
                assert await socket.closed() == 1008

    async def test_ones_own_page_may_come_in(self, small_place: Place) -> None:
        key = await new_key(small_place.house.app.stores.keys)
        async with small_place.socket(key=key, origin=f"http://{small_place.address}") as socket:
            await socket.send("ping")
            assert await socket.next() == {"type": "pong"}

    async def test_a_key_that_is_taken_back_ends_what_it_opened(self, hasty_place: Place) -> None:
        keys = hasty_place.house.app.stores.keys
        key = await new_key(keys)
        for introduced in (False, True):
            key = await new_key(keys)
            async with hasty_place.socket(key=None if introduced else key) as socket:
                if introduced:
                    await socket.send("auth", key=key)
                assert await socket.next() == {"type": "ping"}
                await keys.revoke(f"key_{key.split('_')[1]}", now=utc_now())
                assert await socket.closed() == 1001

    async def test_there_are_not_more_sockets_than_allowed(self, hasty_place: Place) -> None:
        async with (
            hasty_place.socket() as first,
            hasty_place.socket(),
            hasty_place.socket(),
            hasty_place.socket(),
        ):
            await first.next()
            async with hasty_place.socket() as refused:
                assert await refused.closed() == 1013
        async with hasty_place.socket() as again:
            assert await again.next() == {"type": "ping"}


NONSENSE = [
    *("", "hello", "7", "null", "[]", "{}", "[" * 100, '{"a": "\\ud800"}'),
    *(
        '{"type": 7}',
        '{"type": "dance"}',
        '{"type": "ping", "type": "ping"}',
        '{"type": "subscribe"}',
    ),
    '{"type": "subscribe", "workflow_id": 7}',
    '{"type": "subscribe", "workflow_id": "' + "x" * 300 + '"}',
]


class TestManners:
    @pytest.mark.fault("E7")
    @pytest.mark.accept("001-15")
    async def test_it_is_asked_whether_it_lives(self, hasty_place: Place) -> None:
        async with hasty_place.socket() as socket:
            for _ in range(3):
                assert await socket.next() == {"type": "ping"}
                await socket.send("pong")

    async def test_what_makes_no_sense_is_said_to_make_none(self, small_place: Place) -> None:
        async with small_place.socket() as socket:
            for message in NONSENSE:
                await socket.connection.send(message)
                assert (await socket.next())["error"]["code"] == "INVALID", message
            await socket.send("ping")
            assert await socket.next() == {"type": "pong"}

    @pytest.mark.fault("E7")
    async def test_too_much_too_big_and_too_often_close_it(self, small_place: Place) -> None:
        async with small_place.socket() as socket:
            await socket.connection.send(b"bytes")
            assert await socket.closed() == 1003
        for size in (MAX_MESSAGE + 1, 100_000, 17 * 2**20):
            async with small_place.socket() as socket:
                with suppress(ConnectionClosed):
                    await socket.connection.send("x" * size)
                assert await socket.closed() == 1009, size
        async with small_place.socket() as socket:
            with suppress(ConnectionClosed):
                for _ in range(MESSAGES_PER_SECOND * 20):
                    await socket.send("pong")
            assert await socket.closed() == 1008

    async def test_it_ends_politely_with_the_process(self, small_place: Place) -> None:
        async with small_place.socket() as socket:
            await socket.send("ping")
            await socket.next()
            small_place.house.app.stopping.set()
            assert await socket.closed() == 1001

    @pytest.mark.fault("E2")
    @pytest.mark.accept("001-17")
    async def test_a_socket_that_does_not_read_delays_nobody(self, tmp_path: Path) -> None:
        async with hasty(tmp_path, send_seconds=2 * SECONDS) as place:
            with deaf(place):
                await open_sockets(place, 1)
                async with place.socket() as hearing:
                    await open_sockets(place, 2)
                    async for n in much_said(place):
                        while (message := await hearing.next())["type"] != "event":
                            pass
                        assert message["payload"]["data"]["content"].startswith(f"{n} ")
                    await open_sockets(place, 2)  # nobody had to wait for the end of the deaf one
            await open_sockets(place, 0)

    @pytest.mark.fault("E2")
    @pytest.mark.accept("001-17")
    async def test_a_socket_that_does_not_read_is_dropped(self, tmp_path: Path) -> None:
        async with hasty(tmp_path, send_seconds=0.3) as place:
            with deaf(place):
                await open_sockets(place, 1)
                async for _ in much_said(place):
                    pass
                await open_sockets(place, 0)


@contextmanager
def deaf(place: Place) -> Iterator[None]:
    """A client that takes nothing of what it is told."""
    host, port = place.address.split(":")
    with network.create_connection((host, int(port))) as connection:
        connection.setsockopt(network.SOL_SOCKET, network.SO_RCVBUF, 4096)
        connection.sendall(
            b"GET /ws/events HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        yield


async def much_said(place: Place) -> AsyncGenerator[int]:
    """More than fits between a server and its client; the number of each message when it was said."""
    store, notifier = place.house.app.stores.threads, place.house.app.execution.notifier
    await store.commit(opened("w1", owner=Owner(), held=True))
    for n in range(40):
        thread = await store.get("w1")
        await store.commit(recorded(thread, AssistantMessage(content=f"{n} " + "x" * 200_000)))
        notifier.publish("w1", thread.last_seq)
        yield n


async def open_sockets(place: Place, count: int) -> None:
    """Wait until there are so many."""
    gauge = place.house.app.metrics.streams.labels("ws")
    await until(lambda: gauge._value.get() == count, SECONDS)
