"""The audit trail: who did what, in the answer of one endpoint."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.errors import Unavailable
from clew.domain.thread import Owner
from clew.server.app import Server
from tests.http_client import client_of, new_key, opened_app
from tests.samples import ANN

pytestmark = pytest.mark.anyio

BOB = Owner(tenant=ANN.tenant, user_id="bob")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with opened_app(tmp_path, CLEW_AUTH="keys") as server:
        yield server


async def trail(client: httpx.AsyncClient, **params: str) -> list[dict[str, Any]]:
    answer = await client.get("/api/audit", params=params)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["entries"])


async def test_changes_reads_and_refusals_are_recorded_with_their_caller(server: Server) -> None:
    key = await new_key(server.stores.keys)
    reader = await new_key(server.stores.keys, scopes=frozenset({"read"}))
    async with client_of(server.http, key) as ann, client_of(server.http, reader) as weak:
        started = (await ann.post("/api/workflows/start", json={"prompt": "hi", "hold": True})).json()["id"]
        for _ in range(3):
            await ann.get(f"/api/workflows/{started}")
        assert (await weak.post(f"/api/workflows/{started}/approve")).status_code == 403
        assert (await ann.get(f"/api/threads/{started}/export")).status_code == 200
        assert (await ann.delete(f"/api/workflows/{started}")).status_code == 200
        found = await trail(ann, threadId=started)
    assert [(one["action"], one["status"]) for one in found] == [
        ("delete_workflow", 200),
        ("export_thread", 200),
        ("approve", 403),
        ("get_workflow", 200),
        ("start_workflow", 200),
    ]
    assert {one["tenant"] for one in found} == {ANN.tenant}
    assert {one["user"] for one in found} == {ANN.user_id}
    assert len({one["actor"] for one in found}) == 2
    assert all(one["requestId"] and "prompt" not in str(one) for one in found)


async def test_one_tenant_never_sees_anothers_entries(server: Server) -> None:
    one, other = Owner(tenant="one"), Owner(tenant="other")
    everything = frozenset({"read", "write", "admin"})
    mine = await new_key(server.stores.keys, owner=one, scopes=everything)
    theirs = await new_key(server.stores.keys, owner=other, scopes=everything)
    operator = await new_key(server.stores.keys, owner=one, scopes=frozenset({"admin", "operator"}))
    async with (
        client_of(server.http, mine) as me,
        client_of(server.http, theirs) as they,
        client_of(server.http, operator) as op,
    ):
        for client in (me, they):
            await client.post("/api/workflows/start", json={"prompt": "hi", "hold": True})
        assert {entry["tenant"] for entry in await trail(me)} == {"one"}
        assert (await me.get("/api/audit", params={"tenant": "other"})).status_code == 403
        assert (await me.get("/api/audit", params={"tenant": "*"})).status_code == 403
        assert {entry["tenant"] for entry in await trail(op, tenant="*")} == {"one", "other"}
        assert {entry["tenant"] for entry in await trail(op, tenant="other")} == {"other"}


async def test_a_key_of_one_user_sees_that_users_entries_only(server: Server) -> None:
    ann, bob = await new_key(server.stores.keys), await new_key(server.stores.keys, owner=BOB)
    async with client_of(server.http, ann) as first, client_of(server.http, bob) as second:
        for client in (first, second):
            await client.post("/api/workflows/start", json={"prompt": "hi", "hold": True})
        assert {one["user"] for one in await trail(second, user=ANN.user_id)} == {BOB.user_id}


async def test_pages_lead_to_the_first_entry(server: Server) -> None:
    key = await new_key(server.stores.keys)
    async with client_of(server.http, key) as ann:
        for _ in range(5):
            await ann.post("/api/workflows/start", json={"prompt": "hi", "hold": True})
        ids: list[str] = []
        before: str | None = ""
        while before is not None:
            page = (await ann.get("/api/audit", params={"limit": "2", "before": before})).json()
            ids += [one["id"] for one in page["entries"]]
            before = page["next"]
    assert len(ids) == len(set(ids)) == 5
    assert ids == sorted(ids, reverse=True)


async def test_a_database_that_is_away_for_a_moment_loses_no_entry(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await new_key(server.stores.keys)
    real = server.stores.audit_trail.add
    refused = 0

    async def add(entries: Any) -> None:
        nonlocal refused
        if refused < 1:
            refused += 1
            raise Unavailable("away")
        await real(entries)

    monkeypatch.setattr(type(server.stores.audit_trail), "add", lambda _, entries: add(entries))
    async with client_of(server.http, key) as ann:
        assert (
            await ann.post("/api/workflows/start", json={"prompt": "hi", "hold": True})
        ).status_code == 200
        assert [one["action"] for one in await trail(ann)] == ["start_workflow"]
    assert refused == 1


async def test_this_machine_without_keys_is_not_recorded_unless_asked_for(tmp_path: Path) -> None:
    for record, actors in (("auto", []), ("always", ["local"]), ("never", [])):
        async with opened_app(tmp_path, CLEW_AUDIT_RECORD=record) as server, client_of(server.http) as client:
            await client.post("/api/workflows/start", json={"prompt": "hi", "hold": True})
            assert [one["actor"] for one in await trail(client)] == actors
