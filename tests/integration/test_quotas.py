"""Quotas through HTTP: what a tenant may not store is refused with 429 and a reason, and a run that stores it fails with it."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.thread import Owner
from clew.server.app import Server
from tests.http_client import client_of, new_key, opened_app

pytestmark = pytest.mark.anyio

FLOWS = """
from langgraph.config import get_store
from langgraph.graph import END, START, StateGraph

async def keep(state: dict) -> dict:
    await get_store().aput(("notes",), "n", {"text": state["text"]})
    return {}

def graph():
    builder = StateGraph(dict)
    builder.add_node("keep", keep)
    builder.add_edge(START, "keep")
    builder.add_edge("keep", END)
    return builder
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "clew.yaml").write_text(
        "graphs: {keep: './flows.py:graph'}\n"
        "quotas: {threads: 2, stored_bytes: 1000, assistants: 1, crons: 1}\n"
    )
    async with opened_app(tmp_path, CLEW_AUTH="keys") as app:
        yield app


async def client(server: Server, tenant: str) -> httpx.AsyncClient:
    return client_of(server.http, await new_key(server.stores.keys, owner=Owner(tenant=tenant)))


def is_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 429, answer.text
    assert "delete some first" in answer.text
    assert "Retry-After" not in answer.headers  # waiting does not help


async def start(ann: httpx.AsyncClient, size: int) -> httpx.Response:
    body = {"graph": "keep", "input": {"text": "x" * size}}
    return await ann.post("/api/workflows/start?wait=20", json=body)


async def test_each_quota_refuses_and_names_itself(server: Server) -> None:
    ann, rival = await client(server, "a"), await client(server, "b")

    async def cron(who: httpx.AsyncClient) -> httpx.Response:
        return await who.post("/runs/crons", json={"assistant_id": "keep", "schedule": "0 9 * * *"})

    async def assistant(who: httpx.AsyncClient) -> httpx.Response:
        return await who.post("/assistants", json={"graph_id": "keep"})

    async def upload(who: httpx.AsyncClient) -> httpx.Response:
        return await who.post("/api/files", files={"file": ("a.txt", b"x" * 600)})

    async def put(who: httpx.AsyncClient) -> httpx.Response:
        body = {"namespace": ["n"], "key": "k", "value": {"text": "x" * 600}}
        return await who.put("/store/items", json=body)

    for ask in (cron, assistant, upload):
        first, second = await ask(ann), await ask(ann)
        assert first.status_code < 300, first.text
        is_refused(second)
        assert (await ask(rival)).status_code < 300
    is_refused(await put(ann))
    for _ in range(2):
        assert (await ann.post("/threads", json={})).status_code == 200
    is_refused(await ann.post("/threads", json={}))
    refused = await start(ann, 1)
    is_refused(refused)
    assert refused.json()["error"]["code"] == "QUOTA_EXCEEDED"


async def test_a_run_that_stores_too_much_fails_with_the_reason(server: Server) -> None:
    ann = await client(server, "a")
    stored: Any = (await start(ann, 100)).json()
    refused: Any = (await start(ann, 2000)).json()
    assert (stored["status"], refused["status"]) == ("completed", "failed")
    assert "may store 1000 bytes" in refused["failureReason"]
