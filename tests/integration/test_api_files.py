"""/api/files: uploads come back bit by bit as they were, for their owner, under any name, and never as something to run."""

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from io import FileIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from clew.api.files import download_headers, files_router
from clew.api.numbers import Numbering
from clew.documents.documents import Documents
from clew.documents.extraction.guard import open_extractor
from clew.documents.uploads import PART_BYTES, Uploads, whole
from clew.domain.errors import Invalid
from clew.domain.thread import Owner
from clew.ports.files import Files
from clew.stores.sql.files import FileRows
from clew.stores.sql.numbers import NumberRows
from clew.stores.sql.threads import ThreadRows
from clew.stores.sqlite import SQLiteDatabase, open_sqlite
from tests.http_client import SmallApi, client_of, new_key, small_api
from tests.made_files import image, packed, pdf
from tests.samples import ANN, NOW, new_id, opened

pytestmark = pytest.mark.anyio

LIMIT = 3 * PART_BYTES
BOB = Owner(tenant="acme", user_id="bob")


@dataclass(frozen=True, slots=True)
class Door:
    api: SmallApi
    files: Files
    uploads: Uploads
    db: SQLiteDatabase

    def client(self, key: str | None = None) -> httpx.AsyncClient:
        return client_of(self.api.http, key)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncGenerator[Door]:
    seconds = iter(range(10**6))
    async with open_sqlite(None) as db:
        files = FileRows(db)
        uploads = Uploads(
            files=files,
            clock=lambda: NOW + timedelta(seconds=next(seconds)),
            new_id=new_id,
            max_bytes=LIMIT,
            folder=tmp_path,
        )
        async with small_api(
            files_router(files, uploads, numbering=Numbering(NumberRows(db)), piece_seconds=0.5)
        ) as api:
            yield Door(api, files, uploads, db)


async def test_an_upload_that_drips_is_ended_however_often_a_byte_comes(tmp_path: Path) -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield b"--x\r\n" + FILE_PART
        while True:
            await asyncio.sleep(0.01)
            yield b"a"

    async with open_sqlite(None) as db:
        files = FileRows(db)
        uploads = Uploads(files=files, clock=lambda: NOW, new_id=new_id, max_bytes=LIMIT, folder=tmp_path)
        router = files_router(files, uploads, numbering=Numbering(NumberRows(db)), allowance_seconds=0.3)
        async with asyncio.timeout(60), small_api(router) as api, client_of(api.http) as client:
            answer = await client.post("/api/files", content=drip(), headers=FORM)
            assert error(answer) == (408, "REQUEST_TIMEOUT", None)
            assert "16384 bytes a second" in answer.json()["error"]["message"]
            assert (await client.get("/api/files")).json()["files"] == []
    assert os.listdir(tmp_path) == []


async def upload(client: httpx.AsyncClient, name: str = "a.txt", data: bytes = b"hello") -> Any:
    answer = await client.post("/api/files", files={"file": (name, data)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def error(answer: httpx.Response) -> tuple[int, str, str | None]:
    body = answer.json()["error"]
    return answer.status_code, body["code"], body.get("field")


def form(*parts: bytes, boundary: bytes = b"x", end: bytes = b"--x--\r\n") -> bytes:
    return b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + end


FILE_PART = b'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
FORM = {"content-type": "multipart/form-data; boundary=x"}


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, LIMIT])
async def test_a_file_comes_back_as_it_was(door: Door, size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with door.client() as client:
        made = await upload(client, "data.bin", data)
        assert made["size"] == size
        assert made["sha256"] == hashlib.sha256(data).hexdigest()
        assert made["id"].startswith("file_")
        assert (await client.get(f"/api/files/{made['id']}")).json() == made
        answer = await client.get(f"/api/files/{made['id']}/content")
    assert answer.content == data
    assert answer.headers["content-length"] == str(size)


async def test_parts_have_one_size_and_nothing_is_left_on_disk(door: Door, tmp_path: Path) -> None:
    data = b"\r\n--x" * 500_000
    async with door.client() as client:
        made = await upload(client, data=data)
        again = await upload(client, "other name.md", data)
    assert made["id"] != again["id"]
    parts = [part async for part in door.files.read_bytes(made["sha256"])]
    assert [len(part) for part in parts] == [PART_BYTES, PART_BYTES, len(data) - 2 * PART_BYTES]
    assert b"".join(parts) == data
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("step", [1, 3, 1000])
async def test_a_form_may_come_in_pieces_of_any_size(door: Door, step: int) -> None:
    data = b"line\r\n--x-not-a-boundary\r\n" * (3 if step == 1 else 300)
    body = form(
        b'Content-Disposition: form-data; name="note"\r\n\r\nhello',
        FILE_PART + data,
        b'Content-Disposition: form-data; name="after"\r\n\r\nbye',
    )

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), step):
            yield body[start : start + step]

    async with door.client() as client:
        made = await client.post("/api/files", content=pieces(), headers=FORM)
        assert made.status_code == 200, made.text
        assert (await client.get(f"/api/files/{made.json()['id']}/content")).content == data


