"""Threads of other tenants: an operator lists and counts them, without what people wrote."""

from pathlib import Path

import pytest

from clew.domain.thread import Owner
from tests.http_client import client_of, new_key, opened_app
from tests.samples import opened

pytestmark = pytest.mark.anyio


async def test_an_operator_lists_threads_of_another_tenant_without_their_texts(tmp_path: Path) -> None:
    async with opened_app(tmp_path, CLEW_AUTH="keys") as app:
        for tenant in ("a", "b"):
            owner = Owner(tenant=tenant, user_id="ann")
            await app.stores.threads.commit(opened(f"t-{tenant}", owner=owner, held=True))
        keys = {
            tenant: await new_key(app.stores.keys, owner=Owner(tenant=tenant), scopes=frozenset(scopes))
            for tenant, scopes in (("a", {"read"}), ("ops", {"read", "operator"}))
        }
        ann, root = client_of(app.http, keys["a"]), client_of(app.http, keys["ops"])
        for path in ("/api/threads", "/api/threads/counts"):
            for tenant in ("b", "*"):
                assert (await ann.get(path, params={"tenant": tenant})).status_code == 403
            assert (await ann.get(path, params={"tenant": "a"})).json() == (await ann.get(path)).json()
        assert [one["name"] for one in (await ann.get("/api/threads")).json()["threads"]] == ["a name"]
        (listed,) = (await root.get("/api/threads", params={"tenant": "b", "user": "ann"})).json()["threads"]
        assert (listed["id"], listed["name"], listed["pending"]) == ("t-b", "", {})
        every = (await root.get("/api/threads", params={"tenant": "*"})).json()["threads"]
        assert {one["id"] for one in every} == {"t-a", "t-b"}
        counted = (await root.get("/api/threads/counts", params={"tenant": "*"})).json()
        assert counted == {"byStatus": {"pending": 2}}
        assert (await root.get("/api/threads", params={"tenant": "*", "user": "ann"})).status_code == 400
        assert (await root.get("/api/threads/t-b")).status_code == 404
