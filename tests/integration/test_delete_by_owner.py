"""`clew.delete_by_tenant` and `clew.delete_by_user`, for those who have the database and no server."""

from datetime import timedelta
from pathlib import Path

import pytest

import clew
from clew.domain.errors import Invalid, InvalidState
from clew.domain.retention import CleanupJob, selection
from clew.domain.thread import Owner
from clew.stores.sql.cleanup import CleanupRows
from tests.databases import open_database, open_store, query
from tests.http_client import client_of, opened_app
from tests.samples import NOW, asks, opened, recorded, waits

pytestmark = [pytest.mark.anyio, pytest.mark.accept("002-39")]


def url_of(where: str) -> str:
    return where if where.startswith("postgres") else f"sqlite:///{Path(where).resolve()}"


async def test_a_user_and_a_tenant_go_and_the_count_is_returned(where: str) -> None:
    async with open_database(where) as db:
        store = open_store(db)
        for thread_id, tenant, user in (
            ("a1", "acme", "ann"),
            ("a2", "acme", "ann"),
            ("b1", "acme", "bob"),
            ("n1", "acme", ""),
            ("r1", "rival", "ann"),
            ("d1", "default", ""),
        ):
            first = opened(thread_id, owner=Owner(tenant=tenant, user_id=user))
            await store.commit(first)
            await store.commit(recorded(first.thread, asks(), waits(deadline=NOW + timedelta(days=9))))
        # A row that cannot be read goes as well.
        await query(db, "UPDATE threads SET settings = '{', stats = '{' WHERE id = 'a2'")

        async def left() -> list[str]:
            rows = await query(db, "SELECT id FROM threads ORDER BY id")
            return [row[0] for row in rows]

        url = url_of(where)
        for wrong in ("", "  "):
            with pytest.raises(Invalid, match="is needed"):
                await clew.delete_by_tenant(url, wrong)
            with pytest.raises(Invalid, match="is needed"):
                await clew.delete_by_user(url, wrong, tenant="acme")
            with pytest.raises(Invalid, match="is needed"):
                await clew.delete_by_user(url, "ann", tenant=wrong)
        assert await clew.delete_by_user(url, "ann") == 0, "nobody of the default tenant"
        assert await left() == ["a1", "a2", "b1", "d1", "n1", "r1"]
        assert await clew.delete_by_user(url, "ann", tenant="acme") == 2
        assert await clew.delete_by_user(url, "ann", tenant="acme") == 0
        assert await left() == ["b1", "d1", "n1", "r1"]
        assert await clew.delete_by_tenant(url, "acme") == 2
        assert await left() == ["d1", "r1"]
        for table in ("events", "tool_calls"):
            rows = await query(db, f"SELECT DISTINCT thread_id FROM {table} ORDER BY thread_id")
            assert [row[0] for row in rows] == ["d1", "r1"]


async def test_beside_another_cleanup_it_is_refused_and_not_forgotten(where: str) -> None:
    async with open_database(where) as db:
        await open_store(db).commit(opened("a1"))
        rows = CleanupRows(db)
        job = CleanupJob(id="j1", selection=selection(now=NOW, days_old=None), started_at=NOW)
        assert await rows.begin(job, runner="r1", lease=timedelta(minutes=1))
        with pytest.raises(InvalidState, match="under way"):
            await clew.delete_by_tenant(url_of(where), "acme")
        await rows.release(job, runner="r1", finished_at=NOW)
        assert await clew.delete_by_tenant(url_of(where), "acme") == 1


async def test_memory_in_a_database_of_its_own_goes_with_its_tenant(tmp_path: Path) -> None:
    more = {"CLEW_GRAPH_STORE_BACKEND": "sqlite", "CLEW_GRAPH_STORE_SQLITE_PATH": str(tmp_path / "store.db")}
    url = f"sqlite:///{tmp_path}/clew.db"
    async with opened_app(tmp_path, CLEW_DATABASE_URL=url, **more) as app, client_of(app.http) as http:
        pushed = await http.post("/api/histories/telegram:1/messages", json={"content": "a secret"})
        assert pushed.status_code == 200
        item = {"namespace": ["n"], "key": "k", "value": {}}
        assert (await http.put("/store/items", json=item)).status_code == 204
        assert (await http.delete("/api/threads?tenant=default")).status_code == 200
        assert (await http.get("/api/histories/telegram:1")).status_code == 404
        assert (await http.post("/store/items/search", json={})).json()["items"] == []
