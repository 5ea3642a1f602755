"""One row, state or checkpoint that cannot be read is its own trouble: every list and search answers with the others."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from clew.domain.events import Opening, RoundStarted
from clew.domain.thread import CANNOT_BE_READ
from clew.server.app import Server
from tests.databases import SHARED, locate, query
from tests.http_client import client_of, new_key, opened_app
from tests.samples import opened

pytestmark = pytest.mark.anyio

# Two versions of one graph: the newer one has a class that checks more.
GRAPH = """
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel, Field, field_validator


class Older(BaseModel):
    count: int = 0
    words: list[str] = []


class Newer(BaseModel):
    count: int = Field(default=0, le=1_000)
    words: list[str] = []


class Leaving(BaseModel):
    count: int = 0
    words: list[str] = []

    @field_validator("count")
    @classmethod
    def leave(cls, count):
        if count == 13:
            raise SystemExit(3)
        return count


def say(state):
    return {"words": [*state.words, "said"]}


def ask(state):
    return {"words": [*state.words, interrupt("well?")]}


def graph_of(schema, *nodes):
    return StateGraph(schema).add_sequence(list(nodes)).add_edge(START, nodes[0].__name__)


free = graph_of(Older, say)
leaving = graph_of(Leaving, say)
older, newer = graph_of(Older, say, ask), graph_of(Newer, say, ask)
"""
FAR = 7 * 10**18  # microseconds: beyond the year 9999


@pytest.fixture(params=SHARED)
def database_url(request: pytest.FixtureRequest) -> str:
    where = locate(request.param, request)
    return where if request.param == "postgres" else f"sqlite:///{where}"


@asynccontextmanager
async def opened_with(version: str, folder: Path, url: str) -> AsyncGenerator[Server]:
    (folder / "flows.py").write_text(GRAPH)
    (folder / "clew.yaml").write_text(
        f"graphs:\n  asker: ./flows.py:{version}\n  free: ./flows.py:free\n  leaving: ./flows.py:leaving\n"
    )
    async with opened_app(folder, CLEW_DATABASE_URL=url) as app:
        yield app


@pytest.fixture
async def app(database_url: str, tmp_path: Path) -> AsyncGenerator[Server]:
    async with opened_with("newer", tmp_path, database_url) as app:
        yield app


@pytest.fixture
async def ann(app: Server) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(app.http, await new_key(app.stores.keys)) as client:
        client.timeout = httpx.Timeout(40)
        yield client


async def ask(client: httpx.AsyncClient, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await client.request(method, path, json=body)
    assert answer.status_code == status, (path, answer.status_code, answer.text)
    return answer.json() if answer.content else None


async def made(client: httpx.AsyncClient, **body: Any) -> str:
    return str((await ask(client, "POST", "/threads", body))["thread_id"])


async def said(client: httpx.AsyncClient, graph: str = "free", **given: Any) -> str:
    """A thread with a state."""
    thread = await made(client)
    await ask(client, "POST", f"/threads/{thread}/runs/wait", {"assistant_id": graph, "input": given})
    return thread


async def lists(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    """Every thread as each list shows it, by its id."""
    native = (await ask(client, "GET", "/api/threads"))["threads"]
    workflows = (await ask(client, "GET", "/api/workflows"))["workflows"]
    found = await ask(client, "POST", "/threads/search", {"limit": 100})
    named = await ask(client, "POST", "/threads/search", {"limit": 100, "select": ["thread_id"]})
    ids = {one["id"] for one in native}
    assert {one["id"] for one in workflows} == ids
    assert {one["thread_id"] for one in named} == ids
    assert {one["thread_id"] for one in found} == ids
    return {one["thread_id"]: one for one in found}


@pytest.mark.parametrize("ttl", [1e11, 1e300, 0, -1, {"ttl": 1e11}, {"ttl": 0}, {"ttl": 10**18}])
async def test_a_time_to_live_beyond_the_calendar_makes_no_thread(
    app: Server, ann: httpx.AsyncClient, ttl: Any
) -> None:
    thread = str(uuid4())
    refused = await ask(ann, "POST", "/threads", {"thread_id": thread, "ttl": ttl}, status=422)
    assert "ttl" in refused["detail"]
    assert await lists(ann) == {}
    assert await query(app.stores.db, "SELECT 1 FROM threads") == []


@pytest.mark.fault("D3")
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/store/items", {"namespace": ["a"], "key": "k", "value": {}, "ttl": 1e11}, 422),
        ("PUT", "/store/items", {"namespace": ["a"], "key": "k", "value": {}, "ttl": -1}, 422),
        ("POST", "/runs", {"assistant_id": "free", "input": {}, "after_seconds": 1e11}, 422),
        (
            "POST",
            "/runs/crons",
            {"assistant_id": "free", "schedule": "0 0 * * *", "after_seconds": 1e11},
            422,
        ),
        (
            "POST",
            "/runs/crons",
            {"assistant_id": "free", "schedule": "0 0 * * *", "end_time": "9999-12-31T23:59:59-14:00"},
            422,
        ),
        ("POST", "/api/workflows/start", {"graph": "free", "prompt": "x", "ttlDays": 10**9}, 400),
        ("POST", "/api/workflows/start", {"graph": "free", "prompt": "x", "ttlDays": 0}, 400),
        ("GET", "/api/workflows/nothing/status?wait=1e11", None, 400),
        ("POST", "/api/threads/cleanup?days_old=100000000", None, 400),
    ],
)
async def test_durations_are_bounded_at_every_door(
    app: Server, ann: httpx.AsyncClient, method: str, path: str, body: Any, status: int
) -> None:
    await ask(ann, method, path, body, status)
    assert await query(app.stores.db, "SELECT 1 FROM threads") == []


async def test_the_longest_time_to_live_is_shown_as_it_is(ann: httpx.AsyncClient) -> None:
    thread = await made(ann, ttl={"ttl": 36_600 * 1440})
    assert set(await lists(ann)) == {thread}
    assert (await ask(ann, "GET", f"/api/threads/{thread}"))["expiresAt"] > "2100"


async def test_less_than_a_microsecond_is_still_a_time_to_live(ann: httpx.AsyncClient) -> None:
    thread = await made(ann, ttl=1e-12)
    shown = await ask(ann, "GET", f"/api/threads/{thread}")
    assert shown["expiresAt"][:16] == shown["createdAt"][:16]


async def test_a_thread_that_was_once_given_too_long_a_life_is_shown_with_the_others(
    app: Server, ann: httpx.AsyncClient
) -> None:
    """As older versions stored it: in its row and in its log."""
    good, bad, ttl = await made(ann), str(uuid4()), timedelta(days=7e7)
    change = opened(bad)
    first = change.events[0]
    assert isinstance(first.body, RoundStarted)
    assert isinstance(first.body.opening, Opening)
    body = replace(first.body, opening=replace(first.body.opening, ttl=ttl))
    events = (replace(first, body=body), *change.events[1:])
    await app.stores.threads.commit(replace(change, thread=replace(change.thread, ttl=ttl), events=events))
    assert set(await lists(ann)) == {good, bad}
    assert (await ask(ann, "GET", f"/api/threads/{bad}"))["expiresAt"].startswith("9999-12-31")
    await query(app.stores.db, "UPDATE threads SET seal = 1 WHERE id = $1", bad)
    assert set(await lists(ann)) == {good, bad}


@pytest.mark.fault("D3", "B7")
@pytest.mark.parametrize("column", ["last_accessed_at", "expires_at", "created_at", "last_active_at", "ttl"])
async def test_a_time_beyond_the_calendar_in_a_row_hides_no_thread(
    app: Server, ann: httpx.AsyncClient, column: str
) -> None:
    good, bad = await said(ann), await said(ann)
    for value in (FAR, -FAR, 2**63 - 1):
        await query(app.stores.db, f"UPDATE threads SET {column} = {value} WHERE id = $1", bad)
        assert set(await lists(ann)) == {good, bad}


async def test_a_state_class_that_ends_the_process_hides_no_thread(ann: httpx.AsyncClient) -> None:
    good, bad = await said(ann), await said(ann, "leaving", count=13)
    shown = await lists(ann)
    assert set(shown) == {good, bad}
    assert "SystemExit" in shown[bad]["error"]["message"]
    assert (await ask(ann, "GET", f"/threads/{bad}"))["status"] == "error"
    copied = await ask(ann, "POST", f"/threads/{bad}/copy")
    assert set(await lists(ann)) == {good, bad, copied["thread_id"]}


@pytest.mark.parametrize(
    "damage",
    [
        f"UPDATE histories SET updated_at = {FAR}",
        f"UPDATE histories SET created_at = -{FAR}",
        f"UPDATE history_messages SET at = {FAR}",
        "DELETE FROM history_messages",
    ],
)
async def test_a_damaged_chat_history_hides_no_item(app: Server, ann: httpx.AsyncClient, damage: str) -> None:
    await ask(ann, "PUT", "/store/items", {"namespace": ["n"], "key": "k", "value": {}}, status=204)
    await ask(ann, "POST", "/api/histories/telegram:1/messages", {"content": "hello"})
    await query(app.stores.db, damage)
    found = await ask(ann, "POST", "/store/items/search", {})
    assert "k" in [item["key"] for item in found["items"]]


async def test_a_misspelt_key_of_a_pushed_message_is_named(ann: httpx.AsyncClient) -> None:
    body = {"contnt": "hello"}
    refused = await ask(ann, "POST", "/api/histories/telegram:1/messages", body, status=400)
    assert "did you mean 'content'" in refused["error"]["message"]


async def test_a_thread_whose_row_and_log_are_damaged_is_listed_with_an_error(
    app: Server, ann: httpx.AsyncClient
) -> None:
    good, bad = await said(ann), await said(ann)
    await query(app.stores.db, "UPDATE threads SET fsm_state = '' WHERE id = $1", bad)
    await query(app.stores.db, "UPDATE events SET content = '' WHERE thread_id = $1 AND seq = 1", bad)
    found = await lists(ann)
    assert (found[bad]["status"], found[bad]["error"]["message"]) == ("error", CANNOT_BE_READ)
    assert (found[good]["status"], found[good]["values"]["words"]) == ("idle", ["said"])
    (shown,) = [one for one in (await ask(ann, "GET", "/api/threads"))["threads"] if one["id"] == bad]
    assert (shown["status"], shown["failureReason"]) == ("failed", CANNOT_BE_READ)
    # It can still be deleted.
    await ask(ann, "DELETE", f"/threads/{bad}", status=204)
    assert set(await lists(ann)) == {good}


async def test_a_search_in_messages_shows_a_damaged_thread_with_an_error(
    app: Server, ann: httpx.AsyncClient
) -> None:
    body = {"graph": "free", "prompt": "where is the needle?"}
    good, bad = [(await ask(ann, "POST", "/api/workflows/start?wait=30", body))["id"] for _ in range(2)]

    async def found() -> dict[str, Any]:
        answer = await ask(ann, "GET", "/api/threads/search?q=needle")
        return {one["thread"]["id"]: one for one in answer["found"]}

    async with asyncio.timeout(20):
        while set(await found()) != {good, bad}:
            await asyncio.sleep(0.05)
    await query(app.stores.db, "UPDATE threads SET fsm_state = '' WHERE id = $1", bad)
    await query(app.stores.db, "UPDATE events SET content = '' WHERE thread_id = $1", bad)
    shown = await found()
    assert "where is the needle?" in [match["text"] for match in shown[good]["matches"]]
    assert (shown[bad]["thread"]["failureReason"], shown[bad]["matches"]) == (CANNOT_BE_READ, [])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE checkpoints SET body = '{' WHERE thread_id = $1",
        "UPDATE checkpoints SET metadata = '7' WHERE thread_id = $1",
        "DELETE FROM checkpoint_blobs WHERE thread_id = $1",
        "UPDATE checkpoint_blobs SET kind = 'pickle' WHERE thread_id = $1",
        "UPDATE labels SET value = '{' WHERE thread_id = $1",
        "UPDATE labels SET path = '7' WHERE thread_id = $1 AND path LIKE '%graph_id%'",
        "UPDATE events SET content = '' WHERE thread_id = $1",
    ],
)
async def test_a_damaged_checkpoint_label_or_log_hides_no_other_thread(
    app: Server, ann: httpx.AsyncClient, damage: str
) -> None:
    good, bad = await said(ann), await said(ann, words=["x" * 3000])
    await query(app.stores.db, damage, bad)
    app.execution.graph_driver.drop(bad)
    found = await lists(ann)
    assert set(found) == {good, bad}
    assert found[good]["values"]["words"] == ["said"]


CRON = {"assistant_id": "free", "schedule": "0 0 1 1 *", "input": {}}


@pytest.mark.parametrize(
    ("table", "which", "damages"),
    [
        (
            "crons",
            "spec LIKE '%bad%'",
            [
                "input = ''",
                f"end_at = {FAR}",
                f"next_at = {FAR}",
                "spec = '{\"bad\": 1}'",
                "spec = 'bad'",
            ],
        ),
        ("assistant_versions", "name = 'bad'", ["config = '{'", "metadata = ''", "context = '{'"]),
        (
            "assistants",
            "id IN (SELECT id FROM assistant_versions WHERE name = 'bad')",
            [f"created_at = {FAR}", f"updated_at = {-FAR}"],
        ),
        ("store_items", "key = 'bad'", ["value = '{'", "value = ''", f"created_at = {FAR}"]),
        ("files", "name = 'bad.txt'", [f"created_at = {FAR}"]),
    ],
)
async def test_a_damaged_row_of_another_kind_hides_none_of_the_others(
    app: Server, ann: httpx.AsyncClient, table: str, which: str, damages: list[str]
) -> None:
    for key in ("bad", "good"):
        await ask(ann, "POST", "/runs/crons", {**CRON, "metadata": {"is": key}})
        await ask(ann, "POST", "/assistants", {"graph_id": "free", "name": key})
        await ask(ann, "PUT", "/store/items", {"namespace": ["n"], "key": key, "value": {}}, status=204)
        uploaded = await ann.post("/api/files", files={"file": (f"{key}.txt", key.encode())})
        assert uploaded.status_code == 200, uploaded.text
    for damage in damages:
        changed = await query(app.stores.db, f"UPDATE {table} SET {damage} WHERE {which} RETURNING 1")
        assert len(changed) == 1
        crons = await ask(ann, "POST", "/runs/crons/search", {"limit": 100})
        assert "good" in [one["metadata"]["is"] for one in crons]
        assistants = await ask(ann, "POST", "/assistants/search", {"limit": 100})
        assert "good" in [one["name"] for one in assistants]
        items = await ask(ann, "POST", "/store/items/search", {"namespace_prefix": ["n"]})
        assert "good" in [one["key"] for one in items["items"]]
        files = await ask(ann, "GET", "/api/files")
        assert "good.txt" in [one["name"] for one in files["files"]]


async def test_a_damaged_cron_keeps_no_other_from_its_turn(app: Server, ann: httpx.AsyncClient) -> None:
    for key in ("bad", "good"):
        await ask(ann, "POST", "/runs/crons", {**CRON, "on_run_completed": "keep", "metadata": {"is": key}})
    await query(app.stores.db, "UPDATE crons SET next_at = 1")
    await query(app.stores.db, "UPDATE crons SET spec = '{' WHERE spec LIKE '%bad%'")
    async with asyncio.timeout(30):
        while not (await ask(ann, "GET", "/api/threads"))["threads"]:
            await asyncio.sleep(0.05)


class TestStateThatDoesNotFit:
    """A graph's own class refuses what is stored: because of a bad input, or because it was changed since."""

    @pytest.fixture
    async def bad(self, database_url: str, tmp_path: Path) -> str:
        """Made before there is an `app`: its class was changed while it waited."""
        async with opened_with("older", tmp_path, database_url) as app:
            key = await new_key(app.stores.keys)
            async with client_of(app.http, key) as client:
                return await said(client, "asker", count=5_000, words=["kept"])

    @pytest.fixture
    async def app(self, bad: str, database_url: str, tmp_path: Path) -> AsyncGenerator[Server]:
        async with opened_with("newer", tmp_path, database_url) as app:
            yield app

    async def test_a_search_shows_it_with_the_reason(self, ann: httpx.AsyncClient, bad: str) -> None:
        good = await said(ann, "asker", count=1)
        found = await lists(ann)
        assert set(found) == {good, bad}
        assert found[good]["values"]["words"] == ["said"]
        assert (found[bad]["status"], found[bad]["values"]) == ("interrupted", None)
        assert "count: Input should be less than or equal to 1000" in found[bad]["error"]["message"]
        assert "5000" not in found[bad]["error"]["message"]

    async def test_its_state_is_a_400_with_the_reason(self, ann: httpx.AsyncClient, bad: str) -> None:
        refused = await ask(ann, "GET", f"/threads/{bad}/state", status=400)
        assert "count: Input should be less than or equal to 1000" in refused["detail"]
        refused = await ask(ann, "GET", f"/api/workflows/{bad}/state", status=400)
        assert refused["error"]["code"] == "SCHEMA_MISMATCH"
        assert "count" in refused["error"]["message"]
        # And the thread itself can be looked at, and deleted.
        assert (await ask(ann, "GET", f"/threads/{bad}"))["thread_id"] == bad
        await ask(ann, "GET", f"/api/workflows/{bad}")
        await ask(ann, "DELETE", f"/threads/{bad}", status=204)

    async def test_its_past_tells_which_states_do_not_fit(self, ann: httpx.AsyncClient, bad: str) -> None:
        past = await ask(ann, "POST", f"/threads/{bad}/history", {"limit": 10})
        wrong = [one for one in past if "error" in one]
        assert wrong
        assert all("count" in one["error"] and one["checkpoint"]["checkpoint_id"] for one in wrong)
        assert len(past) > len(wrong)

    async def test_its_copy_is_whole_or_not_there(self, ann: httpx.AsyncClient, bad: str) -> None:
        copied = await ask(ann, "POST", f"/threads/{bad}/copy", {})
        found = await lists(ann)
        assert set(found) == {bad, copied["thread_id"]}
        assert "count" in found[copied["thread_id"]]["error"]["message"]

    async def test_a_run_that_waits_for_it_is_answered(self, ann: httpx.AsyncClient, bad: str) -> None:
        runs = await ask(ann, "GET", f"/threads/{bad}/runs")
        joined = await ask(ann, "GET", f"/threads/{bad}/runs/{runs[0]['run_id']}/join")
        assert joined["__error__"]["error"] == "SchemaMismatch"

    async def test_a_bad_input_fails_its_run_and_no_search(self, ann: httpx.AsyncClient) -> None:
        thread = await made(ann)
        body = {"assistant_id": "asker", "input": {"count": "many"}}
        answer = await ask(ann, "POST", f"/threads/{thread}/runs/wait", body)
        assert answer["__error__"]["error"] == "ValidationError"
        assert thread in await lists(ann)
        await ask(ann, "GET", f"/threads/{thread}/state", status=400)
        started = await ask(
            ann,
            "POST",
            "/api/workflows/start?wait=20",
            {"graph": "asker", "prompt": "x", "input": {"count": "many"}},
        )
        assert started["id"] in await lists(ann)


async def test_a_thread_that_cannot_be_labelled_is_not_made(ann: httpx.AsyncClient) -> None:
    await ask(ann, "POST", "/threads", {"metadata": {str(n): n for n in range(300)}}, status=422)
    assert await lists(ann) == {}
