"""What every store of files, documents and their bytes must do."""

import hashlib
from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.errors import Conflict, Invalid, NotFound
from clew.domain.records import ContentItem, Document, File
from clew.domain.thread import Owner
from clew.ports.files import Files
from clew.ports.threads import Store
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import ANN, NOW, new_id, opened

pytestmark = pytest.mark.anyio

PARTS = (b"\x00\xff first ", b"second", b"")
DATA = b"".join(PARTS)
SHA = hashlib.sha256(DATA).hexdigest()
LATER = NOW + timedelta(hours=1)


def file_of(data: bytes = DATA, *, owner: Owner = ANN, name: str = "plan.md", seconds: int = 0) -> File:
    return File(
        id=new_id(),
        owner=owner,
        name=name,
        mime="text/markdown",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        created_at=NOW + timedelta(seconds=seconds),
    )


def document_of(file: File, thread_id: str = "t1") -> Document:
    return Document(
        id=new_id(),
        thread_id=thread_id,
        file_id=file.id,
        name="plan",
        ext="md",
        mime=file.mime,
        size=file.size,
        sha256=file.sha256,
        created_at=NOW,
    )


async def upload(files: Files, data: bytes = DATA, owner: Owner = ANN, seconds: int = 0) -> File:
    file = file_of(data, owner=owner, seconds=seconds)
    await files.add_part(file.sha256, 0, data, now=NOW)
    await files.add_file(file)
    return file


async def bytes_of(files: Files, sha256: str) -> bytes:
    return b"".join([part async for part in files.read_bytes(sha256)])


async def blobs(database: Database) -> int:
    return len(await query(database, "SELECT 1 FROM blobs"))


async def test_a_file_comes_back_as_it_was(files: Files) -> None:
    file = file_of()
    for number, part in enumerate(PARTS):
        await files.add_part(SHA, number, part, now=NOW)
    await files.add_file(file)
    assert await files.get_file(file.id) == file
    assert [part async for part in files.read_bytes(SHA)] == list(PARTS)


async def test_a_file_is_visible_only_with_all_of_its_bytes(files: Files) -> None:
    file = file_of()
    with pytest.raises(Conflict):
        await files.add_file(file)
    await files.add_part(SHA, 0, PARTS[0], now=NOW)
    with pytest.raises(Conflict):
        await files.add_file(file)
    with pytest.raises(NotFound):
        await files.get_file(file.id)
    await files.add_part(SHA, 1, PARTS[1], now=NOW)
    await files.add_file(file)


async def test_an_empty_file_is_a_file(files: Files) -> None:
    file = await upload(files, b"")
    assert await bytes_of(files, file.sha256) == b""


async def test_the_same_bytes_are_kept_once(files: Files, database: Database) -> None:
    first = await upload(files)
    second = await upload(files, owner=replace(ANN, user_id="bob"))
    assert first.id != second.id
    assert await blobs(database) == 1
    assert await bytes_of(files, SHA) == DATA


async def test_unknown_bytes_are_not_found(files: Files) -> None:
    with pytest.raises(NotFound):
        await bytes_of(files, "0" * 64)


async def test_another_owners_file_does_not_exist(files: Files) -> None:
    file = await upload(files)
    for owner in (replace(ANN, user_id="bob"), replace(ANN, tenant="evil")):
        with pytest.raises(NotFound):
            await files.get_file(file.id, owner)
        with pytest.raises(NotFound):
            await files.delete_file(file.id, owner)
        assert await files.find_files(owner) == []
    assert await files.get_file(file.id, ANN) == file


async def test_files_are_listed_newest_first(files: Files) -> None:
    made = [await upload(files, bytes([n]), seconds=n) for n in range(4)]
    assert await files.find_files(ANN) == made[::-1]
    assert await files.find_files(ANN, limit=2) == made[:1:-1]
    assert await files.find_files() == made[::-1]


async def test_a_document_and_its_contents_come_back_as_they_were(store: Store, files: Files) -> None:
    await store.commit(opened())
    document = document_of(await upload(files))
    items = [
        ContentItem(
            sequence_nr=n, name=f"page {n}", ext="txt", content_type="text", data="é" * n, metadata={"n": n}
        )
        for n in (1, 2, 3)
    ]
    await files.add_document(document, items)
    assert await files.get_document("t1", document.id) == document
    assert await files.find_documents("t1") == [document]
    assert await files.contents("t1", document.id) == items


