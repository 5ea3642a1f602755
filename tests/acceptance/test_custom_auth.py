"""Custom authentication of a LangGraph project: its own Auth object protects every door, and nodes know their user."""

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import APIStatusError
from openai import AsyncOpenAI, NotFoundError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.acceptance import auth_project
from tests.postgres import PostgresServer
from tests.processes import ROOT, Server, clew, serving
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

ALICE, BOB = "alice-token-1234", "bob-token-12345"


@dataclass(frozen=True, slots=True)
class Protected:
    server: Server
    key: str
    folder: Path
    url: str = ""  # of Postgres

    def make_due(self, cron_id: str) -> None:
        """As if no server had been there when it was due, an hour ago."""
        ago = int((time.time() - 3600) * 1_000_000)
        statement = f"UPDATE crons SET next_at = {ago}, counted_at = {ago} WHERE id = '{cron_id}'"
        if self.url:
            with psycopg.connect(self.url, autocommit=True) as postgres:
                postgres.execute(statement.encode())
            return
        (file,) = self.folder.rglob("clew.db")
        with closing(sqlite3.connect(file, timeout=30)) as sqlite, sqlite:
            sqlite.execute(statement)


def write_project(folder: Path, auth: str, **more: Any) -> None:
    file = auth_project.__file__
    graphs = {name: f"{file}:{name}" for name in auth_project.GRAPHS}
    project = {"dependencies": ["."], "graphs": graphs, "auth": {"path": f"{file}:{auth}", **more}}
    (folder / "langgraph.json").write_text(json.dumps(project))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def protected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Protected]:
    folder = tmp_path_factory.mktemp(f"auth-{request.param}")
    environ = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    postgres: PostgresServer | None = None
    if request.param == "postgres":
        postgres = request.getfixturevalue("shared_postgres")
        environ["CLEW_DATABASE_URL"] = postgres.create_database("custom_auth")
    write_project(folder, "private")
    made = clew(folder, "keys", "create", "--name", "ours", "--json", **environ)
    with serving(folder, port=0, **environ) as server:
        url = environ.get("CLEW_DATABASE_URL", "")
        yield Protected(server, json.loads(made.stdout)["key"], folder, url)
    if postgres is not None:
        postgres.drop_database("custom_auth")


@asynccontextmanager
async def users(served: Protected) -> AsyncGenerator[tuple[Any, Any]]:
    async with AsyncExitStack() as stack:
        alice, bob = [await stack.enter_async_context(client(served.server, token)) for token in (ALICE, BOB)]
        yield alice, bob


def client(server: Server, token: str) -> Any:
    """LangGraph's client. Its types promise more than comes."""
    return get_client(url=server.address, headers={"Authorization": f"Bearer {token}"})


def http(served: Protected, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=served.server.address, headers={"Authorization": f"Bearer {token}"})


def openai_client(served: Protected, token: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{served.server.address}/v1", api_key=token, max_retries=0)


def database_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and "clew" in path.name)


async def refused(work: Any, status: int = 404) -> None:
    with pytest.raises((APIStatusError, httpx.HTTPStatusError)) as caught:
        await work
    assert caught.value.response.status_code == status