@pytest.mark.fault("F8")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("C:\\boot.ini", "boot.ini"),
        (".htaccess", ".htaccess"),
        ("Übersicht – 日本.xlsx", "Übersicht – 日本.xlsx"),  # noqa: RUF001 - a dash people use
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("x" * 300 + ".pdf", "x" * 251 + ".pdf"),
        ("<img src=x onerror=alert(1)>.svg", "<img src=x onerror=alert(1)>.svg"),
        ("a%00b%0d%0aX-Evil: 1.txt", "a%00b%0d%0aX-Evil: 1.txt"),
        ("", "file"),
    ],
)
async def test_a_name_is_shown_and_nothing_else(door: Door, name: str, shown: str) -> None:
    async with door.client() as client:
        body = form(
            b'Content-Disposition: form-data; name="file"; filename="%s"\r\n\r\nx'
            % name.encode().replace(b"\\", b"\\\\")
        )
        made = (await client.post("/api/files", content=body, headers=FORM)).json()
        answer = await client.get(f"/api/files/{made['id']}/content")
    assert made["name"] == shown
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith('attachment; filename="')
    assert disposition.isascii()
    assert "x-evil" not in answer.headers


async def test_a_name_with_a_nul_is_taken_without_it(door: Door) -> None:
    async with door.client() as client:
        body = form(b'Content-Disposition: form-data; name="file"; filename="a\0b.txt"\r\n\r\nx')
        answer = await client.post("/api/files", content=body, headers=FORM)
    assert answer.json()["name"] == "ab.txt"


@pytest.mark.fault("F8")
@pytest.mark.parametrize(
    ("name", "data", "mime"),
    [
        ("x.svg", b"<svg><script>alert(1)</script></svg>", "image/svg+xml"),
        ("x.html", b"<script>alert(1)</script>", "text/html"),
        ("x.gif", b"GIF89a/*\0\0\0*/=1;alert(1)//", "image/gif"),
        ("x.gif", image("GIF") + packed({"a": b"b"}), "image/gif"),
        ("x.docm", packed({"word/vbaProject.bin": b"x"}), "application/vnd.ms-word.document.macroenabled.12"),
        ("x.pdf", pdf("x"), "application/pdf"),
    ],
)
async def test_whatever_it_is_it_is_saved_and_never_shown(
    door: Door, name: str, data: bytes, mime: str
) -> None:
    async with door.client() as client:
        made = await upload(client, name, data)
        answer = await client.get(f"/api/files/{made['id']}/content")
    assert made["mimeType"] == mime
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.content == data


@pytest.mark.fault("F8")
@given(st.text(max_size=300))
def test_download_headers_are_one_line_of_ascii(name: str) -> None:
    value = download_headers(name.encode(errors="replace").decode(), 1)["Content-Disposition"]
    value.encode("ascii")
    assert value.isprintable()
    assert value.count('"') == 2


async def test_one_byte_too_many_is_too_large(door: Door) -> None:
    async def pieces(size: int) -> AsyncIterator[bytes]:
        yield b"--x\r\n" + FILE_PART
        for _ in range(size // PART_BYTES):
            yield b"a" * PART_BYTES
        yield b"a" * (size % PART_BYTES) + b"\r\n--x--\r\n"

    async with door.client() as client:
        known = await client.post("/api/files", files={"file": ("a", b"a" * (LIMIT + 1))})
        chunked = await client.post("/api/files", content=pieces(LIMIT + 1), headers=FORM)
        just_right = await client.post("/api/files", content=pieces(LIMIT), headers=FORM)
        listed = (await client.get("/api/files")).json()["files"]
    assert error(known) == error(chunked) == (413, "TOO_LARGE", None)
    assert known.headers["connection"] == "close"
    assert just_right.status_code == 200
    assert len(listed) == 1


async def drive(
    door: Door, messages: Sequence[Message], *, hang: bool = False, length: int | None = None
) -> tuple[int, int]:
    """The status, and how many pieces of the body were asked for."""
    left = list(messages)
    sent: list[Message] = []
    asked = 0

    async def receive() -> Message:
        nonlocal asked
        if not left and hang:
            await asyncio.Event().wait()
        asked += 1
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8124"), *((k.encode(), v.encode()) for k, v in FORM.items())]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/api/files",
        "raw_path": b"/api/files",
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8124),
    }
    await door.api.http(scope, receive, send)
    return sent[0]["status"], asked


