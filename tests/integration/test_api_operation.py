"""What operators see and change over HTTP: keys, the caller's rights, recent metrics, settings, broken graphs."""

from collections.abc import AsyncGenerator, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.thread import Owner
from clew.server.app import Server
from clew.telemetry import Metrics
from clew.telemetry.recent import RecentMetrics, quantile_of
from tests.http_client import client_of, new_key, opened_app
from tests.samples import ANN, NOW
from tests.waiting import until

pytestmark = pytest.mark.anyio

ADMIN = frozenset({"read", "write", "admin"})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    (tmp_path / "clew.yaml").write_text("graphs:\n  lost: nowhere.at:all\n")
    async with opened_app(tmp_path, CLEW_AUTH="keys", CLEW_CLEANUP_API_KEY="hush-hush") as server:
        yield server


async def test_a_key_is_created_shown_once_used_and_revoked(server: Server) -> None:
    admin = await new_key(server.stores.keys, owner=Owner(tenant="acme"), scopes=ADMIN)
    async with client_of(server.http, admin) as client:
        body = {"name": "bot", "scopes": ["read"], "user": "bob", "expiresDays": 7}
        created = await client.post("/api/keys", json=body)
        assert created.status_code == 200
        made = created.json()
        assert (made["tenant"], made["user"], made["scopes"]) == ("acme", "bob", ["read"])
        listed = (await client.get("/api/keys")).json()["keys"]
        assert [one["name"] for one in listed] == ["a test", "bot"]
        assert all("key" not in one and "hash" not in one for one in listed)
        async with client_of(server.http, made["key"]) as bot:
            me = (await bot.get("/api/me")).json()
            assert me == {"tenant": "acme", "user": "bob", "keyId": made["id"], "scopes": ["read"]}
            assert (await bot.get("/api/keys")).status_code == 403
            assert (await client.delete(f"/api/keys/{made['id']}")).json()["state"] == "revoked"
            # The server asks the database again after two seconds.
            await until(lambda: _status(bot.get("/api/me"), 401))


async def _status(request: Coroutine[Any, Any, httpx.Response], wanted: int) -> bool:
    return (await request).status_code == wanted


async def test_no_key_grants_more_than_its_creator_has(server: Server) -> None:
    admin = await new_key(server.stores.keys, owner=Owner(tenant="acme"), scopes=ADMIN)
    ann = await new_key(server.stores.keys, owner=ANN, scopes=ADMIN)
    other = await new_key(server.stores.keys, owner=Owner(tenant="other"))
    async with client_of(server.http, admin) as client, client_of(server.http, ann) as of_ann:
        for body, status in (
            ({"name": "x", "scopes": ["operator"]}, 403),
            ({"name": "x", "tenant": "other"}, 403),
            ({"name": "x", "scopes": ["everything"]}, 400),
            ({"name": "x", "scopes": []}, 400),
            ({"name": "two\nlines"}, 400),
            ({"name": ""}, 400),
            ({"name": "x", "user": "a\tb"}, 400),
            ({"name": "x"}, 403),  # the usual scopes include `approve`
            ({"name": "x", "expiresDays": 0}, 400),
        ):
            assert (await client.post("/api/keys", json=body)).status_code == status, body
        assert (await client.get("/api/keys", params={"tenant": "*"})).status_code == 403
        assert (
            await of_ann.post("/api/keys", json={"name": "x", "user": "bob", "scopes": ["read"]})
        ).status_code == 400
        made = (await of_ann.post("/api/keys", json={"name": "x", "scopes": ["read"]})).json()
        assert made["user"] == ANN.user_id
        theirs = (await server.stores.keys.find(Owner(tenant="other")))[0].id
        assert (await client.delete(f"/api/keys/{theirs}")).status_code == 404
    async with client_of(server.http, other) as operator:
        keys = (await operator.get("/api/keys", params={"tenant": "*"})).json()["keys"]
        assert {key["tenant"] for key in keys} == {"acme", ANN.tenant, "other"}
        assert (await operator.post("/api/keys", json={"name": "x", "tenant": "acme"})).status_code == 200


