"""A tenant learns nothing of the ids that another one uses: every answer is the same as for a free one."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from clew.domain.thread import Owner
from clew.server.app import Server
from tests.databases import SHARED, locate, query
from tests.http_client import client_of, new_key, opened_app
from tests.samples import ANN

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

RIVAL = Owner(tenant="rival", user_id="ann")
GRAPH = """
import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict, total=False):
    words: Annotated[list[str], operator.add]


def say(state: State):
    return {"words": ["said"]}


graph = StateGraph(State).add_node(say).add_edge(START, "say")
"""
# What differs between any two threads.
VARIES = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)|[0-9a-f]{32}"
    r"|\"(?:milliseconds|bytes)\":\d+"
)


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    located = locate(request.param, request)
    return located if request.param == "postgres" else f"sqlite:///{located}"


@pytest.fixture
async def app(where: str, tmp_path: Path) -> AsyncGenerator[Server]:
    (tmp_path / "flows.py").write_text(GRAPH)
    (tmp_path / "clew.yaml").write_text("graphs:\n  echo: ./flows.py:graph\n")
    async with opened_app(tmp_path, CLEW_DATABASE_URL=where) as app:
        yield app


@pytest.fixture
async def ann(app: Server) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(app.http, await new_key(app.stores.keys, owner=ANN)) as client:
        client.timeout = httpx.Timeout(60)
        yield client


@pytest.fixture
async def rival(app: Server) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(app.http, await new_key(app.stores.keys, owner=RIVAL)) as client:
        client.timeout = httpx.Timeout(60)
        yield client


class Walk:
    """All that one caller does with one id, and what it is answered."""

    def __init__(self, client: httpx.AsyncClient, thread_id: str) -> None:
        self._client = client
        self.id = thread_id
        self.answers: list[tuple[str, int, str, Any]] = []

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        path = path.format(id=self.id)
        answer = await self._client.request(method, path, json=body)
        text = answer.text
        assert "~" not in text
        assert "~" not in "".join(answer.headers.values())
        headers = {
            name: VARIES.sub("?", value)
            for name, value in answer.headers.items()
            if name not in ("x-request-id", "content-length", "etag", "date")
        }
        if "content-length" in answer.headers:
            assert int(answer.headers["content-length"]) == len(answer.content)
        seen = text.replace(self.id, "<chosen>")
        self.answers.append(
            (f"{method} {path.replace(self.id, '?')}", answer.status_code, VARIES.sub("?", seen), headers)
        )
        return answer

    async def make(self) -> None:
        await self.ask("GET", "/threads/{id}")
        await self.ask("POST", "/threads", {"thread_id": self.id, "metadata": {"mine": 1}})
        await self.ask("POST", "/threads", {"thread_id": self.id})
        await self.ask("POST", "/threads", {"thread_id": self.id, "if_exists": "do_nothing"})

    async def use(self) -> None:
        run = {"assistant_id": "echo", "input": {"words": ["hi"]}, "if_not_exists": "create"}
        await self.ask("POST", "/threads/{id}/runs/wait", run)
        await self.ask("POST", "/threads/{id}/runs/stream", run)
        for path in ("/threads/{id}", "/threads/{id}/state", "/threads/{id}/runs"):
            await self.ask("GET", path)
        await self.ask("POST", "/threads/{id}/history", {})
        await self.ask("PATCH", "/threads/{id}", {"metadata": {"more": 2}})
        await self.ask("POST", "/threads/{id}/state", {"values": {"words": ["by hand"]}, "as_node": "say"})
        await self.ask("POST", "/threads/search", {"ids": [self.id]})
        await self.ask("POST", "/threads/count", {"ids": [self.id]})
        for path in ("/api/threads/{id}", "/api/workflows/{id}", "/api/workflows/{id}/state"):
            await self.ask("GET", path)
        await self.ask("POST", "/threads/{id}/runs/crons", {"assistant_id": "echo", "schedule": "0 0 1 1 *"})
        await self.ask("POST", "/runs/crons/search", {"thread_id": self.id})
        await self.ask("POST", "/threads/{id}/copy", {})
        await self.ask("GET", "/threads/{id}/runs/{id}")
        await self.ask("POST", "/runs/cancel", {"thread_id": self.id, "status": "all"})

    async def end(self) -> None:
        await self.ask("DELETE", "/api/threads/{id}?soft=true")
        await self.ask("GET", "/threads/{id}")
        await self.ask("POST", "/api/threads/{id}/undelete")
        await self.ask("POST", "/threads/prune", {"thread_ids": [self.id]})
        await self.ask("GET", "/threads/{id}")
        await self.ask("POST", "/threads", {"thread_id": self.id})
        await self.ask("POST", "/threads/{id}/runs", {"assistant_id": "echo", "if_not_exists": "create"})


@pytest.mark.fault("G2")
@pytest.mark.parametrize("is_made_by_a_run", [False, True])
@pytest.mark.parametrize("rivals", ["kept", "deleted", "deleted softly", "forgotten"])
async def test_an_id_of_another_tenant_is_as_good_as_a_free_one(
    app: Server, ann: httpx.AsyncClient, rival: httpx.AsyncClient, rivals: str, is_made_by_a_run: bool
) -> None:
    made = (await rival.post("/threads", json={"metadata": {"whose": "rival"}})).json()
    taken, free = Walk(ann, made["thread_id"]), Walk(ann, str(uuid4()))
    if rivals in ("deleted", "forgotten"):
        assert (await rival.delete(f"/threads/{taken.id}")).status_code == 204
    elif rivals == "deleted softly":
        assert (await rival.delete(f"/api/threads/{taken.id}?soft=true")).status_code == 200
    for walk in (taken, free):
        if not is_made_by_a_run:
            await walk.make()
        await walk.use()
    if rivals == "forgotten":
        await query(app.stores.db, "DELETE FROM tombstones WHERE thread_id = $1", taken.id)
    for walk in (taken, free):
        await walk.use()
        await walk.end()
    for one, other in zip(taken.answers, free.answers, strict=True):
        assert one == other
    assert {status for _, status, _, _ in taken.answers} >= {200, 404}
    assert not any(status >= 500 for _, status, _, _ in taken.answers)
    if rivals == "kept":
        assert (await rival.get(f"/threads/{taken.id}")).json() == made
        assert [one["thread_id"] for one in (await rival.post("/threads/search", json={})).json()] == [
            taken.id
        ]


@pytest.mark.fault("G2")
@pytest.mark.mainly_sqlite(False)
async def test_the_other_way_round_it_is_the_same(ann: httpx.AsyncClient, rival: httpx.AsyncClient) -> None:
    """Each of two tenants has its own thread under one id, and neither meets the other's."""
    chosen = str(uuid4())
    for client, word in ((ann, "one"), (rival, "two")):
        run = {"assistant_id": "echo", "input": {"words": [word]}, "if_not_exists": "create"}
        answer = await client.post(f"/threads/{chosen}/runs/wait", json=run)
        assert answer.json()["words"] == [word, "said"]
    for client, word in ((ann, "one"), (rival, "two")):
        state = (await client.get(f"/threads/{chosen}/state")).json()
        assert state["values"]["words"] == [word, "said"]
        assert state["checkpoint"]["thread_id"] == chosen
        assert [one["id"] for one in (await client.get("/api/threads")).json()["threads"]] == [chosen]