async def test_threads_runs_states_and_streams_are_their_users(protected: Protected) -> None:
    async with users(protected) as (alice, bob):
        thread = await alice.threads.create(metadata={"owner": "bob", "topic": "x"})
        assert thread["metadata"] == {"owner": "alice", "topic": "x"}
        thread_id = thread["thread_id"]
        run = await alice.runs.create(thread_id, "ask", input={"seen": []})
        await alice.runs.join(thread_id, run["run_id"])

        assert [one["thread_id"] for one in await alice.threads.search()] == [thread_id]
        assert await bob.threads.search() == []
        assert await bob.threads.search(ids=[thread_id]) == []
        assert (await alice.threads.count(), await bob.threads.count()) == (1, 0)
        for refusal in (
            bob.threads.get(thread_id),
            bob.threads.update(thread_id, metadata={"owner": "bob"}),
            bob.threads.get_state(thread_id),
            bob.threads.get_history(thread_id),
            bob.threads.update_state(thread_id, {"seen": ["mine"]}),
            bob.threads.copy(thread_id),
            bob.threads.delete(thread_id),
            bob.runs.create(thread_id, "who", input={"seen": []}),
            bob.runs.wait(thread_id, "ask", command={"resume": "yes"}),
            bob.runs.list(thread_id),
            bob.runs.get(thread_id, run["run_id"]),
            bob.runs.join(thread_id, run["run_id"]),
            bob.runs.cancel(thread_id, run["run_id"]),
            bob.runs.delete(thread_id, run["run_id"]),
            bob.crons.create_for_thread(thread_id, "who", schedule="0 0 1 1 *", input={"seen": []}),
        ):
            await refused(refusal)
        with pytest.raises(APIStatusError):
            _ = [part async for part in bob.runs.join_stream(thread_id, run["run_id"])]
        assert (await bob.threads.prune([thread_id]))["pruned_count"] == 0

        answered = await alice.runs.wait(thread_id, "ask", command={"resume": "yes"})
        assert answered["seen"] == ["yes", "alice"]
        copy = await alice.threads.copy(thread_id)
        assert copy["metadata"]["owner"] == "alice"
        await refused(bob.threads.get(copy["thread_id"]))
        for one in (thread_id, copy["thread_id"]):
            await alice.threads.delete(one)


async def test_native_doors_ask_the_same_handlers(protected: Protected) -> None:
    async with http(protected, ALICE) as alice, http(protected, BOB) as bob:
        body = {"graph": "ask", "input": {"seen": []}}
        started = (await alice.post("/api/workflows/start?wait=20", json=body)).json()
        thread = started["id"]
        assert started["status"] == "blocked"
        assert (await alice.get(f"/threads/{thread}")).json()["metadata"]["owner"] == "alice"
        assert [one["id"] for one in (await alice.get("/api/workflows")).json()["workflows"]] == [thread]
        assert (await bob.get("/api/workflows")).json()["workflows"] == []
        assert (await bob.get("/api/threads")).json()["threads"] == []
        assert (await bob.get("/api/threads/usage")).json()["threads"] == 0
        calls = (await alice.get(f"/api/workflows/{thread}/tool-calls")).json()
        call = next(iter(calls.values()))[0]["id"] if isinstance(calls, dict) else calls[0]["id"]
        for method, path, given in (
            ("GET", f"/api/threads/{thread}", None),
            ("GET", f"/api/threads/{thread}/events", None),
            ("GET", f"/api/threads/{thread}/export", None),
            ("GET", f"/api/workflows/{thread}", None),
            ("GET", f"/api/workflows/{thread}/status", None),
            ("GET", f"/api/workflows/{thread}/events", None),
            ("GET", f"/api/workflows/{thread}/messages", None),
            ("POST", f"/api/workflows/{thread}/approve", {}),
            ("POST", f"/api/workflows/{thread}/tool-calls/{call}/resolve", {"answer": "yes"}),
            ("POST", f"/api/workflows/{thread}/stop", {}),
            ("POST", f"/api/workflows/start?id={thread}", body),
            ("DELETE", f"/api/workflows/{thread}", None),
            ("DELETE", f"/api/threads/{thread}", None),
        ):
            answer = await bob.request(method, path, json=given)
            assert answer.status_code == 404, (method, path, answer.text)
        assert (await alice.post(f"/api/workflows/{thread}/approve", json={})).status_code == 200
        # Files have no handler: each user has its own.
        sent = await alice.post("/api/files", files={"file": ("a.txt", b"hello")})
        assert sent.status_code < 300, sent.text
        assert (await bob.get("/api/files")).json()["files"] == []
        assert (await bob.get(f"/api/files/{sent.json()['id']}")).status_code == 404
        assert (await alice.delete(f"/api/threads/{thread}")).status_code < 300


