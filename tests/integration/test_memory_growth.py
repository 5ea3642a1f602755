"""Memory: what a process keeps of runs that are over is bounded, whatever their number. Counted in objects."""

import gc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from clew.checkpointer.cache import DirtyObjects, StateCache
from clew.domain.events import Opening
from clew.domain.thread import Owner
from clew.engine.commands import Request
from clew.graph import owner_graphs
from tests.app import House, open_house
from tests.http_client import client_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600), pytest.mark.mainly_sqlite]

# Runs in a stretch. A leak grows by an object a run in every stretch; a cache that fills up grows in the first ones.
RUNS = 40
STRETCHES = 10  # a new connection to Postgres fills its cache of statements, at any time
# What is kept on purpose, so that it is full before the counting begins.
KEPT = 16


@pytest.fixture
async def house(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[House]:
    monkeypatch.setattr(StateCache, "MOST", KEPT)
    monkeypatch.setattr(DirtyObjects, "LIMIT", KEPT)
    monkeypatch.setattr(owner_graphs, "MOST_COPIES", KEPT)
    async with open_house(where, tmp_path) as house:
        yield house


def alive() -> Counter[str]:
    """Objects by type."""
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())


async def leaked(stretch: Callable[[int], Awaitable[None]]) -> dict[str, int]:
    """Types of which at least every other run has left one behind, in every stretch."""
    await stretch(0)
    before = alive()
    growth: Counter[str] | None = None
    for n in range(1, STRETCHES + 1):
        await stretch(n)
        after = alive()
        grown = Counter({name: count for name, count in (after - before).items() if count >= RUNS // 2})
        growth = grown if growth is None else growth & grown
        if not growth:
            break
        before = after
    return dict(growth or {})


async def test_runs_that_are_over_leave_nothing_in_memory(house: House) -> None:
    body = {"assistant_id": "two_steps", "input": {"log": [], "marks": ""}}
    async with client_of(house.app.http) as http:
        http.timeout = httpx.Timeout(60)

        async def on_new_threads(_: int) -> None:
            for _ in range(RUNS):
                thread_id = (await http.post("/threads", json={})).json()["thread_id"]
                answer = await http.post(f"/threads/{thread_id}/runs/wait", json=body)
                assert answer.status_code == 200, answer.text

        assert await leaked(on_new_threads) == {}


async def test_tenants_that_come_once_leave_nothing_in_memory(house: House) -> None:
    async def for_new_tenants(stretch: int) -> None:
        for n in range(RUNS):
            opening = Opening(owner=Owner(tenant=f"tenant-{stretch}-{n}"), graph="two_steps")
            thread = await house.app.execution.commands.start(opening, Request(graph_input={"log": []}))
            await house.rest(thread)

    assert await leaked(for_new_tenants) == {}
