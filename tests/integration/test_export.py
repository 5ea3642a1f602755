"""A thread as a zip: whole however damaged the thread is, with all that can be read, and the rest by its place."""

import hashlib
import io
import json
import logging
import zipfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from clew.domain.errors import Corrupt
from clew.domain.events import AssistantMessage, DocumentAdded, RoundFinished
from clew.domain.lifecycle import redact
from clew.domain.records import Document, File
from clew.domain.thread import Json, Status, Thread
from clew.ports.threads import Store
from clew.retention.export import Export
from clew.retention.salvage import PAGE, Problem
from clew.stores.sql.files import FileRows
from clew.stores.sql.work import Database
from tests.databases import APP_DATABASES, locate, open_database, open_store, query
from tests.http_client import client_of, new_key, opened_app
from tests.samples import ANN, NOW, new_id, opened, recorded, said, stamp

pytestmark = pytest.mark.anyio

SECRET = "only between us"


@dataclass(frozen=True, slots=True)
class Zip:
    """What somebody who unpacks it finds."""

    texts: dict[str, str]

    def lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in self.texts[name].splitlines()]

    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.lines("log.jsonl")]

    @property
    def problems(self) -> list[dict[str, Any]]:
        return list(json.loads(self.texts.get("problems.json", "[]")))


def unpacked(data: bytes) -> Zip:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return Zip({name: archive.read(name).decode() for name in archive.namelist()})


async def empty_state(thread_id: str) -> Json:
    return {"of": thread_id}


async def damaged_state(thread_id: str) -> Json:
    raise Corrupt(f"the state of thread {thread_id!r} cannot be shown as JSON")


