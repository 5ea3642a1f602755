"""`clew.delete_by_tenant` and `clew.delete_by_user`, for those who have the database and no server."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import clew
from clew.config import load_settings
from clew.domain.errors import Invalid, InvalidState, NotFound
from clew.domain.events import AssistantMessage
from clew.domain.retention import CleanupJob, selection
from clew.domain.thread import Owner
from clew.ports.histories import HistoryId, NewMessage, Shape
from clew.server.database import open_stores
from clew.stores.sql.cleanup import CleanupRows
from clew.stores.sql.histories import HistoryRows
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
            used = AssistantMessage(content="hi", tokens_in=1, model="m")
            await store.commit(recorded(first.thread, used, asks(), waits(deadline=NOW + timedelta(days=9))))
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
        users = await query(db, "SELECT user_id FROM token_usage WHERE tenant = 'acme' ORDER BY user_id")
        assert [row[0] for row in users] == ["", "bob"]
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


async def test_memory_of_a_thread_in_a_database_of_its_own_goes_with_the_thread(tmp_path: Path) -> None:
    more = {"CLEW_GRAPH_STORE_BACKEND": "sqlite", "CLEW_GRAPH_STORE_SQLITE_PATH": str(tmp_path / "store.db")}
    url = f"sqlite:///{tmp_path}/clew.db"
    async with (
        opened_app(tmp_path, CLEW_DATABASE_URL=url, **more) as app,
        client_of(app.http) as http,
        open_database(str(tmp_path / "store.db")) as second,
    ):
        histories = HistoryRows(second)

        async def remember(thread_id: str) -> int:
            place = HistoryId(namespace=("chat",), key=thread_id)
            message = NewMessage(role="user", content="a secret")
            return await histories.append(place, [message], shape=Shape(), thread_id=thread_id)

        async def left() -> set[str]:
            return {row[0] for row in await query(second, "SELECT thread_id FROM histories")}

        body = {"prompt": "hi", "hold": True}
        ids = [(await http.post("/api/workflows/start", json=body)).json()["id"] for _ in range(3)]
        for one in ids:
            await remember(one)
        assert (await http.delete(f"/api/threads/{ids[0]}")).status_code == 200
        async with asyncio.timeout(20):
            while await left() != {*ids[1:]}:
                await asyncio.sleep(0.05)
        assert await query(second, "SELECT count(*) FROM history_messages") == [(2,)]
        with pytest.raises(NotFound):
            await remember(ids[0])  # a run that goes on after the deletion
        await remember(ids[1])
        assert (await http.delete(f"/api/threads/{ids[1]}?soft=true")).status_code == 200
    # Deleted while no server runs.
    environ = {"CLEW_DATABASE_URL": url, **more}
    async with open_stores(load_settings(environ, cwd=tmp_path)) as stores:
        await stores.threads.tombstone(ids[2], now=NOW)
        await stores.threads.purge(only=ids[2])
    async with opened_app(tmp_path, **environ), open_database(str(tmp_path / "store.db")) as second:
        async with asyncio.timeout(20):
            while await query(second, "SELECT thread_id FROM histories") != [(ids[1],)]:
                await asyncio.sleep(0.05)