async def test_store_items_assistants_and_crons(protected: Protected) -> None:
    async with users(protected) as (alice, bob):
        await alice.store.put_item(["notes"], key="a", value={"text": "mine"})
        assert (await alice.store.get_item(["notes"], key="a"))["value"] == {"text": "mine"}
        assert await bob.store.get_item(["notes"], key="a") is None
        assert (await bob.store.search_items([]))["items"] == []
        assert (await alice.store.search_items([]))["items"][0]["namespace"] == ["alice", "notes"]
        assert (await bob.store.list_namespaces())["namespaces"] == []
        await bob.store.delete_item(["notes"], key="a")
        assert await alice.store.get_item(["notes"], key="a") is not None

        made = await alice.assistants.create("who", metadata={"owner": "bob"})
        assert made["metadata"]["owner"] == "alice"
        mine = made["assistant_id"]
        assert [one["assistant_id"] for one in await alice.assistants.search()] == [mine]
        assert await bob.assistants.search() == []
        for refusal in (
            bob.assistants.get(mine),
            bob.assistants.update(mine, name="x"),
            bob.assistants.get_versions(mine),
            bob.assistants.get_schemas(mine),
            bob.assistants.delete(mine),
            bob.runs.wait(None, mine, input={"seen": []}),
            bob.crons.create(mine, schedule="0 0 1 1 *", input={"seen": []}),
        ):
            await refused(refusal)
        # A graph's own assistant needs no permission to run, as with LangGraph's server.
        for caller in (alice, bob):
            assert (await caller.runs.wait(None, "who", input={"seen": []}))["seen"]

        cron = await alice.crons.create("who", schedule="0 0 1 1 *", input={"seen": []})
        assert [one["cron_id"] for one in await alice.crons.search()] == [cron["cron_id"]]
        assert await bob.crons.search() == []
        assert await bob.crons.count() == 0
        await refused(bob.crons.update(cron["cron_id"], enabled=False))
        await refused(bob.crons.delete(cron["cron_id"]))
        await alice.crons.delete(cron["cron_id"])
        await alice.assistants.delete(mine)


async def test_a_cron_runs_as_the_user_who_made_it(protected: Protected) -> None:
    async with users(protected) as (alice, bob):
        thread = (await alice.threads.create())["thread_id"]
        told = {}
        for make, more in (
            (alice.crons.create, {"on_run_completed": "keep"}),
            (alice.crons.create_for_thread, {"thread_id": thread}),
        ):
            cron = await make(
                assistant_id="who",
                schedule="0 0 1 1 *",
                input={"seen": []},
                metadata={"owner": "bob"},
                **more,
            )
            protected.make_due(cron["cron_id"])

            async def ran(wanted: str = cron["cron_id"]) -> Any:
                for one in await alice.threads.search():
                    for run in await alice.runs.list(one["thread_id"]):
                        by = run["kwargs"]["config"]["configurable"].get("cron_id")
                        if (by, run["status"]) == (wanted, "success"):
                            return one["thread_id"]
                return None

            found = await alice.threads.get(await until(ran))
            (seen,) = found["values"]["seen"]
            assert (seen["ids"], seen["user"]["org"]) == (["alice", ["threads:read"]], "acme")
            told[found["thread_id"]] = found["metadata"]["owner"]
            assert await bob.threads.search() == []
            await refused(bob.threads.get_state(found["thread_id"]))
            await refused(bob.crons.update(cron["cron_id"], enabled=True))
            await alice.crons.delete(cron["cron_id"])
        assert thread in told
        assert [*told.values()] == ["alice", "alice"]
        for one in told:
            await alice.threads.delete(one)


