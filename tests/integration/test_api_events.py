"""/api/workflows/{id}/events: a log as it grows, to clients that come back, read slowly, or may not look."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from clew.api.auth import LOCAL, Authenticator
from clew.api.errors import TooMany
from clew.api.events import events_router
from clew.api.http import create_http
from clew.api.streams import EVENT_TYPES, Streams
from clew.api.thread_access import ThreadAccess
from clew.cli.protocol import BoundedHttp, BoundedWebSocket
from clew.domain.errors import Unavailable
from clew.domain.events import AssistantMessage, Log
from clew.domain.lifecycle import redact
from clew.domain.thread import Owner
from clew.engine.commands import Request
from clew.server.database import new_id, utc_now
from clew.telemetry import Metrics
from tests.app import House, open_house
from tests.http_client import client_of, new_key
from tests.samples import ANN, opened, recorded, stamp
from tests.serving import Sse, served, sse

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

SECONDS = 60
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Place:
    """The product behind a socket, and clients of it."""

    house: House
    address: str

    def client(self, key: str | None = None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Without certificates, which take longer to load than a test of a hundred clients has time.
        return httpx.AsyncClient(
            base_url=f"http://{self.address}", headers=headers, timeout=SECONDS, verify=False
        )

    @asynccontextmanager
    async def stream(
        self, thread_id: str, *, key: str | None = None, last: str | None = None, **params: Any
    ) -> AsyncGenerator[AsyncIterator[Sse]]:
        headers = {"Last-Event-ID": last} if last else {}
        async with (
            asyncio.timeout(SECONDS),
            self.client(key) as client,
            client.stream(
                "GET", f"/api/workflows/{thread_id}/events", params=params, headers=headers
            ) as answer,
        ):
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            async with aclosing(sse(answer)) as events:  # type: ignore[type-var]
                yield events


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


@pytest.fixture
async def hasty_place(tmp_path: Path) -> AsyncGenerator[Place]:
    """Only the events, by a server without patience, that looks at keys again in a tenth of the time."""
    async with open_house("memory", tmp_path, CLEW_SHUTDOWN_SECONDS="0.2") as house:
        app = house.app
        authenticator = Authenticator(
            app.stores.keys, clock=utc_now, open_locally=True, monotonic=lambda: 10 * time.monotonic()
        )
        router = events_router(
            app.stores.threads,
            app.execution.notifier,
            app.execution.live,
            authenticator=authenticator,
            access=ThreadAccess(app.stores.threads, utc_now),
            streams=Streams(app.stopping, app.metrics, check_seconds=0.1),
            send_seconds=0.5,
        )
        http = create_http(
            [router],
            authenticator=authenticator,
            metrics=app.metrics,
            new_id=new_id,
            max_body_bytes=1024,
        )
        async with served(http, app.stopping) as address:
            yield Place(house, address)


async def until(events: AsyncIterator[Sse], *types: str) -> list[Sse]:
    """Everything up to the first event of one of these types, that one included."""
    seen: list[Sse] = []
    async for event in events:
        seen.append(event)
        if event.type in types:
            return seen
    raise AssertionError(f"the stream ended after {[event.type for event in seen]}")


async def told_of(place: Place, *, graph: str = "agent", types: Sequence[str] = (), **body: Any) -> list[Sse]:
    """Everything of a workflow that speaks, which begins when somebody follows it: a word is told only once."""
    asked = {"prompt": "slowly: one two three", "graph": graph, "hold": True, **body}
    async with place.client() as client:
        path = f"/api/workflows/{(await client.post('/api/workflows/start', json=asked)).json()['id']}"
        async with place.stream(path.rpartition("/")[2], types=types) as events:
            first = await anext(events)
            assert (await client.post(f"{path}/begin")).status_code == 200
            return [first, *await until(events, "workflow_completed")]


def numbers(events: Sequence[Sse]) -> list[int]:
    return [int(event.id) for event in events if event.id is not None]


@pytest.mark.accept("001-5", "001-12", "001-14", "001-18", "001-37")
async def test_a_workflow_is_followed_from_its_start_through_a_pause_to_its_end(place: Place) -> None:
    started = await place.house.start("gated", log=[])
    async with place.stream(started.id) as events:
        first = await until(events, "approval_required")
        assert [event.type for event in first] == [
            *("workflow_started", "stage_changed", "stage_completed", "approval_required"),
        ]
        assert [event.data["data"].get("stage") for event in first[1:3]] == ["architect", "architect"]
        asked = first[-1].data
        assert asked["data"]["prompt"] == {"before": ["human_approval_node"]}
        assert (asked["workflowId"], asked["eventType"]) == (started.id, "approval_required")
        await place.house.app.execution.commands.approve(started.id, None, approved=True)
        rest = await until(events, "workflow_completed")
    assert [event.type for event in rest] == [
        "resolution",
        *("stage_changed", "stage_completed") * 2,
        "workflow_completed",
    ]
    assert numbers([*first, *rest]) == list(range(1, len(first) + len(rest) + 1))
    log = await place.house.log(started)
    assert [event.data["data"]["record_id"] for event in [*first, *rest]] == [event.id for event in log]
    assert rest[1].data["data"]["stage"] == "human_approval_node"


@pytest.mark.accept("001-37")
async def test_a_failure_and_a_stop_are_told_once_with_their_reason(place: Place) -> None:
    failed = await place.house.start("broken", log=[])
    async with place.stream(failed.id) as events:
        seen = await until(events, "workflow_failed")
    assert "no such issue" in seen[-1].data["data"]["error"]
    slow = await place.house.start("slow", log=[])
    async with place.stream(slow.id) as events:
        await until(events, "stage_changed")
        await place.house.app.execution.commands.stop(slow.id, None)
        assert (await until(events, "workflow_stopped"))[-1].data["data"]["status"] == "stopped"


@pytest.mark.fault("E3")
async def test_a_client_that_comes_back_misses_nothing_and_sees_nothing_twice(place: Place) -> None:
    thread = await place.house.run("gated", log=[])
    last: str | None = None
    seen: list[int] = []

    async def work() -> None:
        for _ in range(5):
            commands = place.house.app.execution.commands
            now = await place.house.rest(await commands.approve(thread.id, None, approved=True))
            await place.house.rest(await commands.next_round(now.id, None, Request(graph_input={"log": []})))

    working = asyncio.create_task(work())
    while not working.done() or len(seen) < (await place.house.app.stores.threads.get(thread.id)).last_seq:
        async with place.stream(thread.id, last=last) as events:
            for _ in range(4):
                try:
                    async with asyncio.timeout(0.5):
                        event = await anext(events)
                except TimeoutError:
                    break
                last = event.id
                seen.append(int(event.id or 0))
    await working
    assert seen == list(range(1, len(seen) + 1))


async def test_since_and_types_choose_what_is_told(place: Place) -> None:
    thread = await place.house.run("gated", log=[])
    async with place.stream(thread.id, since=2) as events:
        assert numbers(await until(events, "approval_required")) == [3, 4]
    # The id a client comes back with says more than the address it was given first.
    async with place.stream(thread.id, since=1, last="3") as events:
        assert numbers(await until(events, "approval_required")) == [4]
    async with place.stream(thread.id, types=["stage_started", "approval_required"]) as events:
        seen = await until(events, "approval_required")
    assert [event.type for event in seen] == ["stage_changed", "approval_required"]


async def test_a_type_that_does_not_exist_is_refused_by_name(small_place: Place) -> None:
    thread = await small_place.house.start("two_steps", log=[])
    async with asyncio.timeout(SECONDS), small_place.client() as client:
        for types in (
            ["no_such_event"],
            ["log", "no_such_event"],
            ["round_finished"],
            [""],
            ["log,redacted"],
        ):
            answer = await client.get(f"/api/workflows/{thread.id}/events", params={"types": types})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "INVALID")
            assert error["field"] == f"types.{len(types) - 1}"
            told, _, known = error["message"].partition(", only ")
            assert repr(types[-1]) in told
            assert known.split(", ") == list(EVENT_TYPES)
    # Those that are in no log are known too.
    async with small_place.stream(thread.id, types=EVENT_TYPES) as events:
        await until(events, "workflow_completed")


async def test_every_type_one_may_ask_for_is_explained() -> None:
    page = (REPOSITORY / "docs/howto/stream-events.md").read_text()
    assert [name for name in EVENT_TYPES if f"`{name}`" not in page] == []


async def test_words_can_be_asked_for_by_their_name(small_place: Place) -> None:
    types = ["user_msg", "llm_token", "workflow_completed"]
    seen = await told_of(small_place, types=types, verbose=True)
    assert {event.type for event in seen} == set(types)


@pytest.mark.fault("E3")
async def test_a_place_beyond_the_log_is_a_gap(small_place: Place) -> None:
    thread = await small_place.house.run("gated", log=[])
    async with small_place.stream(thread.id, last="99") as events:
        seen = await until(events, "approval_required")
    assert (seen[0].type, seen[0].data) == ("gap", {"since": 99, "lastSequence": thread.last_seq})
    assert numbers(seen) == list(range(1, thread.last_seq + 1))


@pytest.mark.parametrize(
    ("params", "headers", "field"),
    [
        ({"since": -1}, {}, "since"),
        ({"since": "x"}, {}, "since"),
        ({"since": 2**60}, {}, "since"),
        ({}, {"Last-Event-ID": "x"}, "Last-Event-ID"),
        ({}, {"Last-Event-ID": "-1"}, "Last-Event-ID"),
        ({}, {"Last-Event-ID": "9" * 30}, "Last-Event-ID"),
    ],
)
async def test_what_is_no_place_in_a_log_is_refused(
    small_place: Place, params: dict[str, Any], headers: dict[str, str], field: str
) -> None:
    thread = await small_place.house.start("two_steps", log=[])
    async with small_place.client() as client:
        answer = await client.get(f"/api/workflows/{thread.id}/events", params=params, headers=headers)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


async def test_only_the_owner_may_follow(place: Place) -> None:
    keys = place.house.app.stores.keys
    ann, bob = await new_key(keys), await new_key(keys, owner=Owner(tenant=ANN.tenant, user_id="bob"))
    blind = await new_key(keys, scopes=frozenset({"write"}))
    await place.house.app.stores.threads.commit(opened("w1", held=True))
    async with place.stream("w1", key=ann) as events:
        assert (await anext(events)).type == "round_started"
    for key, thread_id, status in (
        *((bob, "w1", 404), (ann, "w2", 404), (blind, "w1", 403), (None, "w1", 401)),
    ):
        async with place.client(key) as client:
            answer = await client.get(f"/api/workflows/{thread_id}/events")
            assert answer.status_code == status


async def test_a_key_that_is_taken_back_ends_what_it_opened(hasty_place: Place) -> None:
    keys = hasty_place.house.app.stores.keys
    key = await new_key(keys)
    await hasty_place.house.app.stores.threads.commit(opened("w1", held=True))
    async with hasty_place.stream("w1", key=key) as events:
        assert (await anext(events)).type == "round_started"
        await keys.revoke(f"key_{key.split('_')[1]}", now=stamp().now)
        assert [event.type async for event in events] == ["user_msg"]


async def test_a_deleted_workflow_ends_its_streams(place: Place) -> None:
    thread = await place.house.run("gated", log=[])
    async with place.stream(thread.id) as events:
        await until(events, "approval_required")
        await place.house.app.execution.commands.delete(thread.id, None)
        assert (await until(events, "workflow_deleted"))[-1].id is None
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_streams_end_politely_with_the_process(small_place: Place) -> None:
    thread = await small_place.house.run("gated", log=[])
    async with small_place.client() as client:
        async with client.stream("GET", f"/api/workflows/{thread.id}/events") as answer:
            parts = answer.aiter_text()
            assert "retry: 2000" in await anext(parts)
            small_place.house.app.stopping.set()
            async with asyncio.timeout(SECONDS):
                rest = "".join([part async for part in parts])  # raises if the answer is cut short
        assert rest.endswith(": reconnect with the last id\n\n")
        refused = await client.get(f"/api/workflows/{thread.id}/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


async def test_what_is_redacted_is_not_told(place: Place) -> None:
    store = place.house.app.stores.threads
    change = opened("w1", "a secret", owner=Owner(), held=True)
    await store.commit(change)
    stopped = await place.house.app.execution.commands.stop("w1", None)
    await store.commit(redact(stopped, change.events[1].id, stamp=stamp()))
    async with place.stream("w1") as events:
        seen = await until(events, "redacted")
    assert "a secret" not in json.dumps([event.data for event in seen])
    assert seen[1].data["data"]["redacted"] is True


@pytest.mark.fault("E6")
@pytest.mark.accept("001-13")
async def test_words_are_told_while_they_are_said_and_are_in_no_log(place: Place) -> None:
    seen = await told_of(place, verbose=True)
    tokens = [event for event in seen if event.type == "llm_token"]
    assert len(tokens) >= 2
    assert all(event.id is None for event in tokens)
    said = "".join(event.data["data"]["token"] for event in tokens)
    offsets = [event.data["data"]["offset"] for event in tokens]
    assert offsets == sorted(offsets)
    assert said.startswith("you said: slowly:")
    log = await place.house.app.stores.threads.read(seen[0].data["workflowId"])
    assert "llm_token" not in {event.type for event in log}
    (message,) = [event.body for event in log if isinstance(event.body, AssistantMessage)]
    assert str(message.content).startswith(said)


@pytest.mark.parametrize("graph", ["agent", "langchain_agent"])
async def test_the_words_of_a_message_come_under_its_id(small_place: Place, graph: str) -> None:
    seen = await told_of(small_place, graph=graph, verbose=True)
    tokens = [event.data["data"]["message_id"] for event in seen if event.type == "llm_token"]
    (message,) = [event.data["data"] for event in seen if event.type == "assistant_msg"]
    assert set(tokens) == {message["ref"]}


@pytest.mark.accept("001-13")
async def test_without_verbose_nothing_is_told_before_it_is_said(small_place: Place) -> None:
    seen = await told_of(small_place)
    assert "llm_token" not in [event.type for event in seen]


async def test_a_setting_makes_every_workflow_verbose(tmp_path: Path) -> None:
    async with (
        open_house("memory", tmp_path, CLEW_VERBOSE="yes") as house,
        served(house.app.http, house.app.stopping) as address,
    ):
        seen = await told_of(Place(house, address))
    assert "llm_token" in [event.type for event in seen]


@contextmanager
def deaf_to(place: Place, thread_id: str) -> Iterator[None]:
    """Somebody who asks for the events of a thread and reads none."""
    host, port = place.address.split(":")
    with socket.create_connection((host, int(port))) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(f"GET /api/workflows/{thread_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        yield


async def open_streams(place: Place, count: int) -> None:
    gauge = place.house.app.metrics.streams.labels("sse")
    async with asyncio.timeout(SECONDS):
        while gauge._value.get() != count:
            await asyncio.sleep(0.02)


# Eight megabytes are more than the buffers between us; what is beyond them waits in the log, not in memory.
LONG_LINES = [f"{n} " + "x" * 200_000 for n in range(40)]


@pytest.mark.fault("E2")
async def test_a_client_that_does_not_read_delays_nobody(small_place: Place) -> None:
    """By a server that waits for it longer than this takes."""
    store = small_place.house.app.stores.threads
    change = opened("w1", owner=Owner(), held=True)
    await store.commit(change)
    with deaf_to(small_place, "w1"):
        await open_streams(small_place, 1)
        async with small_place.stream("w1", since=change.thread.last_seq) as events:
            for line in LONG_LINES:
                await store.commit(recorded(await store.get("w1"), Log(message=line)))
                small_place.house.app.execution.notifier.publish("w1")
                assert (await anext(events)).data["data"]["message"] == line
    await open_streams(small_place, 0)


@pytest.mark.fault("E2")
async def test_a_client_that_does_not_read_is_let_go(hasty_place: Place) -> None:
    store = hasty_place.house.app.stores.threads
    change = opened("w1", owner=Owner(), held=True)
    await store.commit(change)
    with deaf_to(hasty_place, "w1"):
        await open_streams(hasty_place, 1)
        await store.commit(recorded(change.thread, *(Log(message=line) for line in LONG_LINES)))
        hasty_place.house.app.execution.notifier.publish("w1")
        await open_streams(hasty_place, 0)


class HastyHttp(BoundedHttp):
    unread_seconds = 0.3


class HastyWebSocket(BoundedWebSocket):
    unread_seconds = 0.3


@pytest.mark.fault("E2")
@pytest.mark.parametrize("path", ["/api/workflows/w1/events", "/ws/events?since=w1:0"])
async def test_a_connection_nobody_reads_from_is_cut(tmp_path: Path, path: str) -> None:
    """Closing it would wait for the client to take what was sent."""
    async with open_house("memory", tmp_path, CLEW_SHUTDOWN_SECONDS="0.2") as house:
        change = opened("w1", owner=Owner(), held=True)
        await house.app.stores.threads.commit(change)
        lines = (Log(message=line) for line in LONG_LINES)
        await house.app.stores.threads.commit(recorded(change.thread, *lines))
        async with served(house.app.http, house.app.stopping, http=HastyHttp, ws=HastyWebSocket) as address:
            host, port = address.split(":")
            with socket.create_connection((host, int(port))) as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                upgrade = (
                    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                )
                more = upgrade if path.startswith("/ws") else ""
                deaf.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode())
                connection = psutil.Process()
                local = deaf.getsockname()

                def is_open() -> bool:
                    return any(
                        found.raddr == local and found.status == psutil.CONN_ESTABLISHED
                        for found in connection.net_connections("tcp")
                    )

                async with asyncio.timeout(SECONDS):
                    while not is_open():
                        await asyncio.sleep(0.02)
                    while is_open():
                        await asyncio.sleep(0.02)


@pytest.mark.fault("E4")
async def test_there_are_not_more_streams_than_allowed() -> None:
    streams = Streams(asyncio.Event(), Metrics(), most=4, most_of_one=2)
    other = replace(LOCAL, tenant="other", key_id="key_2")
    third = replace(LOCAL, tenant="other", key_id="key_3")
    with streams.one("sse", LOCAL), streams.one("sse", LOCAL):
        with pytest.raises(TooMany), streams.one("sse", LOCAL):
            pass
        with (
            streams.one("sse", other),
            streams.one("ws", other),
            pytest.raises(Unavailable, match="too many"),
            streams.one("sse", third),
        ):
            pass
    with streams.one("sse", LOCAL):
        pass


@pytest.mark.fault("E1")
async def test_a_hundred_followers_see_every_event_in_order(small_place: Place) -> None:
    thread = await small_place.house.run("gated", log=[])

    async def follow() -> list[int]:
        async with small_place.stream(thread.id) as events:
            return numbers(await until(events, "workflow_completed"))

    following = [asyncio.create_task(follow()) for _ in range(100)]
    gauge = small_place.house.app.metrics.streams.labels("sse")
    async with asyncio.timeout(SECONDS):
        while gauge._value.get() < 100:
            await asyncio.sleep(0.02)
    async with client_of(small_place.house.app.http) as client:
        await client.post(f"/api/workflows/{thread.id}/approve")
    seen = await asyncio.gather(*following)
    last = (await small_place.house.app.stores.threads.get(thread.id)).last_seq
    assert seen == [list(range(1, last + 1))] * 100
