"""The store searched by meaning: `store.index` of langgraph.json and of clew.yaml, in a served graph and over HTTP."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import UnprocessableEntityError
from psycopg.sql import SQL

from tests.acceptance import index_graphs, sdk_graphs
from tests.acceptance.sdk import Clients, SdkServer, clients_of
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.postgres import PostgresServer
from tests.processes import ROOT, clew, serving

pytestmark = pytest.mark.anyio

INDEX = {"embed": f"{index_graphs.__file__}:embed", "dims": len(index_graphs.LETTERS), "fields": ["text"]}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path_factory.mktemp("index"), index_graphs) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    folder = stage.folder / "project"
    folder.mkdir()
    graphs = {name: f"{index_graphs.__file__}:{name}" for name in index_graphs.NAMES}
    (folder / "langgraph.json").write_text(
        json.dumps({"dependencies": ["."], "graphs": graphs, "store": {"index": INDEX}})
    )
    with serving(folder, port=0, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}", **stage.environ) as server:
        yield SdkServer(server, stage.keys)


@pytest.fixture
async def clients(served: SdkServer) -> AsyncIterator[Clients]:
    async with clients_of(served) as clients:
        yield clients


async def test_items_are_ranked_by_similarity_for_clients_and_for_graphs(
    clients: Clients, served: SdkServer
) -> None:
    store = clients.ann.store
    for key, text in {"tea": "green tea", "bus": "the bus stops"}.items():
        await store.put_item(["notes"], key=key, value={"text": text, "n": len(key)})
    await store.put_item(["notes"], key="raw", value={"text": "green tea"}, index=False)
    await store.put_item(["notes"], key="titled", value={"text": "x", "title": "zzz"}, index=["title"])

    async def found(query: str, **more: Any) -> list[str]:
        items = (await store.search_items(["notes"], query=query, **more))["items"]
        scores = [item["score"] for item in items]
        assert scores == sorted(scores, reverse=True)
        return [item["key"] for item in items]

    assert await found("green tea") == ["tea", "bus", "titled"]
    assert await found("zz", limit=1) == ["titled"]
    assert await found("tea", filter={"n": 3}, offset=1) == ["bus"]
    assert {item["score"] for item in (await store.search_items(["notes"]))["items"]} == {None}
    assert (await clients.rival.store.search_items(["notes"], query="tea"))["items"] == []
    values = await clients.ann.runs.wait(None, "seeker", input={"words": ["green tea"]})
    assert values["words"][-1] == "tea 1.00"
    with get_sync_client(url=served.server.address, api_key=served.keys["ann"]) as sync:
        assert sync.store.search_items(["notes"], query="tea", limit=1)["items"][0]["key"] == "tea"
    await store.delete_item(["notes"], key="tea")
    assert await found("green tea", limit=1) == ["bus"]


async def test_an_item_that_cannot_be_embedded_is_not_written(clients: Clients, served: SdkServer) -> None:
    headers = {"X-API-Key": served.keys["ann"]}
    async with httpx.AsyncClient(base_url=served.server.address, headers=headers, timeout=40) as http:
        body = {"namespace": ["notes"], "key": "bad", "value": {"text": "unspeakable"}}
        answer = await http.put("/store/items", json=body)
        assert (answer.status_code, "ValueError" in answer.text) == (503, True)
        assert (await http.put("/store/items", json={**body, "index": False})).status_code == 204
        assert (await http.post("/store/items/search", json={"query": "unspeakable"})).status_code == 503
    assert "cannot embed this" not in served.server.log


async def test_without_an_index_a_query_is_refused(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        stage_on("sqlite", request, tmp_path_factory.mktemp("plain"), sdk_graphs) as stage,
        stage.serving() as served,
    ):
        async with clients_of(served) as clients:
            await clients.ann.store.put_item(["notes"], key="k", value={"text": "x"}, index=False)
            with pytest.raises(UnprocessableEntityError, match=r"query: .*store\.index"):
                await clients.ann.store.search_items(["notes"], query="x")
            with pytest.raises(UnprocessableEntityError, match=r"index: .*store\.index"):
                await clients.ann.store.put_item(["notes"], key="k", value={"text": "x"}, index=["text"])


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ("{embed: nothing, dims: 3}", "store.index.embed: expected provider:model"),
        ("{embed: ./embedding.py:embed, dims: none}", "store.index.dims: expected the number"),
        ("{embed: ./embedding.py:embed, dims: 3, color: red}", "store.index.color: no such key"),
        ("{embed: ./embedding.py:absent, dims: 3}", "it has no 'absent'"),
        ("{embed: nosuch:model, dims: 3}", "store.index.embed: "),
    ],
)
def test_a_wrong_index_is_named_at_start(tmp_path: Path, index: str, why: str) -> None:
    (tmp_path / "embedding.py").write_text("def embed(texts):\n    return [[1.0] for _ in texts]\n")
    (tmp_path / "clew.yaml").write_text(f"store:\n  index: {index}\n")
    started = clew(tmp_path, "serve", "--port", "0")
    assert (started.returncode != 0, why in started.stderr) == (True, True), started.stderr


def test_a_postgres_without_pgvector_is_named_at_start_and_by_doctor(
    shared_postgres: PostgresServer, tmp_path: Path
) -> None:
    """An ordinary role may not create the extension: it is not a trusted one."""
    index = "{embed: ./embedding.py:embed, dims: 1}"
    (tmp_path / "embedding.py").write_text("def embed(texts):\n    return [[1.0] for _ in texts]\n")
    (tmp_path / "clew.yaml").write_text(f"store:\n  index: {index}\n")
    owner = shared_postgres.create_database("without_pgvector")
    try:
        shared_postgres.execute(SQL("CREATE ROLE ordinary LOGIN"))
        shared_postgres.execute(SQL("ALTER DATABASE without_pgvector OWNER TO ordinary"))
        given = {"CLEW_DATABASE_URL": owner.replace("postgres@", "ordinary@")}
        for command in (("serve", "--port", "0"), ("doctor",)):
            done = clew(tmp_path, *command, **given)
            said = done.stdout + done.stderr
            assert (done.returncode != 0, "store.index needs the Postgres extension `vector`" in said) == (
                True,
                True,
            ), said
            assert "Traceback" not in said
        with psycopg.connect(owner, autocommit=True) as administrator:
            administrator.execute("CREATE EXTENSION vector")
        with serving(tmp_path, port=0, **given) as server:
            body = {"namespace": ["notes"], "key": "k", "value": {"text": "x"}}
            with httpx.Client(base_url=server.address) as http:
                assert http.put("/store/items", json=body).status_code == 204
                found = http.post("/store/items/search", json={"query": "x"}).json()["items"]
            assert [item["key"] for item in found] == ["k"]
    finally:
        shared_postgres.drop_database("without_pgvector")
        shared_postgres.execute(SQL("DROP ROLE IF EXISTS ordinary"))


async def test_the_example_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/semantic-store.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"prints\n\n```\n(.*?)```", page, re.DOTALL)
    (tmp_path / "example.py").write_text(code)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "example.py"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},  # noqa: TID251 - a child inherits what we have
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    assert (child.returncode, out.decode()) == (0, printed)