def body(*pieces: bytes) -> list[Message]:
    return [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]


async def test_a_length_that_is_too_large_is_refused_unread(door: Door) -> None:
    assert await drive(door, body(b"x" * 1000), length=10**9) == (413, 0)


async def test_reading_ends_with_the_piece_that_is_too_much(door: Door) -> None:
    pieces = body(b"--x\r\n" + FILE_PART, *[b"a" * PART_BYTES] * 100)
    status, asked = await drive(door, pieces)
    assert status == 413
    assert asked <= 1 + LIMIT // PART_BYTES + 1


async def test_a_client_that_stops_sending_is_not_waited_for(door: Door) -> None:
    assert await drive(door, body(b"--x\r\n" + FILE_PART + b"abc"), hang=True) == (408, 1)


async def test_a_client_that_goes_away_leaves_nothing_to_see(door: Door) -> None:
    status, _ = await drive(door, body(b"--x\r\n" + FILE_PART + b"abc"))
    assert status == 400
    assert await door.files.find_files() == []


@pytest.mark.parametrize(
    ("content", "headers", "field"),
    [
        (b"", {}, "Content-Type"),
        (b"{}", {"content-type": "application/json"}, "Content-Type"),
        (b"x", {"content-type": "multipart/form-data"}, "Content-Type"),
        (b"x", {"content-type": f"multipart/form-data; boundary={'y' * 300}"}, "Content-Type"),
        (b"", FORM, "file"),
        (b"garbage", FORM, "file"),
        (form(), FORM, "file"),
        (form(b'Content-Disposition: form-data; name="other"; filename="a"\r\n\r\nx'), FORM, "file"),
        (form(b"\r\nno headers"), FORM, "file"),
        (form(FILE_PART + b"x", end=b""), FORM, "file"),
        (form(FILE_PART + b"x", FILE_PART + b"y"), FORM, "file"),
        (form(b"Bad Header\r\n\r\nx"), FORM, "file"),
        (form(b'Content-Disposition: form-data; name="n"\r\n\r\n' + b"y" * 200_000, FILE_PART), FORM, "file"),
        (form(b"X: " + b"y" * 100_000 + b"\r\n\r\n"), FORM, "file"),
    ],
)
async def test_what_is_no_form_with_a_file_is_refused_by_name(
    door: Door, content: bytes, headers: dict[str, str], field: str
) -> None:
    async with door.client() as client:
        answer = await client.post("/api/files", content=content, headers=headers)
    assert error(answer) == (400, "INVALID", field)
    assert await door.files.find_files() == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.sampled_from([b"--x", b"--", b"\r\n", FILE_PART, b"a", b": ", b'"', b"\0", b"--x--\r\n"]),
            max_size=20,
        ).map(b"".join),
    )
)
def test_no_body_is_a_server_error(content: bytes) -> None:
    async def send() -> int:
        async with open_sqlite(None) as db:
            files = FileRows(db)
            uploads = Uploads(files=files, clock=lambda: NOW, new_id=new_id, max_bytes=LIMIT)
            async with (
                small_api(files_router(files, uploads, numbering=Numbering(NumberRows(db)))) as api,
                client_of(api.http) as client,
            ):
                return (await client.post("/api/files", content=content, headers=FORM)).status_code

    assert asyncio.run(send()) in (200, 400)


async def test_files_are_listed_newest_first_page_by_page(door: Door) -> None:
    async with door.client() as client:
        made = [(await upload(client, f"{n}.txt"))["id"] for n in range(5)]
        seen: list[str] = []
        page = (await client.get("/api/files", params={"limit": 2})).json()
        seen += [one["id"] for one in page["files"]]
        while page["next"]:
            page = (await client.get("/api/files", params={"limit": 2, "cursor": page["next"]})).json()
            seen += [one["id"] for one in page["files"]]
        bad = await client.get("/api/files", params={"cursor": "!!"})
    assert seen == made[::-1]
    assert error(bad) == (400, "INVALID", "cursor")