@pytest.mark.mainly_sqlite(False)
async def test_nobody_can_name_a_marked_id(
    app: Server, ann: httpx.AsyncClient, rival: httpx.AsyncClient
) -> None:
    chosen = str(uuid4())
    for client in (ann, rival):
        assert (await client.post("/threads", json={"thread_id": chosen})).status_code == 200
    (kept,) = [row[0] for row in await query(app.stores.db, "SELECT id FROM threads WHERE id LIKE '%~%'")]
    for client in (ann, rival):
        run = {"assistant_id": "echo", "if_not_exists": "create"}
        for answer in (
            await client.get(f"/threads/{kept}"),
            await client.get(f"/api/threads/{kept}"),
            await client.post(f"/threads/{kept}/runs", json=run),
        ):
            assert answer.status_code == 404


async def test_people_of_one_tenant_do_not_meet_each_others_idempotency_keys(app: Server) -> None:
    body = {"graph": "echo", "prompt": "go"}
    answers = []
    for user, key in (("a/b", "c"), ("a", "b/c")):
        owner = Owner(tenant="acme", user_id=user)
        async with client_of(app.http, await new_key(app.stores.keys, owner=owner)) as client:
            answer = await client.post("/api/workflows/start", json=body, headers={"Idempotency-Key": key})
            assert answer.status_code == 200, answer.text
            answers.append(answer.json()["id"])
    assert len(set(answers)) == 2