async def test_operators_see_settings_without_secrets_and_why_a_graph_is_broken(server: Server) -> None:
    operator = await new_key(server.stores.keys)
    reader = await new_key(server.stores.keys, scopes=frozenset({"read"}))
    async with client_of(server.http, operator) as client, client_of(server.http, reader) as other:
        answer = await client.get("/api/settings")
        settings = {one["key"]: one for one in answer.json()["settings"]}
        assert settings["cleanup.api_key"]["value"] == "set"
        assert settings["cleanup.api_key"]["source"] == "CLEW_CLEANUP_API_KEY"
        assert "hush-hush" not in answer.text
        assert (await other.get("/api/settings")).status_code == 403
        found = (await client.get("/api/graphs")).json()
        assert [one["name"] for one in found["broken"]] == ["lost"]
        assert "nowhere" in found["broken"][0]["reason"]
        assert found["profiles"]
        assert (await other.get("/api/graphs")).json()["broken"] == []


async def test_threads_are_listed_by_activity_time_and_user(server: Server) -> None:
    admin = await new_key(server.stores.keys, owner=Owner(tenant=ANN.tenant))
    ann = await new_key(server.stores.keys, owner=ANN)
    async with client_of(server.http, admin) as client, client_of(server.http, ann) as of_ann:
        hers = (await of_ann.post("/api/workflows/start", json={"prompt": "hi", "hold": True})).json()["id"]
        ours = [
            (await client.post("/api/workflows/start", json={"prompt": "hi", "hold": True})).json()["id"]
            for _ in range(2)
        ]
        await of_ann.post(f"/api/workflows/{hers}/stop")

        async def listed(**params: str) -> list[str]:
            answer = await client.get("/api/threads", params=params)
            assert answer.status_code == 200, answer.text
            return [one["id"] for one in answer.json()["threads"]]

        assert await listed() == [*reversed(ours), hers]
        assert await listed(sort="activity") == [hers, *reversed(ours)]
        page = (await client.get("/api/threads", params={"sort": "activity", "limit": "2"})).json()
        assert await listed(sort="activity", cursor=page["next"]) == [ours[0]]
        assert await listed(user=ANN.user_id) == [hers]
        assert await listed(activeSince="2100-01-01T00:00:00Z") == []
        assert await listed(activeUntil="2000-01-01T00:00:00Z") == []
        assert (await of_ann.get("/api/threads", params={"user": "bob"})).status_code == 400
        for wrong in ("9999-12-31T23:59:59-14:00", "yesterday", "2026-01-01T00:00:00"):
            assert (await client.get("/api/threads", params={"activeSince": wrong})).status_code == 400


async def test_recent_metrics_count_minutes_and_estimate_quantiles(server: Server) -> None:
    now = NOW
    metrics = Metrics()
    recent = RecentMetrics(metrics, lambda: now)
    recent.sample(1)
    assert len(recent.points()) == 1
    for minute in range(2):
        metrics.rounds.labels("agent", "completed").inc(3)
        metrics.rounds.labels("agent", "failed").inc(minute)
        for seconds in (0.2, 0.3, 20):
            metrics.round_seconds.labels("agent").observe(seconds)
        metrics.http_requests.labels("GET", "/", "503").inc()
        now += timedelta(minutes=1)
        recent.sample(7)
    first, second, under_way = recent.points()
    assert [(one.rounds, one.failed_rounds, one.errors) for one in (first, second)] == [(3, 0, 1), (4, 1, 1)]
    assert first.round_p50 is not None
    assert 0.1 < first.round_p50 < 0.5 < (first.round_p95 or 0) <= 30
    assert (second.seconds, second.waiting, under_way.rounds, under_way.round_p50) == (60, 7, 0, None)
    assert quantile_of([(1, 0), (2, 10), (float("inf"), 10)], 0.5) == 1.5
    assert quantile_of([(1, 0), (float("inf"), 10)], 0.5) == 1
    key = await new_key(server.stores.keys)
    async with client_of(server.http, key) as client:
        points = (await client.get("/api/metrics/recent")).json()["points"]
        assert points[-1]["rounds"] == 0
