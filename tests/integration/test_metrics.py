"""Every metric there is moves when what it counts happens: one that nobody sets fails here."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, Op, Result
from langgraph.store.memory import InMemoryStore
from prometheus_client.parser import text_string_to_metric_families

from clew.history.agent_node import AgentNode
from clew.telemetry import Metrics
from tests.app import House, open_house
from tests.databases import query
from tests.fakes import echo
from tests.http_client import client_of
from tests.providers import HEADER, SECRET, TOKEN, provider, update

pytestmark = pytest.mark.anyio


class Seen:
    """What `/metrics` has shown since the beginning, and which of it has moved."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._first: dict[Any, float] | None = None
        self.moved: set[str] = set()

    async def look(self) -> None:
        answer = await self._client.get("/metrics")
        assert answer.status_code == 200, answer.text
        samples = {
            (family.name, sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        if self._first is None:
            self._first = samples
        self.moved |= {key[0] for key, value in samples.items() if value != self._first.get(key, 0.0)}


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    with provider() as known:
        bot = f"{{token: {TOKEN}, secret_token: {SECRET}, graph: agent, base_url: '{known.url}'}}"
        short = {"CLEW_RUNNER_LEASE_SECONDS": "0.5", "CLEW_RUNNER_POLL_SECONDS": "0.1"}
        more = f"channels:\n  telegram: {{bot: {bot}}}\n"
        async with open_house(where, tmp_path, more=more, **short) as house:
            yield house


async def start(client: httpx.AsyncClient, graph: str, prompt: str, wait: int = 40, **state: Any) -> Any:
    body = {"graph": graph, "prompt": prompt} | ({"input": state} if state else {})
    answer = await client.post(f"/api/workflows/start?wait={wait}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_every_metric_moves(house: House, tmp_path: Path) -> None:
    async with client_of(house.app.http) as client:
        client.timeout = httpx.Timeout(60)
        seen = Seen(client)
        await seen.look()
        done = await start(client, "agent", "tools: look_up word=x")
        assert done["status"] == "completed"
        failed_twice = await start(client, "flaky", "go", marks=str(tmp_path / "flaky"), log=[])
        assert failed_twice["status"] == "completed"
        await lose_a_lease(house, client, seen, tmp_path)
        assert (await client.delete(f"/api/workflows/{done['id']}")).status_code == 200
        delivered = await client.post("/channels/telegram/bot", json=update(1, "hello"), headers=HEADER)
        assert delivered.status_code == 200
        await remember_and_forget()
        async with asyncio.timeout(60):
            while "clew_channel_answers" not in seen.moved:
                await seen.look()
                await asyncio.sleep(0.05)
    # tests/integration/test_queue.py shows those of the queue.
    queue = {"clew_runs_waiting", "clew_oldest_wait_seconds", "clew_slots", "clew_workers"}
    declared = {family.name for family in Metrics().registry.collect()} - queue
    assert declared - seen.moved == set()


async def lose_a_lease(house: House, client: httpx.AsyncClient, seen: Seen, folder: Path) -> None:
    """While a node takes its time, another runner takes its thread."""
    marks = folder / "slow"
    running = asyncio.create_task(start(client, "slow", "go", wait=2, marks=str(marks), log=[]))
    async with asyncio.timeout(60):
        while not marks.exists():
            if running.done():
                running.result()
            await asyncio.sleep(0.01)
        await seen.look()
        assert {"clew_threads_running", "clew_streams"} <= seen.moved
        stores = house.app.stores
        taken: list[Any] = []
        while not taken:
            await query(stores.db, "UPDATE threads SET lease_until = 0 WHERE status = 'running'")
            taken = list(await stores.threads.claim("another", lease=timedelta(minutes=5), limit=1))
        halt_the_event_loop()
        while "clew_lost_leases" not in seen.moved:
            await seen.look()
            await asyncio.sleep(0.05)
    thread = await running
    await client.delete(f"/api/workflows/{thread['id']}")


def halt_the_event_loop() -> None:
    """As a busy machine does: the heartbeat, in a thread of its own, reports the lost lease several times meanwhile."""
    time.sleep(1)


class Broken(InMemoryStore):
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        raise ConnectionError("gone")


class Chat(MessagesState, total=False):
    inputs: dict[str, Any]


async def remember_and_forget() -> None:
    """Chats with a memory: kept, cut down, without a key, and with a store that fails."""
    node = AgentNode(echo(), use_graph_chat_history=True, max_messages=2)

    async def say(store: BaseStore, **inputs: str) -> None:
        graph = StateGraph(Chat).add_node("agent", node).add_edge(START, "agent").compile(store=store)
        await graph.ainvoke({"messages": [HumanMessage("hi")], "inputs": inputs})

    store = InMemoryStore()
    for _ in range(3):
        await say(store, history_key="telegram:1")
    await say(store)
    await say(Broken(), history_key="telegram:2")