async def test_conversations_of_other_protocols_are_their_users(protected: Protected) -> None:
    """The same name of a conversation is another thread for each user, and no id opens that of another."""
    threads = {}
    for token, text in ((ALICE, "a"), (BOB, "b")):
        async with openai_client(protected, token) as caller:
            raw = await caller.chat.completions.with_raw_response.create(
                model="recall", messages=[{"role": "user", "content": text}], user="our chat"
            )
            assert raw.parse().choices[0].message.content == text
            threads[token] = raw.headers["X-Clew-Thread"]
    async with openai_client(protected, BOB) as bob:
        with pytest.raises(NotFoundError):
            await bob.chat.completions.create(
                model="recall",
                messages=[{"role": "user", "content": "b"}],
                extra_headers={"X-Clew-Thread": threads[ALICE]},
            )
    for token, text in ((ALICE, "a"), (BOB, "b")):
        async with http(protected, token) as caller:
            said = [{"id": text, "role": "user", "content": text}]
            body = {"threadId": "our chat", "runId": "1", "messages": said, "protocolVersion": "1.0"}
            answer = await caller.post("/agui/recall", json=body)
            assert (answer.status_code, "RUN_FINISHED" in answer.text) == (200, True), answer.text
            threads[f"agui {token}"] = answer.headers["X-Clew-Thread"]
            found = (await caller.post("/threads/search", json={})).json()
            own = {threads[token], threads[f"agui {token}"]}
            assert {one["thread_id"] for one in found} == own
            body |= {"threadId": threads[ALICE], "runId": "2", "messages": []}
            mine = await caller.post("/agui/recall", json=body)
            assert ('"content":"a"' in mine.text) is (token == ALICE), mine.text
    assert len({*threads.values()}) == 4
    for token in (ALICE, BOB):
        async with client(protected.server, token) as caller:
            for one in await caller.threads.search():
                await caller.threads.delete(one["thread_id"])


async def test_a_factory_is_told_the_user(protected: Protected) -> None:
    body = {"graph": "made", "input": {"seen": []}}
    async with users(protected) as (alice, _), http(protected, ALICE) as native:
        assert (await alice.runs.wait(None, "made", input={"seen": []}))["seen"] == ["alice"]
        started = (await native.post("/api/workflows/start?wait=20", json=body)).json()
        assert started["state"]["values"]["seen"] == ["alice"]
        await native.delete(f"/api/threads/{started['id']}")


async def test_nodes_know_the_user_and_forged_names_never_arrive(protected: Protected) -> None:
    forged = {
        "langgraph_auth_user": {"identity": "root"},
        "langgraph_auth_user_id": "root",
        "langgraph_auth_permissions": ["root"],
        "langgraph_auth_anything": "root",
    }
    told = {
        "identity": "alice",
        "display_name": "Alice",
        "is_authenticated": True,
        "permissions": ["threads:read"],
        "org": "acme",
        "attribute": "alice",
    }
    expected = {"user": told, "ids": ["alice", ["threads:read"]], "runtime": "alice", "forged": []}
    async with users(protected) as (alice, _), http(protected, ALICE) as native:
        for given in ({"config": {"configurable": forged}}, {"context": forged}, {"metadata": forged}, {}):
            answer = await alice.runs.wait(None, "who", input={"seen": []}, **given)
            assert answer["seen"] == [expected]
        body = {"graph": "who", "input": {"seen": []}}
        started = (await native.post("/api/workflows/start?wait=20", json=body)).json()
        state = (await native.get(f"/threads/{started['id']}/state")).json()
        assert state["values"]["seen"] == [expected]
    async with http(protected, protected.key) as ours:
        answer = await ours.post("/runs/wait", json={"assistant_id": "who", "input": {"seen": []}})
        assert answer.json()["seen"] == [{"user": None, "ids": [None, None], "runtime": None, "forged": []}]


async def test_no_caller_is_let_in_unauthenticated(protected: Protected) -> None:
    async with httpx.AsyncClient(base_url=protected.server.address) as nobody:
        answer = await nobody.post("/threads/search", json={})
        assert answer.status_code == 401
        assert answer.json() == {"detail": "who are you?"}
        assert answer.headers["WWW-Authenticate"] == "Custom"
        for headers in ({"x-api-key": "lsv2_pt_something"}, {"x-auth-scheme": "langsmith"}):
            assert (await nobody.get("/api/workflows", headers=headers)).status_code == 401
        assert (await nobody.get("/ok")).status_code == 200
    async with http(protected, ALICE) as alice:
        for path in ("/api/audit", "/metrics"):
            assert (await alice.get(path)).status_code == 403


