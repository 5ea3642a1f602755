"""/api/threads: lists in pages, threads with their owner, events in order."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.api.threads import read_cursor, write_cursor
from clew.domain.errors import Invalid
from clew.domain.events import AssistantMessage, Log
from clew.domain.lifecycle import Change, finish, redact
from clew.domain.thread import Owner, Status
from clew.server.app import Server
from tests import samples
from tests.databases import APP_DATABASES, locate
from tests.http_client import client_of, new_key, opened_app
from tests.samples import ANN, NOW, recorded, said, stamp, waits

pytestmark = pytest.mark.anyio


@pytest.fixture(params=APP_DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    where = locate(request.param, request)
    return {"memory": "memory://", "sqlite": f"sqlite:///{where}"}.get(request.param, where)


@pytest.fixture
async def app(database_url: str, tmp_path: Path) -> AsyncGenerator[Server]:
    async with opened_app(tmp_path, CLEW_DATABASE_URL=database_url) as app:
        yield app


@pytest.fixture
async def ann(app: Server) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(app.http, await new_key(app.stores.keys, owner=ANN)) as client:
        yield client


def opened(thread_id: str = "t1", message: str | None = "hello", **more: Any) -> Change:
    """Of a graph that is not here, so that nobody runs it while we look."""
    return samples.opened(thread_id, message, **{"graph": "elsewhere", **more})


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_threads_are_listed_newest_first_and_in_pages(app: Server, ann: httpx.AsyncClient) -> None:
    for number in range(5):
        await app.stores.threads.commit(opened(f"t{number}", seconds=number // 2))
    seen: list[str] = []
    cursor = None
    while True:
        page = await get(ann, "/api/threads", limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [thread["id"] for thread in page["threads"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == ["t4", "t3", "t2", "t1", "t0"]


async def test_a_list_is_filtered_by_status_and_graph(app: Server, ann: httpx.AsyncClient) -> None:
    await app.stores.threads.commit(opened("running"))
    await app.stores.threads.commit(opened("held", held=True))
    await app.stores.threads.commit(opened("other", graph="coding"))

    async def ids(**params: Any) -> set[str]:
        return {thread["id"] for thread in (await get(ann, "/api/threads", **params))["threads"]}

    assert await ids(status="pending") == {"held"}
    assert await ids(status=["pending", "running"]) == {"running", "held", "other"}
    assert await ids(graph="coding") == {"other"}
    assert await ids(graph="coding", status="pending") == set()


async def test_everybody_lists_their_own(app: Server) -> None:
    for owner in (ANN, Owner(tenant="acme", user_id="bob"), Owner(tenant="rival", user_id="ann")):
        await app.stores.threads.commit(opened(f"{owner.tenant}-{owner.user_id}", owner=owner))
    for owner, expected in (
        (ANN, {"acme-ann"}),
        (Owner(tenant="acme"), {"acme-ann", "acme-bob"}),
        (Owner(tenant="rival"), {"rival-ann"}),
        (Owner(tenant="nobody"), set()),
    ):
        async with client_of(app.http, await new_key(app.stores.keys, owner=owner)) as client:
            page = await get(client, "/api/threads")
            assert {thread["id"] for thread in page["threads"]} == expected
            # Somebody else's cursor is a place in time and opens nothing.
            foreign = write_cursor(opened("acme-zzz", seconds=1).thread)
            page = await get(client, "/api/threads", cursor=foreign)
            assert {thread["id"] for thread in page["threads"]} == expected


async def test_a_thread_shows_what_it_is_and_what_it_waits_for(app: Server, ann: httpx.AsyncClient) -> None:
    first = opened("t1", ttl=timedelta(days=1))
    await app.stores.threads.commit(first)
    await app.stores.threads.commit(recorded(first.thread, waits("c1")))
    thread = await get(ann, "/api/threads/t1")
    assert thread["status"] == "blocked"
    assert thread["pending"] == {
        "c1": {"executor": "human", "kind": "approval", "prompt": {"text": "may I?"}}
    }
    assert thread["createdAt"] == NOW.isoformat().replace("+00:00", "Z")
    assert thread["lastSeq"] == 3
    assert {"fence", "leaseOwner"}.isdisjoint(thread)
    # Of the settings those of the model alone, and these were opened without one.
    assert thread["settings"] == {"provider": "", "model": "", "systemPrompt": ""}


async def test_looking_at_a_thread_keeps_it(app: Server, ann: httpx.AsyncClient) -> None:
    await app.stores.threads.commit(opened("t1", ttl=timedelta(days=1)))
    before = await app.stores.threads.get("t1")
    await get(ann, "/api/threads/t1")
    await app.access.flush()
    after = await app.stores.threads.get("t1")
    assert before.expires_at is not None
    assert after.expires_at is not None
    assert after.expires_at > before.expires_at


async def test_events_come_in_order_and_go_on_after_a_seq(app: Server, ann: httpx.AsyncClient) -> None:
    first = opened("t1")
    await app.stores.threads.commit(first)
    await app.stores.threads.commit(recorded(first.thread, *(Log(message=f"line {n}") for n in range(8))))
    newest = await get(ann, "/api/threads/t1/events", limit=4)
    assert [event["seq"] for event in newest["events"]] == [7, 8, 9, 10]
    page = await get(ann, "/api/threads/t1/events", after=0, limit=4)
    assert [event["seq"] for event in page["events"]] == [1, 2, 3, 4]
    assert page["lastSeq"] == 10
    rest = await get(ann, "/api/threads/t1/events", after=4)
    assert [event["seq"] for event in rest["events"]] == [5, 6, 7, 8, 9, 10]
    assert rest["events"][-1]["content"]["message"] == "line 7"
    assert (await get(ann, "/api/threads/t1/events", after=10))["events"] == []
    back = await get(ann, "/api/threads/t1/events", before=9, limit=4)
    assert [event["seq"] for event in back["events"]] == [5, 6, 7, 8]


async def test_what_was_redacted_is_not_shown(app: Server, ann: httpx.AsyncClient) -> None:
    change = opened("t1", message="my secret")
    await app.stores.threads.commit(change)
    secret = change.events[-1]
    change = recorded(change.thread, AssistantMessage(content="noted", documents=("d1", "d2")))
    await app.stores.threads.commit(change)
    answer = change.events[-1]
    change = finish(change.thread, Status.COMPLETED, stamp=stamp(1))
    await app.stores.threads.commit(change)
    change = redact(change.thread, secret.id, stamp=stamp(2))
    await app.stores.threads.commit(change)
    await app.stores.threads.commit(redact(change.thread, answer.id, document_id="d1", stamp=stamp(3)))
    raw = await ann.get("/api/threads/t1/events")
    assert "my secret" not in raw.text
    shown = {event["id"]: event for event in raw.json()["events"]}
    assert shown[secret.id]["content"] is None
    assert shown[secret.id]["redacted"] is True
    assert shown[answer.id]["content"]["documents"] == ["d2"]


WRONG = [
    ("/api/threads?limit=0", "limit"),
    ("/api/threads?limit=201", "limit"),
    ("/api/threads?limit=true", "limit"),
    ("/api/threads?status=asleep", "status.0"),
    ("/api/threads?cursor=%21", "cursor"),
    ("/api/threads?cursor=aGVsbG8", "cursor"),
    ("/api/threads?graph=" + "g" * 257, "graph"),
    ("/api/threads/t1/events?after=-1", "after"),
    ("/api/threads/t1/events?after=99999999999999999999", "after"),
    ("/api/threads/t1/events?after=x", "after"),
    ("/api/threads/t1/events?before=-1", "before"),
    ("/api/threads/t1/events?before=99999999999999999999", "before"),
    ("/api/threads/t1/events?limit=1001", "limit"),
    ("/api/threads/" + "t" * 257, "thread_id"),
]


async def test_wrong_parameters_are_named(tmp_path: Path) -> None:
    async with opened_app(tmp_path) as app, client_of(app.http) as client:
        for path, field in WRONG:
            answer = await client.get(path)
            assert answer.status_code == 400, path
            assert answer.json()["error"]["field"] == field, path


ODD_IDS = ["%ff", "%c3%28", "%ed%a0%80", "a%0ab", "%1b%5b2J", "%F0%9F%98%80", "..", "%2e%2e%2fx"]


async def test_odd_ids_are_not_found_and_nothing_more(app: Server) -> None:
    async with client_of(app.http) as client:
        for thread_id in ODD_IDS:
            answer = await client.get(f"/api/threads/{thread_id}/events")
            assert answer.status_code == 404, thread_id
            assert answer.json()["error"]["code"] == "NOT_FOUND"
            assert answer.json()["error"]["message"].isprintable()


def test_a_cursor_reads_back_as_it_was_written() -> None:
    thread = opened("t 1:é").thread
    assert read_cursor(write_cursor(thread)) == (thread.created_at, thread.id)


@pytest.mark.parametrize(
    "cursor", ["", "=", "a", "AAAA", "é", write_cursor(opened().thread)[:-8], "MjAyNi0wMS0wMSB0MQ"]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        read_cursor(cursor)


async def test_said_text_is_never_in_a_log(
    app: Server, ann: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened("t1", message="canary-one")
    await app.stores.threads.commit(first)
    await app.stores.threads.commit(recorded(first.thread, said("canary-two")))
    await get(ann, "/api/threads/t1/events")
    assert "canary" not in caplog.text
