"""/api/histories: whose memory of a chat a caller reaches, and how it is deleted."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.thread import Owner
from tests.databases import query
from tests.http_client import client_of, new_key, opened_app

pytestmark = pytest.mark.anyio

OWNERS = {
    "ann": Owner(tenant="acme", user_id="ann"),
    "bob": Owner(tenant="acme", user_id="bob"),
    "acme": Owner(tenant="acme"),
    "rival": Owner(tenant="rival"),
}


@dataclass(frozen=True, slots=True)
class Callers:
    clients: dict[str, httpx.AsyncClient]
    database: Any

    async def ask(self, who: str, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = await self.clients[who].request(method, path, **more)
        assert answer.status_code == status, (who, method, path, answer.text)
        return answer.json()

    async def talk(self, who: str, key: str) -> None:
        body = {
            "assistant_id": "remembering",
            "input": {"messages": [{"role": "user", "content": f"{who} is here"}]},
            "config": {"configurable": {"history_key": key, "clew_user": "somebody", "clew_tenant": "rival"}},
        }
        await self.ask(who, "POST", "/runs/wait", json=body)

    async def kept(self) -> list[tuple[str, str, str]]:
        rows = await query(self.database, "SELECT tenant, user_id, path FROM histories ORDER BY tenant, path")
        return [(tenant, user, path.split(".")[-2]) for tenant, user, path in rows]


@pytest.fixture
async def callers(tmp_path: Path) -> AsyncGenerator[Callers]:
    (tmp_path / "clew.yaml").write_text("graphs:\n  remembering: tests.channel_graphs:remembering\n")
    async with opened_app(tmp_path, CLEW_RUNNER_POLL_SECONDS="0.1", CLEW_AUTH="keys") as app:
        clients = {
            name: client_of(app.http, await new_key(app.stores.keys, owner=owner))
            for name, owner in OWNERS.items()
        }
        yield Callers(clients, app.stores.db)
        for client in clients.values():
            await client.aclose()


async def test_the_memory_of_a_user_and_of_a_tenant_can_be_deleted(callers: Callers) -> None:
    for who, key in (("ann", "a"), ("ann", "b"), ("bob", "c"), ("acme", "d"), ("rival", "a")):
        await callers.talk(who, key)
    assert await callers.kept() == [
        *(("acme", "", "d"), ("acme", "ann", "a"), ("acme", "ann", "b"), ("acme", "bob", "c")),
        ("rival", "", "a"),
    ]
    for wrong in ("", "?user=ann&all=true"):
        await callers.ask("acme", "DELETE", f"/api/histories{wrong}", 400)
    assert await callers.ask("acme", "DELETE", "/api/histories?user=ann") == {"deleted": 2}
    assert await callers.ask("bob", "DELETE", "/api/histories") == {"deleted": 1}
    assert await callers.kept() == [("acme", "", "d"), ("rival", "", "a")]
    assert await callers.ask("acme", "DELETE", "/api/histories?all=true") == {"deleted": 1}
    assert await callers.kept() == [("rival", "", "a")]


async def test_a_caller_reaches_the_histories_of_its_tenant_alone(callers: Callers) -> None:
    push = {"content": "Your parcel has arrived."}
    await callers.ask("acme", "POST", "/api/histories/room/messages", json=push)
    shown = await callers.ask("acme", "GET", "/api/histories/room")
    assert shown["messages"] == [{"seq": 1, "role": "assistant", "content": "Your parcel has arrived."}]
    await callers.ask("rival", "GET", "/api/histories/room", 404)
    await callers.ask("rival", "DELETE", "/api/histories/room", 404)
    await callers.ask("ann", "GET", "/api/histories/room", 404)
    await callers.ask("ann", "DELETE", "/api/histories/room", 404)
    await callers.ask("acme", "GET", "/api/histories/not%20a%20key", 400)
    await callers.ask("acme", "GET", "/api/histories/room?namespace=..", 400)
    assert len((await callers.ask("acme", "GET", "/api/histories/room"))["messages"]) == 1


async def test_a_key_of_one_user_is_that_persons_in_histories_and_in_the_store(callers: Callers) -> None:
    """Another user's words and items are neither read nor overwritten: not by HTTP, not by the graph of a run."""
    for who in ("ann", "bob", "acme"):
        await callers.talk(who, "room")
        await callers.ask(who, "POST", "/api/histories/room/messages", json={"content": f"psst, {who}"})
        item = {"namespace": ["notes"], "key": "mine", "value": {"of": who}}
        assert (await callers.clients[who].put("/store/items", json=item)).status_code == 204
    for who in ("ann", "bob", "acme"):
        said = [one["content"] for one in (await callers.ask(who, "GET", "/api/histories/room"))["messages"]]
        assert (said[0], said[-1]) == (f"{who} is here", f"psst, {who}")
        assert not [one for one in said for other in {"ann", "bob", "acme"} - {who} if other in one]
        found = await callers.ask(who, "GET", "/store/items?namespace=notes&key=mine")
        assert (found["namespace"], found["value"]) == (["notes"], {"of": who})
    for who in ("ann", "bob"):
        items = (await callers.ask(who, "POST", "/store/items/search", json={"limit": 100}))["items"]
        assert {tuple(one["namespace"]) for one in items} == {("notes",), ("agent_chat_history", "room")}
        spaces = await callers.ask(who, "POST", "/store/namespaces", json={})
        assert sorted(spaces["namespaces"]) == [["agent_chat_history", "room"], ["notes"]]
        other = "bob" if who == "ann" else "ann"
        for reach in (f"clew:user:{other}.notes", f"..clew:user:{other}.notes", "*.notes"):
            answer = await callers.clients[who].get(f"/store/items?namespace={reach}&key=mine")
            assert answer.status_code == 422 or answer.json() is None
    whole = await callers.ask("acme", "GET", "/store/items?namespace=clew:user:ann.notes&key=mine")
    assert whole["value"] == {"of": "ann"}, "a key without a user sees the whole tenant"
    await callers.clients["ann"].request(
        "DELETE", "/store/items", json={"namespace": ["notes"], "key": "mine"}
    )
    assert await callers.ask("ann", "GET", "/store/items?namespace=notes&key=mine") is None
    assert await callers.ask("bob", "GET", "/store/items?namespace=notes&key=mine") is not None