@pytest.mark.parametrize("way", ["started", "queued"])
async def test_a_run_keeps_its_user_through_a_kill(way: str, tmp_path: Path) -> None:
    write_project(tmp_path, "private")
    environ = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "CLEW_RUNNER_LEASE_SECONDS": "1"}
    with serving(tmp_path, port=0, **environ) as server:
        async with client(server, ALICE) as alice:
            thread = (await alice.threads.create())["thread_id"]
            await alice.runs.create(thread, "who", input={"seen": [2]})
            if way == "queued":
                await alice.runs.create(thread, "who", input={"seen": [0]})
    stored = database_of(tmp_path)
    assert stored
    assert ALICE.encode() not in stored
    with serving(tmp_path, port=0, **environ) as server:
        async with client(server, ALICE) as alice:
            wanted = 2 if way == "queued" else 1
            async with asyncio.timeout(100):
                while True:
                    seen = (await alice.threads.get_state(thread))["values"].get("seen", [])
                    told = [one["ids"] for one in seen if isinstance(one, dict)]
                    if len(told) >= wanted:
                        break
                    await asyncio.sleep(0.2)
            assert told[:wanted] == [["alice", ["threads:read"]]] * wanted


async def test_the_example_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "custom-auth.md").read_text()
    for name, block in re.findall(r"`([a-z.]+)`:\n\n```(?:python|json)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(block)
    with serving(tmp_path, port=0) as server:
        assert "API keys  needed, or what auth.path accepts\n" in server.stdout.read_text()
        for user, other in (("alice", "bob"), ("bob", "alice")):
            async with client(server, f"token-of-{user}") as caller:
                thread = await caller.threads.create()
                answer = await caller.runs.wait(thread["thread_id"], "agent", input={"text": ""})
                assert answer == {"text": f"Hello {user}"}
                found = [one["metadata"]["owner"] for one in await caller.threads.search()]
                assert found == [user] != [other]


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ("absent", "it has no 'absent'"),
        ("who", "is no langgraph_sdk.Auth"),
        ("Auth()", "expected ./file.py:auth"),
    ],
)
def test_handlers_that_cannot_protect_the_server_are_named_at_start_and_by_doctor(
    auth: str, why: str, tmp_path: Path
) -> None:
    write_project(tmp_path, auth)
    for command in (("serve", "--port", "0"), ("doctor",)):
        done = clew(tmp_path, *command, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}")
        said = done.stdout + done.stderr
        assert (done.returncode != 0, why in said, "Traceback" in said) == (True, True, False), said


async def test_sockets_show_each_user_its_own_threads(protected: Protected) -> None:
    address = protected.server.address.replace("http", "ws") + "/ws/events"
    signed = {"Authorization": f"Bearer {BOB}"}
    async with (
        http(protected, ALICE) as alice,
        connect(address) as mine,
        connect(address, additional_headers=signed) as others,
    ):
        # A browser sends no header: the token is its first message.
        await mine.send(json.dumps({"type": "auth", "key": ALICE}))
        await mine.send(json.dumps({"type": "ping"}))
        assert json.loads(await mine.recv())["type"] == "pong"
        body = {"graph": "ask", "input": {"seen": []}}
        thread = (await alice.post("/api/workflows/start?wait=20", json=body)).json()["id"]
        assert json.loads(await mine.recv())["payload"]["workflow_id"] == thread
        await others.send(json.dumps({"type": "subscribe", "workflow_id": thread}))
        told = json.loads(await others.recv())
        assert (told["type"], told["error"]["code"]) == ("error", "NOT_FOUND")
        await alice.delete(f"/api/threads/{thread}")
    async with connect(address) as stranger:
        await stranger.send(json.dumps({"type": "auth", "key": "wrong"}))
        with pytest.raises(ConnectionClosed):
            await stranger.recv()
