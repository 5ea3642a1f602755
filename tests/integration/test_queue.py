"""The queue through HTTP: priority by scope, caps on every way to start a run, what waits, and changes to it."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.thread import Owner
from clew.server.app import Server
from tests.databases import SHARED, locate
from tests.http_client import client_of, new_key, opened_app
from tests.waiting import until

pytestmark = pytest.mark.anyio

USUAL = frozenset({"read", "write", "approve"})
FLOWS = """
import asyncio
from pathlib import Path
from langgraph.graph import END, START, StateGraph

async def hold(state: dict) -> dict:
    while not Path(state["until"]).exists():
        await asyncio.sleep(0.02)
    return {}

def graph():
    builder = StateGraph(dict)
    builder.add_node("hold", hold)
    builder.add_edge(START, "hold")
    builder.add_edge("hold", END)
    return builder
"""


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.fixture
async def server(where: str, tmp_path: Path) -> AsyncGenerator[Server]:
    """One slot, and at most two waiting runs of a tenant."""
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "clew.yaml").write_text("graphs:\n  hold: ./flows.py:graph\n")
    async with opened_app(
        tmp_path,
        CLEW_DATABASE_URL=where if where.startswith("postgres") else f"sqlite:///{where}",
        CLEW_AUTH="keys",
        CLEW_RUNNER_CONCURRENCY="1",
        CLEW_RUNNER_POLL_SECONDS="0.1",
        CLEW_QUEUE_WAITING_PER_TENANT="2",
    ) as app:
        yield app
        (tmp_path / "go").touch()


class Caller:
    def __init__(self, client: httpx.AsyncClient, folder: Path) -> None:
        self.client = client
        self.folder = folder

    async def start(self, status: int = 200, **more: Any) -> Any:
        body = {"graph": "hold", "input": {"until": str(self.folder / "go")}, **more}
        answer = await self.client.post("/api/workflows/start", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()["id"] if status == 200 else answer

    async def queue(self, **query: Any) -> Any:
        answer = await self.client.get("/api/queue", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def caller(server: Server, folder: Path, tenant: str, *more: str) -> Caller:
    key = await new_key(server.stores.keys, owner=Owner(tenant=tenant), scopes=USUAL | {*more})
    return Caller(client_of(server.http, key), folder)


async def test_a_priority_before_others_needs_the_scope_of_operators(server: Server, tmp_path: Path) -> None:
    ann, root = await caller(server, tmp_path, "a"), await caller(server, tmp_path, "a", "operator", "admin")
    answer = await ann.start(403, priority=-1)
    assert "operator" in answer.json()["error"]["message"]
    answer = await ann.start(400, priority=6)
    assert answer.json()["error"]["field"] == "priority"
    running = await ann.start()
    later = await ann.start(priority=5)
    urgent = await root.start(priority=-5)
    shown = await root.queue()
    assert [(one["threadId"], one["priority"]) for one in shown["next"]] == [(urgent, -5), (later, 5)]
    assert (shown["waiting"], shown["running"]) == (2, 1)
    assert running not in {one["threadId"] for one in shown["next"]}


async def test_over_the_cap_on_waiting_runs_every_way_to_start_one_answers_429(
    server: Server, tmp_path: Path
) -> None:
    ann = await caller(server, tmp_path, "a")
    given = {"until": str(tmp_path / "go")}
    first, _, _ = [await ann.start() for _ in range(3)]
    refused = [await ann.start(429)]
    run = {"assistant_id": "hold", "input": given}
    for path, body in (
        ("/threads/11111111-1111-4111-8111-111111111111/runs", {**run, "if_not_exists": "create"}),
        ("/runs", run),
        ("/runs/wait", run),
        ("/runs/stream", run),
        (f"/threads/{first}/runs", run),  # queued behind the one that runs
        ("/v1/chat/completions", {"model": "hold", "messages": [{"role": "user", "content": "hi"}]}),
        (
            "/agui/hold",
            {
                "threadId": "t-agui",
                "runId": "r1",
                "state": {},
                "messages": [{"id": "m1", "role": "user", "content": "hi"}],
                "tools": [],
                "context": [],
                "forwardedProps": {},
            },
        ),
    ):
        refused.append(await ann.client.post(path, json=body))
        assert refused[-1].status_code == 429, (path, refused[-1].text)
    assert all(int(one.headers["Retry-After"]) > 0 for one in refused)
    bob = await caller(server, tmp_path, "b")
    await bob.start()
    (tmp_path / "go").touch()


async def test_a_tenant_s_run_starts_next_whatever_waits_of_another(server: Server, tmp_path: Path) -> None:
    ann, bob = await caller(server, tmp_path, "a"), await caller(server, tmp_path, "b")
    first = await ann.start()
    many = [await ann.start() for _ in range(2)]
    single = await bob.start()
    root = await caller(server, tmp_path, "ops", "admin", "operator")
    shown = await root.queue(tenant="*")
    assert [one["threadId"] for one in shown["next"]] == [single, *many]
    assert [(one["tenant"], one["waiting"], one["running"]) for one in shown["loads"]] == [
        ("a", 2, 1),
        ("b", 1, 0),
    ]
    assert first


async def test_a_waiting_run_is_cancelled_or_moved_to_the_front(server: Server, tmp_path: Path) -> None:
    ann = await caller(server, tmp_path, "a", "admin")
    root = await caller(server, tmp_path, "ops", "admin", "operator")
    running, second, third = [await ann.start() for _ in range(3)]
    bob = await caller(server, tmp_path, "b", "admin")
    single = await bob.start()

    async def change(who: Caller, thread_id: str, how: str) -> int:
        tenant = {"tenant": "*"} if who is root else {}
        return (await who.client.post(f"/api/queue/{thread_id}/{how}", params=tenant)).status_code

    assert await change(ann, third, "front") == 403
    assert await change(root, third, "front") == 200
    assert [one["threadId"] for one in (await root.queue(tenant="*"))["next"]] == [third, single, second]
    assert await change(bob, second, "cancel") == 404
    assert await change(ann, running, "cancel") == 409
    assert await change(root, "nosuch", "front") == 404
    assert await change(ann, second, "cancel") == 200
    assert await change(ann, second, "cancel") == 409
    assert (await ann.client.get("/api/queue", params={"tenant": "*"})).status_code == 403
    assert [one["threadId"] for one in (await ann.queue())["next"]] == [third]


async def test_the_processes_are_listed_and_the_queue_is_measured(server: Server, tmp_path: Path) -> None:
    ann = await caller(server, tmp_path, "a", "admin", "metrics")
    await ann.start()
    await ann.start()

    async def listed() -> bool:
        return bool((await ann.queue())["processes"])

    await until(listed)
    (process,) = (await ann.queue())["processes"]
    assert (process["slots"], process["running"], process["role"]) == (1, 1, "server")
    assert process["isAlive"]
    assert "hold" in process["graphs"]

    async def measured() -> bool:
        text = (await ann.client.get("/metrics")).text
        wanted = ("clew_runs_waiting 1.0", "clew_slots 1.0", "clew_workers 1.0", "clew_oldest_wait_seconds")
        return all(line in text for line in wanted)

    await until(measured, seconds=15)
    await asyncio.sleep(0)
