"""Documents of a workflow over HTTP: listed, and saved as they are; the graphs one can start."""

import hashlib
from base64 import b64decode
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from clew.domain.records import ContentItem, Document
from clew.server.app import Server
from clew.server.database import utc_now
from tests.http_client import client_of, new_key, opened_app
from tests.samples import opened

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 10


@dataclass(frozen=True, slots=True)
class House:
    app: Server
    client: httpx.AsyncClient


@pytest.fixture
async def house(tmp_path: Path) -> AsyncGenerator[House]:
    """Ann's thread t1 has a document d1, and her thread t2 has none."""
    async with opened_app(tmp_path) as app:
        stores = app.stores
        digest = hashlib.sha256(CONTENT).hexdigest()
        await stores.threads.commit(opened("t1", held=True))
        await stores.threads.commit(opened("t2", held=True))
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
    assert (found["id"], found["file"], found["ext"], found["size"]) == ("d1", "f1", "html", len(CONTENT))
    assert isinstance(found["fileId"], int)
    assert (await house.client.get("/api/workflows/t2/documents")).json() == {"documents": []}


async def test_a_document_is_saved_and_never_shown(house: House) -> None:
    answer = await house.client.get("/api/workflows/t1/documents/d1")
    assert answer.content == CONTENT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert "x-evil" not in answer.headers


@pytest.mark.accept("004-29", "004-30")
async def test_a_document_comes_whole_with_what_is_in_it(house: House) -> None:
    """In as many pieces as it has parts, none of which is a multiple of what base64 takes at once."""
    files = house.app.stores.files
    parts = [bytes([number]) * 1000 for number in range(4)]
    for number, part in enumerate(parts):
        await files.add_part("many", number, part, now=utc_now())
    item = ContentItem(
        sequence_nr=1,
        name="page_1",
        ext="txt",
        content_type="text/plain",
        data='The costs of "logistics" fell. The sun shone.',
        metadata={"isText": True, "base64Encoded": False, "aiProcessed": False},
        summary="costs",
    )
    document = replace(await files.get_document("t1", "d1"), id="d2", size=4000, sha256="many")
    await files.add_document(document, [item])
    path = "/api/workflows/t1/documents/d2/contents"
    answer = await house.client.get(path)
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert b64decode(found.pop("data"), validate=True) == b"".join(parts)
    (shown,) = found.pop("contents")
    assert found == (await house.client.get("/api/workflows/t1/documents")).json()["documents"][1]
    expected = {
        "sequenceNr": 1,
        "name": "page_1",
        "ext": "txt",
        "contentType": "text/plain",
        "data": item.data,
        "metadata": item.metadata,
        "summary": "costs",
    }
    assert shown == expected
    (asked,) = (await house.client.get(path, params={"prompt": "logistics"})).json()["contents"]
    assert asked == expected | {"dataExtracted": 'The costs of "logistics" fell.'}


@pytest.mark.parametrize(("parts", "status"), [([b""], 200), ([], 404)])
async def test_an_empty_document_is_one_and_a_lost_one_is_not(
    house: House, parts: list[bytes], status: int
) -> None:
    files = house.app.stores.files
    for number, part in enumerate(parts):
        await files.add_part("other", number, part, now=utc_now())
    document = replace(await files.get_document("t1", "d1"), id="d2", size=0, sha256="other")
    await files.add_document(document, ())
    answer = await house.client.get("/api/workflows/t1/documents/d2/contents")
    assert answer.status_code == status
    if status == 200:
        assert (answer.json()["data"], answer.json()["contents"]) == ("", [])


@pytest.mark.parametrize(
    "path",
    [
        "t1/documents/d2",
        "t2/documents/d1",
        "t3/documents",
        "t3/documents/d1",
        "t1/documents/d2/contents",
        "t2/documents/d1/contents",
    ],
)
async def test_a_document_belongs_to_its_workflow(house: House, path: str) -> None:
    assert (await house.client.get(f"/api/workflows/{path}")).status_code == 404


async def test_graphs_are_listed_with_the_default_one_first(house: House) -> None:
    graphs = (await house.client.get("/api/graphs")).json()["graphs"]
    first = {"name": "chat", "isDefault": True, "isOwn": False, "usesProfiles": True, "fields": []}
    assert graphs[0] == first
    assert [graph["name"] for graph in graphs[1:]] == sorted(graph["name"] for graph in graphs[1:])
    (coding,) = [graph for graph in graphs if graph["name"] == "coding"]
    assert coding["fields"] == ["issueId", "worktreePath"]
