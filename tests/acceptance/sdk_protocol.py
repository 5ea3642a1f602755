"""The thread protocol as a client without LangGraph's SDK speaks it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

CHANNELS = [
    "values",
    "updates",
    "messages",
    "tools",
    "lifecycle",
    "input",
    "checkpoints",
    "tasks",
    "custom",
]
OVER = ("completed", "failed", "interrupted")


async def command(http: httpx.AsyncClient, thread: str, method: str, **params: Any) -> Any:
    body = {"id": 1, "method": method, "params": params}
    answer = await http.post(f"/threads/{thread}/commands", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def events(http: httpx.AsyncClient, thread: str, **asked: Any) -> AsyncIterator[Any]:
    body = {"channels": CHANNELS, **asked}
    async with http.stream("POST", f"/threads/{thread}/stream/events", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def is_over(event: Any) -> bool:
    params = event.get("params", {})
    return bool(
        event.get("method") == "lifecycle" and not params["namespace"] and params["data"]["event"] in OVER
    )


async def until_over(http: httpx.AsyncClient, thread: str, *, runs: int = 1, **asked: Any) -> list[Any]:
    """All events up to the end of so many runs."""
    found = []
    async with asyncio.timeout(60):
        async for event in events(http, thread, **asked):
            found.append(event)
            runs -= is_over(event)
            if not runs:
                break
    return found