@pytest.fixture(params=APP_DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.fixture
async def database(where: str) -> AsyncIterator[Database]:
    async with open_database(where) as db:
        yield db


@pytest.fixture
def store(database: Database) -> Store:
    return open_store(database)


@pytest.fixture
def export(store: Store, database: Database) -> Export:
    return Export(store=store, files=FileRows(database), latest=empty_state)


async def exported(export: Export, thread: Thread) -> tuple[Zip, Sequence[Problem]]:
    archive = export.zip_of(thread)
    data = b"".join([piece async for piece in archive])
    return unpacked(data), archive.problems


async def long_thread(store: Store, events: int) -> Thread:
    """Its first two events open it; the others are messages that say their number."""
    change = opened(held=True)  # so that nobody runs it
    await store.commit(change)
    while change.thread.last_seq < events:
        last = change.thread.last_seq
        bodies = [said(f"message {seq}.") for seq in range(last + 1, min(last + 201, events + 1))]
        change = recorded(change.thread, *bodies)
        await store.commit(change)
    return change.thread


async def add_document(
    database: Database, store: Store, thread: Thread, parts: Sequence[bytes]
) -> tuple[Thread, Document]:
    files = FileRows(database)
    data = b"".join(parts)
    digest = hashlib.sha256(data).hexdigest()
    for number, part in enumerate(parts):
        await files.add_part(digest, number, part, now=NOW)
    file = File(
        id=new_id(),
        owner=ANN,
        name="a.txt",
        mime="text/plain",
        size=len(data),
        sha256=digest,
        created_at=NOW,
    )
    await files.add_file(file)
    document = Document(
        id=new_id(),
        thread_id=thread.id,
        file_id=file.id,
        name="a",
        ext="txt",
        mime="text/plain",
        size=len(data),
        sha256=digest,
        created_at=NOW,
    )
    await files.add_document(document, [])
    change = recorded(thread, DocumentAdded(document_id=document.id, name="a", ext="txt"))
    await store.commit(change)
    return change.thread, document


async def test_a_sound_thread_has_no_problems(export: Export, store: Store, database: Database) -> None:
    thread, _ = await add_document(database, store, await long_thread(store, PAGE + 2), [b"one, ", b"two"])
    found, problems = await exported(export, thread)
    assert problems == []
    assert "problems.json" not in found.texts
    assert found.seqs() == list(range(1, thread.last_seq + 1))
    assert found.texts["messages.md"].startswith("# a name\n")
    assert found.texts["documents/001_a.txt"] == "one, two"


DAMAGE = {
    "not JSON": "UPDATE events SET content = '{{' WHERE seq = {0}",
    "not what the type has": "UPDATE events SET content = '{{\"content\": 5}}' WHERE seq = {0}",
    "an unknown type": "UPDATE events SET type = 'x' WHERE seq = {0}",
    "a version from the future": "UPDATE events SET version = 99 WHERE seq = {0}",
    "a time that cannot be": "UPDATE events SET at = 9000000000000000000 WHERE seq = {0}",
    "gone": "DELETE FROM events WHERE seq = {0}",
}
BYTES = {
    "not UTF-8": "UPDATE events SET content = CAST(x'fffe00' AS TEXT) WHERE seq = {0}",
    "not text": "UPDATE events SET content = x'ff' WHERE seq = {0}",
}


async def assert_all_but(export: Export, thread: Thread, gone: Sequence[int]) -> None:
    found, problems = await exported(export, thread)
    assert [(one.table, one.code, one.from_seq, one.to_seq) for one in problems] == [
        ("events", "CORRUPT", seq, seq) for seq in gone
    ]
    assert found.problems == [one.told() for one in problems]
    expected = [seq for seq in range(1, thread.last_seq + 1) if seq not in gone]
    assert found.seqs() == expected
    assert [one["seq"] for one in found.lines("messages.jsonl")] == [seq for seq in expected if seq > 1]
    for seq in range(3, thread.last_seq + 1):
        assert (f"message {seq}.\n" in found.texts["messages.md"]) == (seq not in gone)
    for seq in gone:
        assert f"event {seq} could not be read back, see problems.json" in found.texts["messages.md"]
    assert found.texts["messages.md"].startswith("# a name\n")
    assert json.loads(found.texts["thread.json"])["events"] == thread.last_seq
    assert not any("message" in one["reason"].replace("user_msg", "") for one in found.problems)


@pytest.mark.parametrize("damage", DAMAGE)
async def test_what_is_around_damaged_events_is_there(
    export: Export, store: Store, database: Database, damage: str
) -> None:
    thread = await long_thread(store, PAGE + 50)
    # The first, two that are neighbours of nobody, both sides of a page's end, and the last.
    gone = [1, 7, PAGE, PAGE + 1, thread.last_seq]
    for seq in gone:
        await query(database, DAMAGE[damage].format(seq))
    await assert_all_but(export, thread, gone)


@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
@pytest.mark.parametrize("damage", BYTES)
async def test_bytes_that_no_driver_would_write(
    export: Export, store: Store, database: Database, damage: str
) -> None:
    thread = await long_thread(store, 30)
    for seq in (5, 30):
        await query(database, BYTES[damage].format(seq))
    await assert_all_but(export, thread, [5, 30])


async def test_a_stretch_that_is_gone_is_one_problem(
    export: Export, store: Store, database: Database
) -> None:
    thread = await long_thread(store, 40)
    await query(database, "DELETE FROM events WHERE seq BETWEEN 20 AND 40")
    found, problems = await exported(export, thread)
    assert [(one.from_seq, one.to_seq, one.reason) for one in problems] == [(20, 40, "not there")]
    assert found.seqs() == list(range(1, 20))


async def test_a_state_that_cannot_be_read_is_a_problem_of_its_own(export: Export, store: Store) -> None:
    thread = await long_thread(store, 3)
    found, problems = await exported(replace(export, latest=damaged_state), thread)
    assert [(one.table, one.code) for one in problems] == [("checkpoints", "CORRUPT")]
    assert json.loads(found.texts["state.json"]) == {"error": "CORRUPT"}
    assert found.seqs() == [1, 2, 3]


async def test_where_a_redacted_message_is_damaged_nothing_that_may_repeat_it_is_told(
    export: Export, store: Store, database: Database
) -> None:
    change = opened()
    await store.commit(change)
    change = recorded(
        change.thread, said(SECRET), AssistantMessage(content="I see"), RoundFinished(status=Status.COMPLETED)
    )
    await store.commit(change)
    change = redact(change.thread, change.events[0].id, stamp=stamp())
    await store.commit(change)
    await query(database, f'UPDATE events SET content = \'{{"content": "{SECRET}\' WHERE seq = 3')

    async def quoting(thread_id: str) -> Json:
        return {"messages": [SECRET]}

    found, problems = await exported(replace(export, latest=quoting), change.thread)
    assert [one.table for one in problems] == ["events", "checkpoints"]
    assert all(SECRET not in text for text in found.texts.values())
    assert "I see" in found.texts["messages.md"]


async def test_documents_that_are_damaged(export: Export, store: Store, database: Database) -> None:
    thread = await long_thread(store, 3)
    made = []
    for name in (b"whole", b"cut short", b"changed", b"gone"):
        thread, document = await add_document(database, store, thread, [name, b", the end"])
        made.append(document)
    whole, short, changed, gone = made
    await query(database, "DELETE FROM blobs WHERE sha256 = $1 AND part = 1", short.sha256)
    await query(database, "UPDATE blobs SET data = $2 WHERE sha256 = $1 AND part = 0", changed.sha256, b"x")
    await query(database, "DELETE FROM blobs WHERE sha256 = $1", gone.sha256)
    found, problems = await exported(export, thread)
    assert {(one.table, one.id, one.code) for one in problems} == {
        ("blobs", short.id, "CORRUPT"),
        ("blobs", changed.id, "CORRUPT"),
        ("blobs", gone.id, "NOT_FOUND"),
    }
    paths = {one["id"]: one["path"] for one in json.loads(found.texts["documents.json"])}
    assert found.texts[paths[whole.id]] == "whole, the end"
    assert found.texts[paths[short.id]] == "cut short"
    assert paths[gone.id] is None


async def test_one_damaged_document_does_not_hide_the_others(
    export: Export, store: Store, database: Database
) -> None:
    thread, first = await add_document(database, store, await long_thread(store, 3), [b"first"])
    thread, second = await add_document(database, store, thread, [b"second"])
    await query(database, "UPDATE documents SET created_at = 9000000000000000000 WHERE id = $1", first.id)
    found, problems = await exported(export, thread)
    assert [(one.table, one.id) for one in problems] == [("documents", None), ("documents", first.id)]
    (shown,) = json.loads(found.texts["documents.json"])
    assert (shown["id"], found.texts[shown["path"]]) == (second.id, "second")


@pytest.mark.parametrize("where", APP_DATABASES, indirect=True)
async def test_by_http(where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = {"memory": "memory://"}.get(where, where if where.startswith("postgres") else f"sqlite:///{where}")
    async with opened_app(tmp_path, CLEW_DATABASE_URL=url) as app:
        await long_thread(app.stores.threads, 12)
        await query(app.stores.db, "UPDATE events SET content = '{' WHERE seq = 5")
        key = await new_key(app.stores.keys)
        async with client_of(app.http, key) as client:
            with caplog.at_level(logging.WARNING):
                answer = await client.get("/api/threads/t1/export")
            assert answer.status_code == 200
            found = unpacked(answer.content)
        assert found.seqs() == [1, 2, 3, 4, *range(6, 13)]
        (problem,) = found.problems
        assert problem == {
            "table": "events",
            "code": "CORRUPT",
            "reason": "thread 't1': event 5 (user_msg) cannot be read back",
            "from_seq": 5,
            "to_seq": 5,
        }
        (logged,) = [one for one in caplog.records if one.getMessage() == "an export is incomplete"]
        assert (logged.__dict__["thread_id"], logged.__dict__["count"]) == ("t1", 1)
