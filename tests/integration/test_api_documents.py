"""Documents of a workflow over HTTP: listed, and saved as they are; the graphs one can start."""

import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from clew.app import App, utc_now
from clew.domain.records import Document
from tests.doors import client_of, new_key, opened_app
from tests.samples import opened

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 10


@dataclass(frozen=True, slots=True)
class House:
    app: App
    client: httpx.AsyncClient


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    """Ann's thread t1 has a document d1, and her thread t2 has none."""
    async with opened_app(tmp_path) as app:
        stores = app.stores
        digest = hashlib.sha256(CONTENT).hexdigest()
        await stores.threads.commit(opened("t1"))
        await stores.threads.commit(opened("t2"))
        await stores.files.add_part(digest, 0, CONTENT, now=utc_now())
        document = Document(
            id="d1",
            thread_id="t1",
            file_id="f1",
            name='über "alles"\r\nX-Evil: 1',
            ext="html",
            mime="text/html",
            size=len(CONTENT),
            sha256=digest,
            created_at=utc_now(),
        )
        await stores.files.add_document(document, ())
        async with client_of(app.http, await new_key(stores.keys)) as client:
            yield House(app, client)


async def test_documents_are_listed(house: House) -> None:
    answer = await house.client.get("/api/workflows/t1/documents")
    (found,) = answer.json()["documents"]
    assert (found["id"], found["fileId"], found["ext"], found["size"]) == ("d1", "f1", "html", len(CONTENT))
    assert (await house.client.get("/api/workflows/t2/documents")).json() == {"documents": []}


async def test_a_document_is_saved_and_never_shown(house: House) -> None:
    answer = await house.client.get("/api/workflows/t1/documents/d1")
    assert answer.content == CONTENT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert "x-evil" not in answer.headers


@pytest.mark.parametrize("path", ["t1/documents/d2", "t2/documents/d1", "t3/documents", "t3/documents/d1"])
async def test_a_document_belongs_to_its_workflow(house: House, path: str) -> None:
    assert (await house.client.get(f"/api/workflows/{path}")).status_code == 404


async def test_graphs_are_listed_with_the_default_one_first(house: House) -> None:
    graphs = (await house.client.get("/api/graphs")).json()["graphs"]
    assert graphs[0] == {"name": "chat", "isDefault": True}
    assert [graph["name"] for graph in graphs[1:]] == sorted(graph["name"] for graph in graphs[1:])