async def test_a_document_belongs_to_its_thread(store: Store, files: Files) -> None:
    await store.commit(opened("t1"))
    await store.commit(opened("t2"))
    document = document_of(await upload(files))
    await files.add_document(document, [])
    with pytest.raises(NotFound):
        await files.get_document("t2", document.id)
    assert await files.find_documents("t2") == []
    assert await files.contents("t2", document.id) == []
    with pytest.raises(NotFound):
        await files.add_document(document_of(file_of(), "nobody"), [])


async def test_a_document_that_fails_half_way_leaves_nothing(store: Store, files: Files) -> None:
    await store.commit(opened())
    document = document_of(await upload(files))
    item = ContentItem(sequence_nr=1, name="", ext="", content_type="", data="")
    with pytest.raises(Conflict):
        await files.add_document(document, [item, item])
    assert await files.find_documents("t1") == []


async def test_files_are_listed_page_by_page(files: Files) -> None:
    made = [await upload(files, seconds=n // 2) for n in range(5)]
    newest = sorted(made, key=lambda file: (file.created_at, file.id), reverse=True)
    seen: list[File] = []
    while page := await files.find_files(
        ANN, before=(seen[-1].created_at, seen[-1].id) if seen else None, limit=2
    ):
        seen += page
    assert seen == newest
    assert await files.find_files(before=(newest[2].created_at, newest[2].id)) == newest[3:]


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud800", "\u2028 plain"], ids=ascii)
async def test_what_was_read_out_of_a_file_comes_back_as_it_was_or_is_refused(
    store: Store, files: Files, text: str
) -> None:
    """Real PDFs have NULs in their text, and Postgres takes none: whoever extracts has to leave them out."""
    await store.commit(opened())
    document = document_of(await upload(files))
    item = ContentItem(sequence_nr=1, name="p", ext="txt", content_type="text", data=text, summary=text)
    try:
        await files.add_document(document, [item])
    except Invalid:
        assert "plain" not in text
        assert await files.find_documents("t1") == []
    else:
        assert await files.contents("t1", document.id) == [item]


async def test_bytes_go_when_nobody_refers_to_them(store: Store, files: Files, database: Database) -> None:
    await store.commit(opened())
    first = await upload(files)
    second = await upload(files)
    document = document_of(first)
    await files.add_document(document, [])

    async def collected() -> int:
        return await files.collect(older_than=LATER)

    assert await collected() == 0
    await files.delete_file(first.id)
    with pytest.raises(NotFound):
        await files.delete_file(first.id)
    assert await collected() == 0, "another file has the same bytes"
    await files.delete_file(second.id)
    assert await collected() == 0, "a document is made of them"
    assert await bytes_of(files, SHA) == DATA
    await store.commit(opened("t2"))
    await files.add_document(document_of(first, "t2"), [])
    await _purge(store, "t1")
    assert await bytes_of(files, SHA) == DATA, "a document of another thread is made of them"
    await _purge(store, "t2")
    assert await blobs(database) == 0, "at once: they may be what somebody wanted gone"
    assert await collected() == 0


@pytest.mark.accept("003-7")
async def test_bytes_that_came_again_meanwhile_are_left_to_the_upload(
    store: Store, files: Files, database: Database
) -> None:
    await store.commit(opened())
    first = await upload(files)
    await files.add_document(document_of(first), [])
    await files.delete_file(first.id)
    await files.add_part(SHA, 0, DATA, now=NOW + timedelta(seconds=1))
    await _purge(store, "t1")
    await files.add_file(file_of())
    assert await bytes_of(files, SHA) == DATA


async def _purge(store: Store, thread_id: str) -> None:
    await store.tombstone(thread_id, now=NOW)
    while await store.purge(only=thread_id):
        pass


async def test_an_upload_under_way_is_not_collected(files: Files, database: Database) -> None:
    await files.add_part(SHA, 0, PARTS[0], now=NOW - timedelta(days=2))
    await files.add_part(SHA, 1, PARTS[1], now=NOW)
    assert await files.collect(older_than=NOW) == 0
    await files.add_part(SHA, 0, PARTS[0], now=LATER)
    assert await files.collect(older_than=LATER) == 0
    assert await blobs(database) == 2


async def test_collecting_goes_in_bounded_steps(files: Files, database: Database) -> None:
    for n in range(5):
        data = bytes([n])
        for part in range(3):
            await files.add_part(hashlib.sha256(data).hexdigest(), part, data, now=NOW)
    assert await files.collect(older_than=LATER, limit=2) == 2
    assert await blobs(database) == 9