async def test_files_belong_to_their_owner(door: Door) -> None:
    ann, bob, other, tenant = [
        await new_key(door.api.keys, owner=owner)
        for owner in (ANN, BOB, Owner(tenant="other", user_id="ann"), Owner(tenant="acme"))
    ]
    async with door.client(ann) as client:
        made = await upload(client)
    address = f"/api/files/{made['id']}"
    for key in (bob, other):
        async with door.client(key) as client:
            for method, path in (("GET", address), ("GET", f"{address}/content"), ("DELETE", address)):
                answer = await client.request(method, path)
                assert error(answer) == (404, "NOT_FOUND", None)
            missing = await client.get("/api/files/file_none")
            theirs = await client.get(address)
            assert missing.text.replace("file_none", made["id"]) == theirs.text, "the two look the same"
            assert (await client.get("/api/files")).json() == {"files": [], "next": None}
    async with door.client(tenant) as client:
        assert (await client.get(address)).json() == made
    async with door.client() as client:
        assert (await client.get(address)).status_code == 401
        assert (await client.post("/api/files", files={"file": b"x"})).status_code == 401


async def test_a_reader_may_not_write(door: Door) -> None:
    key = await new_key(door.api.keys, scopes=frozenset({"read"}))
    async with door.client(key) as client:
        assert (await client.post("/api/files", files={"file": b"x"})).status_code == 403
        assert (await client.delete("/api/files/file_1")).status_code == 403


async def test_a_file_is_deleted_once_and_its_documents_stay(door: Door) -> None:
    threads = ThreadRows(door.db)
    await threads.commit(opened())
    async with door.client() as client, open_extractor() as extractor:
        data = pdf("a page")
        made = await upload(client, "r.pdf", data)
        file = await door.files.get_file(made["id"])
        documents = Documents(
            files=door.files, extractor=extractor, clock=lambda: NOW, numbers=NumberRows(door.db)
        )
        await documents.take_in("doc_1", "t1", file)
        first = await client.delete(f"/api/files/{made['id']}")
        second = await client.delete(f"/api/files/{made['id']}")
    assert (first.status_code, first.json()) == (200, {"status": "deleted"})
    assert error(second) == (404, "NOT_FOUND", None)
    await door.files.collect(older_than=NOW + timedelta(days=1))
    document = await door.files.get_document("t1", "doc_1")
    assert b"".join([part async for part in door.files.read_bytes(document.sha256)]) == data


@pytest.mark.accept("004-29", "004-30", "004-32")
async def test_a_document_is_taken_in_once(door: Door) -> None:
    await ThreadRows(door.db).commit(opened())
    async with open_extractor() as extractor:
        documents = Documents(
            files=door.files, extractor=extractor, clock=lambda: NOW, numbers=NumberRows(door.db)
        )
        data = pdf("one", "two", "three")
        file = await door.uploads.add("Big Report.pdf", whole(data), owner=ANN)
        taken = await documents.take_in("doc_1", "t1", file)
        assert (taken.document.name, taken.document.ext, taken.document.file_id) == (
            "Big Report",
            "pdf",
            file.id,
        )
        assert [item.data for item in taken.contents] == ["one", "two", "three"]
        assert taken.warnings == ()
        assert await door.files.contents("t1", "doc_1") == list(taken.contents)
        again = await documents.take_in("doc_1", "t1", file)
        assert again.document == taken.document
        assert list(again.contents) == list(taken.contents)

        broken = await door.uploads.add("broken.pdf", whole(data[:200]), owner=ANN)
        kept = await documents.take_in("doc_2", "t1", broken)
        assert kept.contents == ()
        assert "damaged" in kept.warnings[0]
        stored = [part async for part in door.files.read_bytes(kept.document.sha256)]
        assert b"".join(stored) == data[:200]
    assert [one.id for one in await door.files.find_documents("t1")] == ["doc_1", "doc_2"]


async def test_an_agents_document_has_the_same_bounds(door: Door) -> None:
    with pytest.raises(Invalid, match="at most"):
        await door.uploads.add("x", whole(b"a" * (LIMIT + 1)), owner=ANN)
    assert await door.files.find_files() == []


async def test_a_full_disk_is_said_to_be_full(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clew.documents.uploads.SpooledTemporaryFile", lambda **_: FileIO("/dev/full", "r+b"))
    async with door.client() as client:
        answer = await client.post("/api/files", files={"file": b"x"})
    assert error(answer) == (507, "STORAGE_FULL", None)


async def test_the_form_is_described(door: Door) -> None:
    async with door.client() as client:
        document = (await client.get("/openapi.json")).json()
    operation = document["paths"]["/api/files"]["post"]
    assert "multipart/form-data" in operation["requestBody"]["content"]
    assert {"200", "400", "401", "403", "408", "413", "507"} <= set(operation["responses"])