async def test_a_deleted_users_and_a_deleted_tenants_memory_goes_with_them(callers: Callers) -> None:
    for who in ("ann", "bob", "acme", "rival"):
        await callers.talk(who, "room")
        item = {"namespace": ["notes"], "key": "mine", "value": {"of": who}}
        assert (await callers.clients[who].put("/store/items", json=item)).status_code == 204

    async def left() -> tuple[int, list[Any]]:
        items = await query(callers.database, "SELECT value FROM store_items")
        return len(await callers.kept()), sorted(json.loads(value)["of"] for (value,) in items)

    await callers.ask("acme", "DELETE", "/api/threads?user_id=ann")
    assert await left() == (3, ["acme", "bob", "rival"])
    await callers.ask("acme", "DELETE", "/api/threads?tenant=acme")
    assert await left() == (1, ["rival"])


async def test_a_message_pushed_into_a_namespace_is_read_there(callers: Callers) -> None:
    path = "/api/histories/room/messages?namespace=sales.notes"
    await callers.ask("acme", "POST", path, json={"content": "hello", "role": "user", "id": "1"})
    await callers.ask("acme", "POST", path, json={"content": "hello", "role": "user", "id": "1"})
    shown = await callers.ask("acme", "GET", "/api/histories/room?namespace=sales.notes")
    assert [(one["role"], one["content"]) for one in shown["messages"]] == [("user", "hello")]
    await callers.ask("acme", "GET", "/api/histories/room", 404)
