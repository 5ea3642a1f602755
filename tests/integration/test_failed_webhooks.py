"""Webhooks that were given up, through HTTP: listed by tenant, called again, dismissed."""

from pathlib import Path

import pytest

from clew.domain.records import RunHook
from clew.domain.thread import Owner
from clew.stores.sql.run_hooks import RunHookRows
from tests.http_client import client_of, new_key, opened_app
from tests.samples import opened

pytestmark = pytest.mark.anyio

ADMIN = frozenset({"read", "write", "admin"})


async def test_an_admin_sees_those_of_the_tenant_without_the_secret_part_of_their_address(
    tmp_path: Path,
) -> None:
    async with opened_app(tmp_path, CLEW_AUTH="keys") as app:
        hooks = RunHookRows(app.stores.db)
        clients = {}
        for tenant in ("a", "b"):
            owner = Owner(tenant=tenant)
            hook = RunHook(
                run_id=f"run-{tenant}", thread_id=tenant, webhook="https://hooks.example/T0/secret?k=1"
            )
            await app.stores.threads.commit(opened(tenant, owner=owner, held=True), hook)
            await hooks.give_up(hook, reason="answered 500")
            clients[tenant] = client_of(app.http, await new_key(app.stores.keys, owner=owner, scopes=ADMIN))
        answer = await clients["a"].get("/api/webhooks/failed")
        (one,) = answer.json()["webhooks"]
        assert (one["runId"], one["url"], one["reason"]) == ("run-a", "https://hooks.example", "answered 500")
        assert "secret" not in answer.text
        assert (await clients["a"].get("/api/webhooks/failed?tenant=*")).status_code == 403
        assert (await clients["a"].post("/api/webhooks/run-b/retry")).status_code == 404
        assert (await clients["a"].delete("/api/webhooks/run-b")).status_code == 404
        again = await clients["a"].post("/api/webhooks/run-a/retry")
        assert again.json() == {"runId": "run-a", "status": "due"}
        assert (await clients["a"].get("/api/webhooks/failed")).json() == {"webhooks": []}
        assert (await clients["b"].delete("/api/webhooks/run-b")).status_code == 204
        operator = await new_key(app.stores.keys, owner=Owner(tenant="ops"), scopes=ADMIN | {"operator"})
        assert (await client_of(app.http, operator).get("/api/webhooks/failed?tenant=*")).json() == {
            "webhooks": []
        }
