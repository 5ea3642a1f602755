"""Threads that expire, are deleted and cleaned up, through HTTP: each line of the thread cleanup spec."""

import asyncio
import io
import json
import logging
import signal
import zipfile
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import asyncpg
import httpx
import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langgraph.graph import END, START, MessagesState, StateGraph

from clew import AgentNode
from clew.api.cleanup_auth import SIGNATURE, sign
from clew.api.thread_access import COLLECT_SECONDS, GRAIN
from clew.config import load_settings
from clew.domain.events import Opening
from clew.domain.retention import CleanupJob, selection
from clew.domain.thread import Owner, Status
from clew.engine.commands import Request
from clew.server.app import Server, open_app
from clew.stores.sql.purge import AT_ONCE, PURGED
from clew.stores.sql.work import Database
from tests.databases import APP_DATABASES, SHARED, locate, query
from tests.http_client import client_of, new_key
from tests.postgres import PostgresServer, postgres_server
from tests.processes import SECONDS, serving, until
from tests.waiting import until as soon

pytestmark = pytest.mark.anyio

KEY = "a-key-for-cleaning-up"
SECRET = "a-secret-of-the-cron-service"
DAY = 86_400_000_000
DOCUMENT = "# Plan\n\nWe improved the importer.\nStart: TBD\n"
ORPHAN = (
    "INSERT INTO checkpoints (thread_id, ns, id, body, metadata, apart) VALUES"
    " ('orphan', '', '1', '{\"ts\": \"2020-01-01T00:00:00+00:00\"}', '{}', '{}')"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """The app as the spec's front end sees it."""

    app: Server
    http: httpx.AsyncClient

    @property
    def db(self) -> Database:
        return self.app.stores.db

    async def start(self, **body: Any) -> str:
        answer = await self.http.post("/api/optimize/start", json={"text": DOCUMENT, **body})
        assert answer.status_code == 200, answer.text
        seen = await self._settled(answer.json())
        assert seen["status"] == "waiting_input", seen
        return str(seen["thread_id"])

    async def status(self, thread_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/api/optimize/status/{thread_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def answer(self, thread_id: str, text: str = "42") -> dict[str, Any]:
        answer = await self.http.post(f"/api/optimize/{thread_id}/answer", json={"text": text})
        assert answer.status_code == 200, answer.text
        return await self._settled(answer.json())

    async def _settled(self, seen: dict[str, Any]) -> dict[str, Any]:
        """An answer waits for the next question, but not for ever."""
        if seen["status"] != "running":
            return seen
        await self.rest(seen["thread_id"])
        return await self.status(seen["thread_id"])

    async def rest(self, thread_id: str) -> None:
        """Until nobody runs it. Past the API: this is no look."""
        async with asyncio.timeout(SECONDS):
            while (await self.app.stores.threads.get(thread_id)).status is Status.RUNNING:
                await asyncio.sleep(0.01)

    async def finish(self, thread_id: str) -> dict[str, Any]:
        seen = await self._settled(await self.status(thread_id))
        while seen["status"] == "waiting_input":
            seen = await self.answer(thread_id)
        assert seen["status"] == "completed", seen
        return seen

    async def cleanup(self, query: str = "", *, status: int = 200) -> dict[str, Any]:
        answer = await self.http.post(f"/api/optimize/cleanup{query}", headers={"X-API-Key": KEY})
        assert answer.status_code == status, answer.text
        return dict(answer.json())

    async def age(self, thread_id: str, days: float) -> None:
        """As if nobody had looked at it for so long."""
        await self.app.access.flush()
        await query(
            self.db,
            "UPDATE threads SET last_accessed_at = last_accessed_at - CAST($2 AS BIGINT),"
            " expires_at = expires_at - CAST($2 AS BIGINT) WHERE id = $1",
            thread_id,
            int(days * DAY),
        )

    async def metadata(self, thread_id: str) -> dict[str, Any] | None:
        """The row of thread_metadata, past the API, which would be a look."""
        columns = (
            "thread_id, created_at, last_accessed_at, expires_at, user_id, status, workflow_step, metadata"
        )
        rows = await query(self.db, f"SELECT {columns} FROM thread_metadata WHERE thread_id = $1", thread_id)
        return dict(zip(columns.split(", "), rows[0], strict=True)) if rows else None

    async def accessed(self, thread_id: str, since: datetime) -> dict[str, Any]:
        """The row of thread_metadata, once an access since then is written."""

        async def row() -> dict[str, Any] | None:
            found = await self.metadata(thread_id)
            return found if found and moment(found["last_accessed_at"]) >= since else None

        return dict(await soon(row))

    async def rows_of(self, thread_id: str) -> dict[str, int]:
        counts = {
            table: (await query(self.db, f"SELECT count(*) FROM {table} WHERE thread_id = $1", thread_id))[0][
                0
            ]
            for table in PURGED
        }
        counts["threads"] = (await query(self.db, "SELECT count(*) FROM threads WHERE id = $1", thread_id))[
            0
        ][0]
        return {table: count for table, count in counts.items() if count}


class Remembered(MessagesState, total=False):
    inputs: dict[str, str]


def remembering() -> Any:
    """A graph with an agent that remembers."""
    graph = StateGraph(Remembered)
    model = FakeListChatModel(responses=["I will keep it to myself"])
    graph.add_node("agent", AgentNode(model, use_graph_chat_history=True))
    graph.add_edge(START, "agent")
    graph.add_edge("agent", END)
    return graph


def _rested(http: httpx.Client, begun: str, answer: httpx.Response) -> Any:
    """What it comes to."""
    seen = answer.raise_for_status().json()

    def is_at_rest() -> bool:
        nonlocal seen
        if seen["status"] == "running":
            seen = http.get(f"{begun}/status/{seen['thread_id']}").raise_for_status().json()
        return bool(seen["status"] != "running")

    until(is_at_rest)
    return seen


def moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


@asynccontextmanager
async def opened(where: str, folder: Path, **environ: str) -> AsyncGenerator[Spec]:
    url = (
        "memory://" if where == "memory" else where if where.startswith("postgres") else f"sqlite:///{where}"
    )
    given = {"CLEW_DATABASE_URL": url, "CLEANUP_API_KEY": KEY, "CRON_SECRET": SECRET, **environ}
    async with (
        open_app(load_settings(given, cwd=folder)) as app,
        client_of(app.http) as http,
    ):
        yield Spec(app, http)


@pytest.fixture(params=APP_DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.fixture
async def spec(where: str, tmp_path: Path) -> AsyncGenerator[Spec]:
    async with opened(where, tmp_path) as spec:
        yield spec


class TestThreadMetadata:
    @pytest.mark.accept("003-1", "003-3", "003-4", "003-5")
    async def test_from_the_start_to_the_end(self, spec: Spec) -> None:
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        thread_id = await spec.start()
        assert str(UUID(thread_id)) == thread_id
        row = await spec.metadata(thread_id)
        assert row is not None
        assert before <= moment(row["created_at"]) <= datetime.now(UTC)
        assert moment(row["last_accessed_at"]) == moment(row["created_at"])
        assert moment(row["expires_at"]) == moment(row["created_at"]) + timedelta(days=30)
        assert (row["status"], row["workflow_step"]) == ("active", "qa")
        assert json.loads(row["metadata"]) == {}

        calls = [
            ("GET", f"/api/optimize/status/{thread_id}", None),
            ("POST", f"/api/optimize/{thread_id}/answer", {"text": "1"}),
            ("GET", f"/api/threads/{thread_id}", None),
            ("GET", f"/api/threads/{thread_id}/events", None),
            ("GET", f"/api/threads/{thread_id}/export", None),
            ("GET", f"/api/workflows/{thread_id}", None),
            ("GET", f"/api/workflows/{thread_id}/status", None),
            ("GET", f"/api/workflows/{thread_id}/messages", None),
            ("GET", f"/api/workflows/{thread_id}/logs", None),
        ]
        for method, path, body in calls:
            await spec.rest(thread_id)
            await spec.age(thread_id, 10)
            now = datetime.now(UTC) - timedelta(milliseconds=1)
            assert (await spec.http.request(method, path, json=body)).status_code == 200, path
            row = await spec.accessed(thread_id, now)
            assert moment(row["expires_at"]) - moment(row["last_accessed_at"]) == timedelta(days=30), path

        done = await spec.finish(thread_id)
        assert done["current_step"] == done["workflow_step"] == "completed"
        row = await spec.metadata(thread_id)
        assert row is not None
        assert (row["status"], row["workflow_step"]) == ("completed", "completed")

    @pytest.mark.accept("003-3")
    async def test_every_call_on_a_thread_is_a_look_also_one_that_is_refused(self, spec: Spec) -> None:
        """Every operation of the description whose path names a thread, whatever it answers."""
        ended, waiting = await spec.start(), await spec.start()
        await spec.finish(ended)
        (call,) = (await spec.app.stores.threads.get(waiting)).pending
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        bodies = {
            "answer": {"text": "1"},
            "resolve": {"answer": "1"},
            "deadline": {"deadline": tomorrow},
            "reject": {"feedback": "no"},
        }
        described = (await spec.http.get("/openapi.json")).json()["paths"]
        asked = [
            (method, path)
            for path, methods in described.items()
            for method in methods
            if "{thread_id}" in path or "{workflow_id}" in path
            # Some end what could be looked at, one begins with nothing, one has no end.
            if (method, path.rpartition("/")[2])
            not in (("delete", "{thread_id}"), ("delete", "{workflow_id}"))
            if not path.endswith("/undelete") and path != "/api/workflows/{workflow_id}/events"
            if not path.startswith(
                ("/threads/", "/api/queue/")
            )  # LangGraph's, below; an operator's, of any tenant
        ]
        asked.append(("post", "/api/workflows/start?id={workflow_id}"))
        assert len(asked) > 25
        for thread_id in (ended, waiting):
            # What ends the wait comes last.
            for method, path in sorted(
                asked, key=lambda one: one[1].endswith(("/answer", "/resolve", "/stop"))
            ):
                await spec.rest(thread_id)
                await spec.age(thread_id, 10)
                now = datetime.now(UTC) - timedelta(milliseconds=1)
                where = path.format_map(defaultdict(lambda: "x", _named(thread_id, call)))
                body = bodies.get(path.rpartition("/")[2], {"prompt": "on"} if "start" in path else None)
                answer = await spec.http.request(method, where, json=body)
                assert answer.status_code in (200, 400, 404, 409), (method, path, answer.text)
                await spec.app.access.flush()
                row = await spec.metadata(thread_id)
                assert row is not None
                assert moment(row["last_accessed_at"]) >= now, (method, path, answer.status_code)

    @pytest.mark.accept("003-3")
    async def test_polling_is_written_down_once_a_second(self, spec: Spec) -> None:
        thread_id = await spec.start()
        for statement in _counting_accesses(is_postgres=_is_postgres(spec)):
            await query(spec.db, statement)
        for age, written in ((1.1 / 86_400, 1), (61 / 86_400, 1), (10, 1)):
            await query(spec.db, "DELETE FROM accesses")
            await spec.age(thread_id, age)
            await query(spec.db, "DELETE FROM accesses")
            await asyncio.gather(*(spec.status(thread_id) for _ in range(20)))
            await spec.app.access.flush()
            assert (await query(spec.db, "SELECT count(*) FROM accesses"))[0][0] == written, age

    @pytest.mark.accept("003-3")
    async def test_what_is_shown_is_at_most_two_seconds_older_than_the_last_call(self, spec: Spec) -> None:
        """A client that polls every half second, as the page does: both the answer and the table follow."""
        thread_id = await spec.start()
        calls: list[datetime] = []
        for n in range(8):
            began = datetime.now(UTC)
            calls.append(began)
            path = (f"/api/optimize/status/{thread_id}", f"/api/threads/{thread_id}")[n % 2]
            body = (await spec.http.get(path)).json()
            shown = body["thread_metadata"]["last_accessed_at"] if n % 2 == 0 else body["lastAccessedAt"]
            assert began - moment(shown) <= timedelta(seconds=1), n
            row = await spec.metadata(thread_id)
            assert row is not None
            # A machine that stood still between two calls wrote nothing meanwhile.
            due = [one for one in calls if datetime.now(UTC) - one > timedelta(seconds=2)][:-1]
            if due:
                assert moment(row["last_accessed_at"]) >= due[-1] - timedelta(seconds=1), n
            left = began + timedelta(seconds=0.5) - datetime.now(UTC)
            await asyncio.sleep(max(0.0, left.total_seconds()))
        # After a longer pause the answer shows the call itself, and the table does soon.
        await spec.age(thread_id, 5 / 86_400)
        called = datetime.now(UTC) - timedelta(milliseconds=1)
        seen = (await spec.status(thread_id))["thread_metadata"]
        for one in (seen, await spec.accessed(thread_id, called)):
            assert moment(one["last_accessed_at"]) >= called
            assert moment(one["expires_at"]) - moment(one["last_accessed_at"]) == timedelta(days=30)

    @pytest.mark.accept("003-31")
    async def test_what_a_client_sets_as_metadata_is_selected_by_its_keys(self, spec: Spec) -> None:
        for customer in ("acme", "rival"):
            body = {"metadata": {"customer": customer, "order": {"number": 7}}}
            assert (await spec.http.post("/threads", json=body)).status_code == 200
        found = await query(
            spec.db,
            "SELECT metadata->>'customer', metadata->'order'->>'number' FROM thread_metadata"
            " WHERE metadata->>'customer' = 'acme'",
        )
        assert [(one, str(other)) for one, other in found] == [("acme", "7")]

    @pytest.mark.accept("003-3")
    def test_an_access_is_stored_within_two_seconds(self) -> None:
        assert GRAIN + timedelta(seconds=COLLECT_SECONDS) < timedelta(seconds=2)

    @pytest.mark.accept("003-3")
    async def test_a_thread_that_was_looked_at_a_moment_ago_is_not_cleaned_up(self, spec: Spec) -> None:
        thread_id = await spec.start()
        await spec.age(thread_id, 31)
        await spec.status(thread_id)
        assert (await spec.cleanup())["deleted"] == 0
        assert (await spec.http.post("/api/threads/cleanup")).json()["deleted"] == 0

    @pytest.mark.accept("003-3")
    async def test_every_call_of_langgraphs_own_clients_is_a_look_too(self, spec: Spec) -> None:
        """Whether it is answered or refused."""
        thread_id = await spec.start()
        run = {"assistant_id": "interview", "multitask_strategy": "reject"}
        nowhere = {**run, "input": {}, "checkpoint_id": str(UUID(int=2))}
        bodies: dict[str, Any] = {
            "runs": {**run, "command": {"resume": "1"}},
            "wait": nowhere,
            "stream": nowhere,
            "crons": {**run, "input": {}, "schedule": "0 0 1 * *"},
            "commands": {"id": 1, "method": "agent.getTree", "params": {}},
            "checkpoint": {"checkpoint": {"checkpoint_id": str(UUID(int=2)), "checkpoint_ns": ""}},
        }
        described = (await spec.http.get("/openapi.json")).json()["paths"]
        asked = [
            (method, path)
            for path, methods in described.items()
            for method in methods
            if path.startswith("/threads/{thread_id}")
            and (method, path) != ("delete", "/threads/{thread_id}")
            and not path.startswith("/threads/{thread_id}/stream")  # without an end
        ]
        assert len(asked) > 12
        for method, path in asked:
            await spec.rest(thread_id)
            await spec.age(thread_id, 10)
            now = datetime.now(UTC) - timedelta(milliseconds=1)
            where = path.format_map(defaultdict(lambda: str(UUID(int=1)), thread_id=thread_id))
            body = None if method in ("get", "delete") else bodies.get(path.rpartition("/")[2], {})
            async with asyncio.timeout(SECONDS):
                answer = await spec.http.request(method, where, json=body)
            assert answer.status_code in (200, 204, 404, 409, 422), (method, path, answer.text)
            await spec.app.access.flush()
            row = await spec.metadata(thread_id)
            assert row is not None
            assert moment(row["last_accessed_at"]) >= now, (method, path, answer.status_code)

    @pytest.mark.accept("003-2")
    async def test_the_time_to_live_can_be_set_for_all_and_for_one(self, where: str, tmp_path: Path) -> None:
        async with opened(where, tmp_path, THREAD_TTL_DAYS="3") as spec:
            for body, days in (({}, 3), ({"ttl_days": 90}, 90), ({"ttl_days": None}, None)):
                seen = (await spec.status(await spec.start(**body)))["thread_metadata"]
                if days is None:
                    assert seen["expires_at"] is None
                else:
                    lives = moment(seen["expires_at"]) - moment(seen["created_at"])
                    assert lives == timedelta(days=days)
            kept = await spec.start(ttl_days=None)
            await spec.age(kept, 1000)
            assert (await spec.cleanup("?days_old=1"))["deleted"] == 0

    async def test_answers_are_used(self, spec: Spec) -> None:
        thread_id = await spec.start(goal="Somebody who knows Kubernetes")
        seen = await spec.status(thread_id)
        said: dict[str, str] = {}
        while seen["status"] == "waiting_input":
            question = seen["pending_question"]
            said[question] = f"answer number {len(said)}"
            seen = await spec.answer(thread_id, said[question])
        assert len(said) == 4
        assert [(one["question"], one["answer"]) for one in seen["qa_history"]] == list(said.items())
        assert all(text in seen["result"].lower() for text in said.values())
        assert "TBD" not in seen["result"]


class TestRecovery:
    @pytest.mark.accept("003-2")
    async def test_a_copy_is_kept_as_long_as_its_original(self, spec: Spec) -> None:
        for days in (None, 7):
            thread_id = await spec.start(ttl_days=days)
            copy = (await spec.http.post(f"/threads/{thread_id}/copy")).json()["thread_id"]
            row = await spec.metadata(copy)
            assert row is not None
            lasts = row["expires_at"] and moment(row["expires_at"]) - moment(row["last_accessed_at"])
            assert lasts == (None if days is None else timedelta(days=days))

    @pytest.mark.accept("003-6", "003-30")
    @pytest.mark.parametrize("where", SHARED, indirect=True)
    async def test_a_restart_forgets_nothing(self, where: str, tmp_path: Path) -> None:
        async with opened(where, tmp_path) as spec:
            thread_id, old = await spec.start(), await spec.start()
            before = await spec.answer(thread_id, "first answer")
            await spec.age(old, 31)
            assert (await spec.cleanup("?days_old=30"))["thread_ids"] == [old]
        async with opened(where, tmp_path) as spec:
            after = await spec.status(thread_id)
            assert after["pending_question"] == before["pending_question"] is not None
            assert after["qa_history"] == before["qa_history"]
            assert "first answer" in (await spec.finish(thread_id))["result"].lower()
            assert (await spec.http.get(f"/api/optimize/status/{old}")).status_code == 404

    @pytest.mark.accept("003-6")
    @pytest.mark.parametrize("where", SHARED, indirect=True)
    def test_a_server_killed_with_a_question_open_asks_it_again(self, where: str, tmp_path: Path) -> None:
        url = where if where.startswith("postgres") else f"sqlite:///{where}"
        with serving(tmp_path, CLEW_DATABASE_URL=url) as server, httpx.Client(timeout=30) as http:
            begun = f"{server.address}/api/optimize"
            thread_id = _rested(http, begun, http.post(f"{begun}/start", json={"text": DOCUMENT}))[
                "thread_id"
            ]
            answer = http.post(f"{begun}/{thread_id}/answer", json={"text": "answer 1"})
            before = _rested(http, begun, answer)
            assert before["status"] == "waiting_input"
            server.signal(signal.SIGKILL)
            server.wait()
        with serving(tmp_path, CLEW_DATABASE_URL=url) as server, httpx.Client(timeout=30) as http:
            begun = f"{server.address}/api/optimize"
            seen = http.get(f"{begun}/status/{thread_id}").json()
            for name in ("status", "pending_question", "interrupt_payload", "qa_history", "progress"):
                assert seen[name] == before[name], name
            for number in (2, 3):
                answer = http.post(f"{begun}/{thread_id}/answer", json={"text": f"answer {number}"})
                seen = _rested(http, begun, answer)
        assert (seen["status"], seen["workflow_step"]) == ("completed", "completed")
        assert all(f"answer {number}" in seen["result"].lower() for number in (1, 2, 3))


class TestDelete:
    @pytest.mark.accept("003-7", "003-8", "003-9")
    async def test_everything_goes_once_and_for_good(self, spec: Spec) -> None:
        thread_id, other = await spec.start(), await spec.start()
        await spec.finish(thread_id)
        kept = await spec.rows_of(other)
        assert {"threads", "events", "checkpoints", "checkpoint_blobs", "documents"} <= set(
            await spec.rows_of(thread_id)
        )
        answer = await spec.http.delete(f"/api/optimize/{thread_id}")
        assert (answer.status_code, answer.json()["success"]) == (200, True)
        assert await spec.rows_of(thread_id) == {}
        assert await spec.metadata(thread_id) is None
        assert await spec.rows_of(other) == kept
        for method, path in (
            ("DELETE", f"/api/optimize/{thread_id}"),
            ("DELETE", "/api/optimize/never-was"),
            ("GET", f"/api/optimize/status/{thread_id}"),
            ("GET", f"/api/threads/{thread_id}/export"),
        ):
            refused = await spec.http.request(method, path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "NOT_FOUND")

    @pytest.mark.accept("003-7")
    async def test_its_memory_and_its_bytes_go_too(self, where: str, tmp_path: Path) -> None:
        """What an agent remembers by nothing but the thread's id is the thread's; what it remembers by a key is not."""
        (tmp_path / "clew.yaml").write_text(f"graphs:\n  remembering: {__name__}:remembering\n")
        async with opened(where, tmp_path) as spec:
            interview = await spec.start()
            await spec.finish(interview)
            threads = {}
            said = {"messages": [{"role": "user", "content": "a secret"}]}
            for name, given in (("own", {}), ("shared", {"inputs": {"history_key": "telegram:1"}})):
                answer = await spec.http.post(
                    "/api/workflows/start?wait=20", json={"graph": "remembering", "input": said | given}
                )
                assert answer.json()["status"] == "completed", answer.text
                threads[name] = answer.json()["id"]
            paths = [row[0] for row in await query(spec.db, "SELECT path FROM histories ORDER BY id")]
            assert [path.split(".")[-2] for path in paths] == [threads["own"], "telegram:1"]
            for thread_id in (interview, *threads.values()):
                assert (await spec.http.delete(f"/api/optimize/{thread_id}")).status_code == 200
            left = await query(spec.db, "SELECT path FROM histories")
            assert [row[0] for row in left] == [paths[1]]
            assert len(await query(spec.db, "SELECT role FROM history_messages")) == 2
            assert await query(spec.db, "SELECT 1 FROM blobs") == []
            assert await query(spec.db, "SELECT 1 FROM files") == []

    @pytest.mark.accept("003-8")
    @pytest.mark.parametrize("where", SHARED, indirect=True)
    async def test_one_that_only_the_database_knows(self, where: str, tmp_path: Path) -> None:
        async with opened(where, tmp_path) as spec:
            thread_id = await spec.start()
        async with opened(where, tmp_path) as spec:
            assert (await spec.http.delete(f"/api/optimize/{thread_id}")).status_code == 200
            assert await spec.rows_of(thread_id) == {}

    @pytest.mark.accept("003-10")
    async def test_two_at_once(self, spec: Spec) -> None:
        for _ in range(5):
            thread_id = await spec.start()
            answers = await asyncio.gather(
                *(spec.http.delete(f"/api/optimize/{thread_id}") for _ in range(2))
            )
            assert sorted(answer.status_code for answer in answers) == [200, 404]
            assert await spec.rows_of(thread_id) == {}

    @pytest.mark.accept("003-12")
    async def test_a_missing_table_does_not_keep_what_is_in_the_others(self, spec: Spec) -> None:
        thread_id = await spec.start()
        await query(spec.db, "ALTER TABLE checkpoint_writes RENAME TO mislaid")
        assert (await spec.http.delete(f"/api/optimize/{thread_id}")).status_code == 200
        await query(spec.db, "ALTER TABLE mislaid RENAME TO checkpoint_writes")
        assert set(await spec.rows_of(thread_id)) <= {"checkpoint_writes"}
        assert (await spec.http.get(f"/api/optimize/status/{thread_id}")).status_code == 404
        assert await spec.app.stores.threads.purge() == [thread_id], "now it can be finished"
        assert await spec.rows_of(thread_id) == {}

    @pytest.mark.accept("003-33")
    async def test_an_answer_nobody_waits_for(self, spec: Spec) -> None:
        thread_id = await spec.start()
        await spec.finish(thread_id)
        answer = await spec.http.post(f"/api/optimize/{thread_id}/answer", json={"text": "late"})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "Workflow is not waiting for input"
        blocked = await spec.start()
        del spec.app.execution.registry.graphs["interview"]
        assert (await spec.status(blocked))["status"] == "waiting_input"
        answer = await spec.http.post(f"/api/optimize/{blocked}/answer", json={"text": "yes"})
        assert answer.status_code == 409


class TestCleanup:
    @pytest.mark.accept("003-16", "003-17", "003-18", "003-19", "003-21", "003-23")
    async def test_what_is_old_goes_and_the_rest_stays(
        self, spec: Spec, caplog: pytest.LogCaptureFixture
    ) -> None:
        empty = await spec.cleanup()
        assert (empty["deleted"], empty["preserved"], empty["errors"], empty["more"]) == (0, 0, 0, False)
        old = [await spec.start() for _ in range(5)]
        young = [await spec.start() for _ in range(3)]
        for thread_id in old[:2]:
            await spec.finish(thread_id)
        # By somebody else, or it would be taken up here and come to its rest.
        await query(
            spec.db,
            "UPDATE threads SET status = 'running', lease_owner = 'x', lease_until = clew_now() + 3600000000"
            " WHERE id = $1",
            young[0],
        )
        for thread_id in old:
            await spec.age(thread_id, 31)
        await spec.age(young[0], 31)
        await spec.age(young[1], 29)
        heads = spec.app.execution.graph_driver._saver._heads  # type: ignore[attr-defined]
        assert all(heads.get(thread_id, "", None) is not None for thread_id in (*old, *young))

        seen = await spec.cleanup("?days_old=30&dry_run=true")
        assert (seen["status"], seen["due"], seen["deleted"], seen["preserved"]) == ("dry_run", 5, 0, 3)
        with caplog.at_level(logging.INFO, "clew.retention.cleanup"):
            seen = await spec.cleanup("?days_old=30")
        assert (seen["status"], seen["deleted"], seen["preserved"], seen["errors"]) == ("completed", 5, 3, 0)
        assert sorted(seen["thread_ids"]) == sorted(old)
        logged = [record.__dict__["thread_id"] for record in caplog.records if record.msg == "thread deleted"]
        assert sorted(logged) == sorted(old)
        for thread_id in old:
            assert await spec.rows_of(thread_id) == {}
            assert heads.get(thread_id, "", None) is None, "nothing of it is left in memory"
            assert (await spec.http.get(f"/api/optimize/status/{thread_id}")).status_code == 404
        assert all(heads.get(thread_id, "", None) is not None for thread_id in young)
        await query(
            spec.db,
            "UPDATE threads SET status = 'blocked', lease_owner = NULL, lease_until = NULL WHERE id = $1",
            young[0],
        )
        for thread_id in young:
            await spec.status(thread_id)

        await spec.age(young[0], 8)
        await spec.age(young[1], 6)
        assert (await spec.cleanup("?days_old=7"))["thread_ids"] == [young[0]]
        await spec.age(young[1], 31)
        assert (await spec.cleanup())["thread_ids"] == [young[1]], "without an age: what has expired"
        assert (await spec.cleanup())["preserved"] == 1

    @pytest.mark.accept("003-19")
    async def test_what_is_to_run_later_stays_and_so_does_what_was_ordered(self, spec: Spec) -> None:
        made = [(await spec.http.post("/threads", json={})).json()["thread_id"] for _ in range(3)]
        monthly, once, done = made
        order = {"assistant_id": "interview", "input": {}}
        crons = f"/threads/{monthly}/runs/crons"
        cron = await spec.http.post(crons, json={**order, "schedule": "0 0 1 * *"})
        run = await spec.http.post(f"/threads/{once}/runs", json={**order, "after_seconds": 40 * 86_400})
        assert (cron.status_code, run.status_code) == (200, 200)
        for thread_id in made:
            await spec.age(thread_id, 31)
        assert (await spec.cleanup())["thread_ids"] == [done]
        assert (await spec.cleanup("?days_old=30"))["thread_ids"] == []
        cron_id = cron.json()["cron_id"]
        assert [one["cron_id"] for one in (await spec.http.post("/runs/crons/search", json={})).json()] == [
            cron_id
        ]
        await spec.http.patch(f"/runs/crons/{cron_id}", json={"enabled": False})
        assert (await spec.cleanup())["thread_ids"] == [monthly], "nobody wants it any more"

    @pytest.mark.accept("003-16")
    @pytest.mark.parametrize("where", ["memory"], indirect=True)
    @pytest.mark.parametrize(
        "days", ["0", "366", "-1", "x", "1.5", "", "9" * 19, "9" * 30, "9" * 5000, "\u0661", "1e3"]
    )
    async def test_an_age_out_of_bounds(self, spec: Spec, days: str) -> None:
        answer = await spec.http.post(
            "/api/optimize/cleanup", params={"days_old": days}, headers={"X-API-Key": KEY}
        )
        assert answer.status_code == 422
        assert answer.json()["error"]["field"] == "days_old"

    @pytest.mark.accept("003-28", "003-29")
    @pytest.mark.parametrize("where", ["memory"], indirect=True)
    async def test_without_a_database(self, spec: Spec) -> None:
        used, unused = await spec.start(), await spec.start()
        for thread_id in (used, unused):
            await query(
                spec.db, "UPDATE threads SET created_at = created_at - $2 WHERE id = $1", thread_id, 60 * DAY
            )
        await spec.age(unused, 31)
        seen = await spec.cleanup("?days_old=30")
        assert seen["message"] == "No database configured, memory-only cleanup"
        assert seen["thread_ids"] == [unused]

    @pytest.mark.accept("003-20")
    async def test_what_waits_with_a_deadline_expires_first(self, spec: Spec) -> None:
        patient, bound = await spec.start(), await spec.start()
        (call,) = (await spec.app.stores.threads.get(bound)).pending
        answer = await spec.http.put(
            f"/api/workflows/{bound}/tool-calls/{call}/deadline",
            json={"deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat()},
        )
        assert answer.status_code == 200, answer.text
        for thread_id in (patient, bound):
            await spec.age(thread_id, 31)
        assert (await spec.cleanup())["thread_ids"] == [patient]
        await spec.app.stores.calls.reschedule(bound, call, datetime.now(UTC))
        async with asyncio.timeout(SECONDS):
            while call in (await spec.app.stores.threads.get(bound)).pending:
                await asyncio.sleep(0.05)
        await spec.finish(bound)
        await spec.age(bound, 31)
        assert (await spec.cleanup())["thread_ids"] == [bound]

    @pytest.mark.accept("003-20")
    async def test_what_waits_without_a_deadline_expires_before_its_thread_goes(self, spec: Spec) -> None:
        kept, binned, gone = [await spec.start() for _ in range(3)]
        asked = dict((await spec.app.stores.threads.get(binned)).pending)
        await spec.age(binned, 31)
        assert (await spec.cleanup("?soft=true"))["thread_ids"] == [binned]
        await spec.http.post(f"/api/threads/{binned}/undelete")
        thread = (await spec.http.get(f"/api/threads/{binned}")).json()
        assert (thread["status"], thread["pending"]) == ("failed", {})
        assert thread["failureReason"] == "expired: no answer came before the thread's time to live was over"
        events = (await spec.http.get(f"/api/threads/{binned}/events")).json()["events"]
        *_, resolution, finished = events
        assert (resolution["type"], resolution["content"]["outcome"]) == ("resolution", "expired")
        assert (finished["type"], finished["content"]["status"]) == ("round_finished", "failed")
        calls = f"/api/workflows/{binned}/tool-calls"
        found = (await spec.http.get(f"{calls}?status=expired")).json()["toolCalls"]
        assert [call["id"] for call in found] == [*asked]
        (call,) = asked
        late = await spec.http.post(f"{calls}/{call}/resolve", json={"answer": "42"})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "INVALID_STATE")
        # For good: its calls expire, and it goes, in one cleanup. A damaged one goes too.
        await query(spec.db, "DELETE FROM tool_calls WHERE thread_id = $1", gone)
        for thread_id in (gone, binned):
            await spec.age(thread_id, 31)
        seen = await spec.cleanup("?days_old=30")
        assert (set(seen["thread_ids"]), seen["errors"], seen["more"]) == ({gone, binned}, 0, False)
        assert (await spec.rows_of(gone), await spec.rows_of(binned)) == ({}, {})
        assert (await spec.app.stores.threads.get(kept)).pending

    @pytest.mark.accept("003-20")
    async def test_an_answer_that_comes_during_a_cleanup_keeps_the_thread(self, spec: Spec) -> None:
        threads = [await spec.start() for _ in range(20)]
        for thread_id in threads:
            await spec.age(thread_id, 31)
        answers, seen = await asyncio.gather(
            asyncio.gather(
                *(spec.http.post(f"/api/optimize/{one}/answer", json={"text": "42"}) for one in threads[::2])
            ),
            spec.cleanup(),
        )
        gone = set(seen["thread_ids"])
        assert gone >= set(threads[1::2])
        for thread_id, answer in zip(threads[::2], answers, strict=True):
            assert answer.status_code in ((404, 409) if thread_id in gone else (200,)), answer.text
            if thread_id not in gone:
                await spec.finish(thread_id)

    @pytest.mark.accept("003-22", "003-24", "003-32")
    async def test_damage_of_one_is_not_the_others(
        self, spec: Spec, caplog: pytest.LogCaptureFixture
    ) -> None:
        threads = [await spec.start() for _ in range(10)]
        for thread_id in threads:
            await spec.age(thread_id, 31)
        partial, corrupt, stubborn = threads[:3]
        await query(spec.db, "DELETE FROM checkpoint_writes WHERE thread_id = $1", partial)
        await query(spec.db, "UPDATE events SET content = 'not json' WHERE thread_id = $1", corrupt)
        await query(spec.db, "UPDATE threads SET settings = 'nonsense' WHERE id = $1", corrupt)
        for statement in _refuse_deletion(stubborn, is_postgres=_is_postgres(spec)):
            await query(spec.db, statement)
        # And the checkpoints of a thread that never was.
        await query(spec.db, ORPHAN)
        if not _is_postgres(spec):  # which takes no such text
            await query(
                spec.db, "UPDATE checkpoints SET body = CAST(X'7b22fffe' AS TEXT) WHERE thread_id = 'orphan'"
            )
        would = await spec.cleanup("?days_old=30&dry_run=true")
        assert set(would["thread_ids"]) == {*threads, "orphan"}
        assert would["due"] == len(would["thread_ids"])
        with caplog.at_level(logging.ERROR, "clew.retention.cleanup"):
            seen = await spec.cleanup("?days_old=30")
        assert (seen["deleted"], seen["errors"], seen["more"]) == (10, 1, False)
        assert set(seen["thread_ids"]) == {*threads, "orphan"} - {stubborn}
        said = [record for record in caplog.records if record.name == "clew.retention.cleanup"]
        assert [record.__dict__["thread_id"] for record in said] == [stubborn]
        assert "threads" in await spec.rows_of(stubborn), "whole, not half"

    @pytest.mark.accept("003-35")
    async def test_a_cleanup_of_one_user_and_of_one_tenant(self, spec: Spec) -> None:
        owners = (Owner(user_id="ann"), Owner(user_id="bob"), Owner(tenant="acme", user_id="ann"), Owner())
        threads: dict[Owner, str] = {}
        for owner in owners:
            opening = Opening(owner=owner, graph="interview", ttl=timedelta(days=1))
            thread = await spec.app.execution.commands.start(opening, Request(message=DOCUMENT), held=True)
            threads[owner] = thread.id
            await spec.age(thread.id, 31)
        assert (await spec.cleanup("?user_id=ann"))["thread_ids"] == [threads[owners[0]]]
        assert (await spec.cleanup("?tenant=acme&user_id=bob"))["thread_ids"] == []
        assert (await spec.cleanup("?tenant=acme"))["thread_ids"] == [threads[owners[2]]]
        key = await new_key(spec.app.stores.keys, owner=Owner(tenant="default", user_id="bob"))
        async with client_of(spec.app.http, key) as bob:
            usage = (await bob.get("/api/threads/usage")).json()
            assert (usage["threads"], usage["due"], usage["byGraph"]) == (1, 1, {"interview": 1})
            cleaned = (await bob.post("/api/threads/cleanup")).json()
            assert cleaned["threadIds"] == [threads[owners[1]]]
        assert (await spec.cleanup())["thread_ids"] == [threads[owners[3]]]

    @pytest.mark.fault("B11")
    @pytest.mark.accept("003-26", "003-27")
    @pytest.mark.parametrize("count", [600, pytest.param(1000, marks=pytest.mark.long)])
    async def test_many_within_the_budget_and_the_rest_by_itself(
        self, where: str, tmp_path: Path, count: int
    ) -> None:
        async with opened(where, tmp_path, CLEW_CLEANUP_BUDGET_SECONDS="0") as spec:
            await _make(spec.db, count)
            first = await spec.cleanup("?days_old=30")
            assert (first["status"], first["more"]) == ("more", True)
            # One portion, however small the budget. Whoever goes on by itself may have begun by now.
            assert 0 < first["deleted"] < count
            async with asyncio.timeout(SECONDS):
                while (await spec.cleanup("?days_old=30&dry_run=true"))["due"]:
                    await asyncio.sleep(0.05)
                while (last := (await spec.http.get("/api/threads/usage")).json()["lastCleanup"])[
                    "finishedAt"
                ] is None:
                    await asyncio.sleep(0.05)
            assert (last["id"], last["deleted"], last["errors"]) == (first["continuation"], count, 0)
            left = await query(spec.db, "SELECT count(*) FROM events WHERE thread_id LIKE 'old-%'")
            assert left[0][0] == 0

    @pytest.mark.accept("003-27", "003-32")
    async def test_the_look_for_orphans_keeps_to_the_budget_and_is_finished_later(self, spec: Spec) -> None:
        await query(spec.db, ORPHAN)
        cleanup = replace(spec.app.execution.cleanup, budget_seconds=0)
        first = await cleanup.run(selection(now=datetime.now(UTC), days_old=30))
        assert (first.status, first.thread_ids) == ("more", ())
        async with asyncio.timeout(SECONDS):
            while await cleanup.rows.are_due():
                await cleanup.continue_unfinished()
                await asyncio.sleep(0.01)
        assert await spec.rows_of("orphan") == {}

    @pytest.mark.accept("003-22", "003-24")
    @pytest.mark.parametrize("where", ["postgres"], indirect=True)
    async def test_one_that_cannot_be_deleted_in_time_does_not_keep_the_others(
        self, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        short = {"CLEW_DATABASE_ACQUIRE_SECONDS": "1", "CLEW_DATABASE_STATEMENT_SECONDS": "1"}
        async with opened(where, tmp_path, CLEW_RUNNER_LEASE_SECONDS="4", **short) as spec:
            await _make(spec.db, 20)
            await _slow_down(spec.db, "events", seconds=600, only="WHEN (old.thread_id = 'old-7')")
            with caplog.at_level(logging.INFO, "clew.retention.cleanup"):
                await spec.cleanup("?days_old=30", status=503)
                async with asyncio.timeout(2 * SECONDS):
                    while (await spec.app.execution.cleanup.rows.last()).finished_at is None:  # type: ignore[union-attr]
                        await asyncio.sleep(0.05)
            last = await spec.app.execution.cleanup.rows.last()
            assert last is not None
            assert (last.deleted, last.failed) == (19, 1)
            left = await query(spec.db, "SELECT id FROM threads")
            assert [row[0] for row in left] == ["old-7"], "whole, and due again"
            deleted = [one.__dict__["thread_id"] for one in caplog.records if one.msg == "thread deleted"]
            assert sorted(deleted) == sorted(f"old-{n}" for n in range(1, 21) if n != 7)

    @pytest.mark.accept("003-21", "003-23", "003-26")
    @pytest.mark.parametrize("where", ["postgres"], indirect=True)
    async def test_what_is_deleted_when_nobody_waits_any_more_is_logged_and_let_go_of(
        self, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with opened(where, tmp_path, CLEW_CLEANUP_BUDGET_SECONDS="0") as spec:
            thread_id = await spec.start()
            heads = spec.app.execution.graph_driver._saver._heads  # type: ignore[attr-defined]
            assert heads.get(thread_id, "", None) is not None
            await spec.age(thread_id, 31)
            await _slow_down(spec.db, "threads", seconds=3)
            with caplog.at_level(logging.INFO, "clew.retention.cleanup"):
                await spec.cleanup(status=503)
                async with asyncio.timeout(SECONDS):
                    while "thread deleted" not in [record.msg for record in caplog.records]:
                        await asyncio.sleep(0.05)
            assert await spec.rows_of(thread_id) == {}
            assert heads.get(thread_id, "", None) is None

    @pytest.mark.accept("003-26")
    @pytest.mark.parametrize("where", ["postgres"], indirect=True)
    async def test_who_asks_with_a_signature_is_answered_in_time_too(
        self, where: str, tmp_path: Path
    ) -> None:
        async with opened(where, tmp_path, CLEW_CLEANUP_BUDGET_SECONDS="0") as spec:
            holder = await asyncpg.connect(where)
            try:
                async with holder.transaction():
                    await holder.execute("LOCK TABLE used_signatures")
                    at, target = int(datetime.now(UTC).timestamp()), "/api/optimize/cleanup"
                    signature = sign(SECRET, at=at, method="POST", target=target)
                    answer = await spec.http.post(target, headers={SIGNATURE: signature})
            finally:
                await holder.close()
            assert answer.status_code == 503
            assert "the database is slow" in answer.text, "not only when it was asked for the last time"

    @pytest.mark.fault("B11")
    async def test_a_very_long_log_keeps_to_the_budget(self, spec: Spec) -> None:
        await _make(spec.db, 1)
        await query(
            spec.db,
            "INSERT INTO events (thread_id, seq, id, round, type, version, content, at)"
            " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
            " SELECT 'old-1', 100 + i, 'x', 1, 'stage_changed', 1, '{}', 0 FROM n",
            2 * AT_ONCE,
        )
        await query(spec.db, "UPDATE threads SET last_seq = $1", 2 * AT_ONCE)
        purged: list[str | None] = []
        cleanup = spec.app.execution.cleanup

        class Watched:
            async def purge(self, *, only: str | None = None) -> Sequence[str]:
                purged.append(only)
                return await cleanup.store.purge(only=only)

        hurried = replace(cleanup, budget_seconds=0, store=Watched())  # type: ignore[arg-type]
        done = await hurried.run(selection(now=datetime.now(UTC), days_old=30))
        assert (done.thread_ids, purged) == (("old-1",), []), "its rows are a chore's"
        assert (await spec.http.get("/api/optimize/status/old-1")).status_code == 404

    @pytest.mark.accept("003-27")
    async def test_a_second_one_meanwhile_is_told_so(self, spec: Spec) -> None:
        await query(
            spec.db,
            "INSERT INTO duties (name, owner, lease_until) VALUES ('cleanup', 'x', clew_now() + 3600000000)",
        )
        seen = await spec.cleanup()
        assert (seen["status"], seen["deleted"]) == ("already_running", 0)


@pytest.fixture(scope="class")
def own_postgres() -> Iterator[PostgresServer]:
    """One for all that stop it: they start it again."""
    with postgres_server() as server:
        yield server


async def until_keys_are_needed(spec: Spec) -> None:
    """The server looks for a first key every two seconds."""
    async with client_of(spec.app.http) as stranger, asyncio.timeout(30):
        while (await stranger.get("/api/threads")).status_code != 401:
            await asyncio.sleep(0.1)


class TestDatabaseDown:
    @pytest.mark.accept("003-11", "003-25")
    async def test_a_delete_is_a_500_and_a_cleanup_a_503_and_both_are_logged(
        self, own_postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        url = own_postgres.create_database("spec")
        async with opened(url, tmp_path) as spec:
            thread_id = await spec.start()
            await spec.age(thread_id, 31)
            heads = spec.app.execution.graph_driver._saver._heads  # type: ignore[attr-defined]
            assert heads.get(thread_id, "", None) is not None
            own_postgres.stop("immediate")
            with caplog.at_level(logging.ERROR):
                answer = await spec.http.delete(f"/api/optimize/{thread_id}")
                assert answer.status_code == 500
                assert heads.get(thread_id, "", None) is None, "nothing of it is left in memory"
                assert thread_id in answer.json()["error"]["message"]
                assert "try again" in answer.json()["error"]["message"]
                logged = [record.__dict__.get("thread_id") for record in caplog.records]
                assert thread_id in logged
                caplog.clear()
                await spec.cleanup(status=503)
                assert any(record.msg.startswith("no cleanup") for record in caplog.records)
            await asyncio.to_thread(own_postgres.start)
            assert (await spec.cleanup("?dry_run=true"))["due"] == 1
            assert (await spec.http.delete(f"/api/optimize/{thread_id}")).status_code == 200
            assert await spec.rows_of(thread_id) == {}

    @pytest.mark.accept("003-11")
    async def test_so_is_a_delete_with_a_key_that_nobody_has_seen_before(
        self, own_postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whose key it is cannot be told, but whoever asks is told the same."""
        async with opened(own_postgres.create_database("another"), tmp_path) as spec:
            thread_id = await spec.start()
            key = await new_key(spec.app.stores.keys, owner=Owner())
            await until_keys_are_needed(spec)
            own_postgres.stop("immediate")
            async with client_of(spec.app.http, key) as http:
                with caplog.at_level(logging.ERROR):
                    answer = await http.delete(f"/api/optimize/{thread_id}")
                assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL")
                assert thread_id in answer.json()["error"]["message"]
                assert "try again" in answer.json()["error"]["message"]
                assert thread_id in [record.__dict__.get("thread_id") for record in caplog.records]
                assert (await http.delete(f"/api/threads/{thread_id}")).status_code == 503
                async with client_of(spec.app.http, "no key at all") as stranger:
                    assert (await stranger.delete(f"/api/optimize/{thread_id}")).status_code == 401
                await asyncio.to_thread(own_postgres.start)
                assert (await http.delete(f"/api/optimize/{thread_id}")).status_code == 200
                assert await spec.rows_of(thread_id) == {}

    @pytest.mark.accept("003-11")
    @pytest.mark.timeout(300)
    async def test_a_delete_is_answered_within_ten_seconds_though_the_database_is_frozen(
        self, own_postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It accepts connections and answers none; a key is looked up first, and then the thread is deleted."""
        async with opened(own_postgres.create_database("frozen"), tmp_path) as spec:
            thread_id = await spec.start()
            heads = spec.app.execution.graph_driver._saver._heads  # type: ignore[attr-defined]
            key = await new_key(spec.app.stores.keys, owner=Owner())
            loop = asyncio.get_running_loop()
            async with client_of(spec.app.http, key) as http:
                http.timeout = None
                assert (await http.get(f"/api/optimize/status/{thread_id}")).status_code == 200
                own_postgres.freeze()
                try:
                    for path, status in (
                        ("/api/optimize", 500),
                        ("/api/threads", 503),
                        ("/api/workflows", 503),
                        ("/threads", 503),
                    ):
                        since = loop.time()
                        with caplog.at_level(logging.ERROR):
                            answer = await http.delete(f"{path}/{thread_id}")
                        assert loop.time() - since < 10
                        assert answer.status_code == status, answer.text
                        assert heads.get(thread_id, "", None) is None, "nothing of it is left in memory"
                finally:
                    own_postgres.thaw()
                assert thread_id in [record.__dict__.get("thread_id") for record in caplog.records]
                async with asyncio.timeout(30):
                    while (await http.delete(f"/api/optimize/{thread_id}")).status_code != 200:
                        await asyncio.sleep(0.1)
            assert await spec.rows_of(thread_id) == {}


class TestKeeping:
    @pytest.mark.accept("003-35", "003-36")
    async def test_a_soft_deletion_can_be_taken_back(self, spec: Spec) -> None:
        thread_id = await spec.start()
        before = await spec.status(thread_id)
        assert (await spec.http.delete(f"/api/optimize/{thread_id}?soft=true")).status_code == 200
        assert (await spec.http.get(f"/api/optimize/status/{thread_id}")).status_code == 404
        row = await spec.metadata(thread_id)
        assert row is not None
        assert row["status"] == "expired"
        listed = (await spec.http.get("/api/threads/deleted")).json()["threads"]
        assert [one["id"] for one in listed] == [thread_id]
        assert (await spec.http.post(f"/api/threads/{thread_id}/undelete")).status_code == 200
        after = await spec.status(thread_id)
        assert after["pending_question"] == before["pending_question"]
        await spec.finish(thread_id)

        assert (await spec.http.delete(f"/api/threads/{thread_id}?soft=true")).status_code == 200
        await query(spec.db, "UPDATE threads SET deleted_at = deleted_at - $1", 8 * DAY)
        assert (await spec.http.post(f"/api/threads/{thread_id}/undelete")).status_code == 404, "too late"
        await spec.app.execution.cleanup.empty_trash()
        assert await spec.rows_of(thread_id) == {}
        assert (await spec.http.post(f"/api/threads/{thread_id}/undelete")).status_code == 404

        sooner = await spec.start()
        assert (await spec.http.delete(f"/api/optimize/{sooner}?soft=true")).status_code == 200
        assert (await spec.http.delete(f"/api/optimize/{sooner}")).status_code == 200
        assert await spec.rows_of(sooner) == {}
        assert (await spec.http.delete(f"/api/optimize/{sooner}")).status_code == 404

    @pytest.mark.accept("003-9")
    async def test_its_id_is_remembered_for_ninety_days(self, spec: Spec) -> None:
        deleted, cleaned = await spec.start(), await spec.start()
        assert (await spec.http.delete(f"/api/optimize/{deleted}")).status_code == 200
        await spec.age(cleaned, 31)
        assert (await spec.cleanup())["deleted"] == 1
        cleanup = spec.app.execution.cleanup

        async def remembered() -> set[str]:
            return {row[0] for row in await query(spec.db, "SELECT thread_id FROM tombstones")}

        await query(spec.db, "UPDATE tombstones SET purged_at = purged_at - $1", 89 * DAY)
        await cleanup.forget_deleted()
        assert await remembered() == {deleted, cleaned}
        await query(spec.db, "UPDATE tombstones SET purged_at = purged_at - $1", 2 * DAY)
        # As after a restart with the clock two days ahead.
        await query(spec.db, "UPDATE duties SET last_at = last_at - $1 WHERE name = 'clock'", 2 * DAY)
        await cleanup.forget_deleted()
        assert await remembered() == {deleted, cleaned}
        await query(spec.db, "UPDATE duties SET jumped_at = NULL WHERE name = 'clock'")
        await cleanup.forget_deleted()
        assert await remembered() == set()
        for thread_id in (deleted, cleaned):
            assert (await spec.http.get(f"/api/optimize/status/{thread_id}")).status_code == 404

    @pytest.mark.accept("003-35")
    async def test_an_export_holds_all_of_it(self, spec: Spec) -> None:
        thread_id = await spec.start(name="../../etc/passwd")
        done = await spec.finish(thread_id)
        answer = await spec.http.get(f"/api/threads/{thread_id}/export")
        assert answer.headers["content-type"] == "application/zip"
        assert answer.headers["content-disposition"] == f'attachment; filename="thread-{thread_id}.zip"'
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.testzip() is None
            names = archive.namelist()
            log = [json.loads(line) for line in archive.read("log.jsonl").splitlines()]
            said = [json.loads(line) for line in archive.read("messages.jsonl").splitlines()]
            pages = archive.read("messages.md").decode()
            state = json.loads(archive.read("state.json"))
            (made,) = [name for name in names if name.startswith("documents/")]
            document = archive.read(made).decode()
        assert all(".." not in name for name in names)
        assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
        assert log[-1]["content"]["status"] == "completed"
        assert [one["content"] for one in said] == [DOCUMENT, done["result"]]
        assert document == state["improved"] == done["result"]
        assert all(one["question"] in pages for one in done["qa_history"])
        assert state["answers"] == [one["answer"] for one in done["qa_history"]]

    @pytest.mark.accept("003-34")
    async def test_only_the_newest_checkpoint_is_kept_where_that_is_wanted(
        self, where: str, tmp_path: Path
    ) -> None:
        async with opened(where, tmp_path, CLEW_CHECKPOINT_KEEP="latest") as spec:
            thread_id = await spec.start()
            assert (await spec.rows_of(thread_id))["checkpoints"] > 1
            await spec.finish(thread_id)
            async with asyncio.timeout(SECONDS):
                while (await spec.rows_of(thread_id))["checkpoints"] > 1:
                    await asyncio.sleep(0.02)
            answer = await spec.http.get(f"/api/workflows/{thread_id}/state")
            assert answer.json()["values"]["improved"] == (await spec.status(thread_id))["result"]

    @pytest.mark.accept("003-35")
    async def test_usage(self, spec: Spec) -> None:
        first, second = await spec.start(), await spec.start()
        await spec.finish(first)
        await spec.age(second, 31)
        usage = (await spec.http.get("/api/threads/usage")).json()
        assert (usage["threads"], usage["due"], usage["deleted"]) == (2, 1, 0)
        assert usage["byStatus"] == {"blocked": 1, "completed": 1}
        assert usage["byGraph"] == {"interview": 2}
        events = await query(spec.db, "SELECT count(*) FROM events")
        assert usage["events"] == events[0][0]
        assert usage["tables"]["events"] > 0
        assert usage["bytes"] == sum(usage["tables"].values())
        # One row that is damaged does not keep the others from being counted.
        for damage in (-(2**63), 2**63 - 1):
            await query(
                spec.db, "UPDATE threads SET created_at = $2, last_seq = $2 WHERE id = $1", first, damage
            )
            told = (await spec.http.get("/api/threads/usage")).json()
            assert (told["threads"], told["byGraph"]) == (2, {"interview": 2})
            assert moment(told["oldest"]) == (await spec.app.stores.threads.get(second)).created_at

    @pytest.mark.parametrize("where", ["sqlite"], indirect=True)
    async def test_sqlite_really_gives_room_back(self, spec: Spec, where: str) -> None:
        await _make(spec.db, 300, padding=20_000)
        await query(spec.db, "DELETE FROM cleanups")
        file = anyio.Path(where)
        size = (await file.stat()).st_size
        seen = await spec.cleanup("?days_old=30")
        assert seen["deleted"] == 300
        journal = anyio.Path(f"{where}-wal")
        async with asyncio.timeout(SECONDS):
            # Each time for a second at most, and not while somebody reads.
            while max((await file.stat()).st_size, (await journal.stat()).st_size) >= size / 2:
                await spec.app.execution.cleanup.give_back()


def _in_half_a_day() -> str:
    """A schedule by which no turn comes while a test looks, but for those it makes."""
    return f"{datetime.now(UTC) + timedelta(hours=12):%M %H} * * *"


class TestSchedule:
    @pytest.mark.parametrize("where", ["memory"], indirect=True)
    async def test_it_is_off_unless_asked_for(self, spec: Spec) -> None:
        assert spec.app.execution.cleanup.next_turn is None

    @pytest.mark.parametrize("where", SHARED, indirect=True)
    async def test_once_for_all_processes(self, where: str, tmp_path: Path) -> None:
        schedule = {"CLEW_CLEANUP_SCHEDULE": _in_half_a_day()}
        async with opened(where, tmp_path, **schedule) as one, opened(where, tmp_path, **schedule) as other:
            thread_id = await one.start()
            await one.age(thread_id, 31)
            both = (one.app.execution.cleanup, other.app.execution.cleanup)
            await both[0].tick()
            await query(
                one.db, "UPDATE duties SET last_at = last_at - $1 WHERE name = 'cleanup schedule'", DAY
            )
            await query(one.db, "DELETE FROM cleanups")
            await asyncio.gather(*(cleanup.tick() for cleanup in both))
            assert await one.rows_of(thread_id) == {}
            runs = await query(one.db, "SELECT deleted FROM cleanups")
            assert [tuple(run) for run in runs] == [(1,)]

    @pytest.mark.accept("003-27")
    @pytest.mark.parametrize("where", SHARED, indirect=True)
    async def test_a_turn_that_meets_another_cleanup_is_taken_when_that_has_ended(
        self, where: str, tmp_path: Path
    ) -> None:
        schedule = {"CLEW_CLEANUP_SCHEDULE": _in_half_a_day()}
        async with opened(where, tmp_path, **schedule) as one, opened(where, tmp_path, **schedule) as other:
            thread_id = await one.start()
            await one.age(thread_id, 31)
            both = (one.app.execution.cleanup, other.app.execution.cleanup)
            await both[0].tick()
            await query(
                one.db, "UPDATE duties SET last_at = last_at - $1 WHERE name = 'cleanup schedule'", DAY
            )
            asked = CleanupJob(
                id="asked for",
                selection=selection(now=both[0].clock(), days_old=365),
                started_at=both[0].clock(),
            )
            assert await both[0].rows.begin(asked, runner="somebody", lease=timedelta(minutes=1))
            for _ in range(2):
                await asyncio.gather(*(cleanup.tick() for cleanup in both))
            assert "threads" in await one.rows_of(thread_id)
            await both[0].rows.release(asked, runner="somebody", finished_at=both[0].clock())
            for _ in range(2):
                await asyncio.gather(*(cleanup.tick() for cleanup in both))
            assert await one.rows_of(thread_id) == {}
            runs = await query(one.db, "SELECT deleted FROM cleanups WHERE id <> 'asked for'")
            assert [tuple(run) for run in runs] == [(1,)]

    @pytest.mark.parametrize("where", SHARED, indirect=True)
    async def test_a_turn_that_comes_after_a_jump_is_taken_when_the_clock_is_believed_again(
        self, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with opened(where, tmp_path, CLEW_CLEANUP_SCHEDULE=_in_half_a_day()) as spec:
            thread_id = await spec.start()
            cleanup = spec.app.execution.cleanup
            await cleanup.tick()
            # As after two days without a server.
            await spec.age(thread_id, 31)
            await query(spec.db, "UPDATE duties SET last_at = last_at - $1", 2 * DAY)
            with caplog.at_level(logging.ERROR, "clew.retention.cleanup"):
                for _ in range(2):
                    await cleanup.tick()
            said = [record.msg[:10] for record in caplog.records if record.name == "clew.retention.cleanup"]
            assert said == ["no cleanup"], "said once"
            assert "threads" in await spec.rows_of(thread_id)
            await query(
                spec.db, "UPDATE duties SET jumped_at = jumped_at - $1 WHERE name = 'clock'", DAY // 12
            )
            await cleanup.tick()
            assert await spec.rows_of(thread_id) == {}

    async def test_a_clock_that_jumped_deletes_nothing(self, spec: Spec) -> None:
        thread_id = await spec.start()
        await spec.app.execution.cleanup.tick()
        # As after a restart with the clock a month ahead: everything looks unused for a month.
        await spec.age(thread_id, 31)
        await query(spec.db, "UPDATE duties SET last_at = last_at - $1 WHERE name = 'clock'", 31 * DAY)
        refused = await spec.cleanup(status=409)
        assert refused["error"]["code"] == "INVALID_STATE"
        assert "clock" in refused["error"]["message"]
        assert (await spec.cleanup("?dry_run=true"))["due"] == 1
        assert (await spec.cleanup("?force=true"))["deleted"] == 1


async def _make(db: Database, count: int, padding: int = 10) -> None:
    """Threads that ended long ago, with a few events each, made by the database itself."""
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"
    old = "1000000000000000"
    await query(
        db,
        "INSERT INTO threads (id, tenant, user_id, graph, name, status, stage, round, round_seq, settings, fsm_state,"
        " stats, redacted, last_seq, ttl, created_at, last_active_at, last_accessed_at, expires_at, fence, recoveries)"
        f" {numbers} SELECT 'old-' || i, 'default', '', 'interview', '', 'completed', 'completed', 1, 1, '{{}}',"
        f" '{{\"pending\": {{}}, \"last_seq\": 3}}', '{{}}', '[]', 3, 1, {old}, {old}, {old} + i, {old} + i, 0, 0 FROM n",
        count,
    )
    await query(
        db,
        "INSERT INTO events (thread_id, seq, id, round, type, version, content, at)"
        f" {numbers} SELECT 'old-' || i, s.seq, 'e', 1, 'stage_changed', 1, $2, {old}"
        " FROM n CROSS JOIN (SELECT 1 AS seq UNION SELECT 2 UNION SELECT 3) AS s",
        count,
        json.dumps({"stage": "x" * padding}),
    )


async def _slow_down(db: Database, table: str, *, seconds: int, only: str = "") -> None:
    """On Postgres: from now on a deletion from this table takes so long, row by row."""
    slowly = f"BEGIN PERFORM pg_sleep({seconds}); RETURN old; END"
    await query(db, f"CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ {slowly} $$")
    await query(
        db,
        f"CREATE TRIGGER slowly BEFORE DELETE ON {table} FOR EACH ROW {only} EXECUTE FUNCTION slowly()",
    )


def _named(thread_id: str, call: str) -> dict[str, str]:
    return {"thread_id": thread_id, "workflow_id": thread_id, "call_id": call}


def _counting_accesses(*, is_postgres: bool) -> list[str]:
    """A row for every time that an access is written down."""
    note = "INSERT INTO accesses VALUES (1)"
    made = ["CREATE TABLE accesses (n INTEGER)"]
    on = "CREATE TRIGGER counting AFTER UPDATE OF last_accessed_at ON threads"
    if not is_postgres:
        return [*made, f"{on} BEGIN {note}; END"]
    return [
        *made,
        f"CREATE FUNCTION counting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {note}; RETURN new; END $$",
        f"{on} FOR EACH ROW EXECUTE FUNCTION counting()",
    ]


def _is_postgres(spec: Spec) -> bool:
    return type(spec.db).__name__ == "PostgresDatabase"


def _refuse_deletion(thread_id: str, *, is_postgres: bool) -> list[str]:
    """A database that will not let go of this thread's events."""
    if not is_postgres:
        return [
            f"CREATE TRIGGER stubborn BEFORE DELETE ON events WHEN old.thread_id = '{thread_id}'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        ]
    return [
        "CREATE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
        "CREATE TRIGGER stubborn BEFORE DELETE ON events FOR EACH ROW"
        f" WHEN (old.thread_id = '{thread_id}') EXECUTE FUNCTION stubborn()",
    ]
