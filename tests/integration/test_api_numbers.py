"""Tenants and users by their numbers, wherever the native API takes or shows one."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.thread import Owner
from clew.server.app import Server
from tests.http_client import client_of, new_key, opened_app

pytestmark = [pytest.mark.anyio, pytest.mark.accept("004-7")]

CLEANUP = {"X-API-Key": "a-secret-of-the-cleanup"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with opened_app(tmp_path, CLEW_AUTH="keys", CLEANUP_API_KEY=CLEANUP["X-API-Key"]) as server:
        yield server


async def ask(client: httpx.AsyncClient, method: str, path: str, status: int = 200, **more: Any) -> Any:
    answer = await client.request(method, path, **more)
    assert answer.status_code == status, (path, answer.text)
    return answer.json()


async def test_an_owner_is_known_by_its_numbers_wherever_its_names_are(server: Server) -> None:
    # A user whose name looks like a number is a name where names are taken.
    owners = [Owner(tenant="acme", user_id=user) for user in ("ann", "1")] + [
        Owner(tenant="rival", user_id="ann")
    ]
    clients = [client_of(server.http, await new_key(server.stores.keys, owner=owner)) for owner in owners]
    whole = client_of(server.http, await new_key(server.stores.keys, owner=Owner(tenant="acme")))
    plain = frozenset({"read", "write", "admin"})
    tenant = client_of(
        server.http, await new_key(server.stores.keys, owner=Owner(tenant="acme"), scopes=plain)
    )
    (mandate, ann), (_, odd), (rival, stranger) = numbers = [
        (
            (one := await ask(client, "POST", "/api/workflows/start", json={"prompt": "hi", "hold": True}))[
                "mandateId"
            ],
            one["userId"],
        )
        for client in clients
    ]
    assert len({number for pair in numbers for number in pair}) == 5, "one number a tenant, one a user"

    threads = (await ask(whole, "GET", "/api/threads"))["threads"]
    entries = (await ask(whole, "GET", "/api/audit"))["entries"]
    for shown in (*threads, *entries, await ask(whole, "GET", f"/api/threads/{threads[0]['id']}")):
        owner = (shown["mandateId"], shown["userId"], shown["tenant"], shown["user"])
        assert owner in {(mandate, ann, "acme", "ann"), (mandate, odd, "acme", "1")}

    for one in (f"userId={ann}", f"mandateId={mandate}&userId={ann}", "user=ann", f"user=ann&userId={ann}"):
        assert {each["user"] for each in (await ask(tenant, "GET", f"/api/audit?{one}"))["entries"]} == {
            "ann"
        }
    assert {each["userId"] for each in (await ask(tenant, "GET", "/api/audit?user=1"))["entries"]} == {odd}
    found = await ask(whole, "GET", f"/api/audit?mandateId={rival}&userId={stranger}")
    assert {each["tenant"] for each in found["entries"]} == {"rival"}
    for path in ("/api/audit", "/api/threads", "/api/histories"):
        method = "GET" if path == "/api/audit" else "DELETE"
        for number in (stranger, mandate, 2**40):
            await ask(tenant, method, f"{path}?userId={number}", 404)
        for wrong in ("0", "-1", "ann", str(2**60)):
            await ask(tenant, method, f"{path}?userId={wrong}", 400)
    await ask(tenant, "GET", f"/api/audit?mandateId={rival}", 404)
    await ask(whole, "GET", f"/api/audit?tenant=*&userId={ann}", 400)
    await ask(tenant, "DELETE", f"/api/threads?mandateId={rival}", 404)
    await ask(tenant, "DELETE", f"/api/threads?user_id=1&userId={ann}", 400)

    for client in clients:
        await ask(client, "POST", "/api/histories/telegram:1/messages", json={"content": "hi"})
    assert await ask(tenant, "DELETE", f"/api/histories?userId={ann}") == {"deleted": 1}
    assert await ask(tenant, "DELETE", "/api/histories?user=1") == {"deleted": 1}

    cleanup = "/api/optimize/cleanup?days_old=1&dry_run=true"
    async with client_of(server.http, **CLEANUP) as cron:
        preserved = [
            (await ask(cron, "POST", f"{cleanup}&{one}"))["preserved"]
            for one in (
                f"mandateId={mandate}",
                f"mandateId={mandate}&userId={ann}",
                f"tenant=acme&userId={odd}",
                "",
            )
        ]
        assert preserved == [2, 1, 1, 3]
        await ask(cron, "POST", f"{cleanup}&userId={ann}", 404)  # not of the default tenant
        await ask(cron, "POST", f"{cleanup}&tenant=rival&mandateId={mandate}", 400)

    assert (await ask(tenant, "DELETE", f"/api/threads/{threads[0]['id']}?soft=true"))["status"] == "deleted"
    (binned,) = (await ask(tenant, "GET", "/api/threads/deleted"))["threads"]
    assert (binned["mandateId"], binned["userId"]) == (threads[0]["mandateId"], threads[0]["userId"])
    await ask(tenant, "POST", f"/api/threads/{threads[0]['id']}/undelete")
    assert (await ask(tenant, "DELETE", f"/api/threads?userId={ann}"))["deleted"] == 1
    assert (await ask(tenant, "DELETE", f"/api/threads?mandateId={mandate}"))["deleted"] == 1
    assert len((await ask(clients[2], "GET", "/api/threads"))["threads"]) == 1
    for client in (*clients, whole, tenant):
        await client.aclose()
