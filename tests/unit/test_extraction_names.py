"""What a file may be called, and what its first bytes say it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.documents import (
    MAX_NAME_BYTES,
    clean_name,
    clean_path,
    clean_text,
    looks_like_text,
    media_type,
    split_name,
)
from tests.made_files import image, packed, pdf


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("Übersicht 2026.xlsx", "Übersicht 2026.xlsx"),
        ("../../etc/passwd", "passwd"),
        ("/etc/cron.d/x", "x"),
        ("C:\\Windows\\system.ini", "system.ini"),
        ("..\\..\\x.txt", "x.txt"),
        ("a\0b.txt", "ab.txt"),
        ("a\r\nSet-Cookie: x.txt", "aSet-Cookie: x.txt"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("\u200b\ufeffx.txt", "x.txt"),
        ("नमस्\u200dते.txt", "नमस्\u200dते.txt"),
        (".htaccess", ".htaccess"),
        ("..", "file"),
        ("", "file"),
        ("dir/", "file"),
        ("name. . ", "name"),
        ("name\u00a0. .\u3000", "name"),
        ("\ud800.txt", ".txt"),
        ("<script>alert(1)</script>.svg", "script>.svg"),
    ],
)
def test_a_name_is_what_people_see_and_nothing_more(raw: str, name: str) -> None:
    assert clean_name(raw) == name


def test_a_long_name_keeps_its_extension() -> None:
    name = clean_name("é" * 300 + ".pdf")
    assert len(name.encode()) <= MAX_NAME_BYTES
    assert name.endswith("é.pdf")
    assert len(clean_name("x" * 300).encode()) == MAX_NAME_BYTES


@given(st.text(max_size=400))
def test_any_name_becomes_one_that_can_be_stored_and_is_no_path(raw: str) -> None:
    name = clean_name(raw)
    assert name
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert not set(name) & set("/\\\0\r\n\u202e")
    assert name not in (".", "..")
    assert clean_name(name) == name


@given(st.text(alphabet="./\\ab:C \0", max_size=30))
def test_a_path_inside_an_archive_leads_nowhere_else(raw: str) -> None:
    steps = clean_path(raw).split("/")
    assert all(steps)
    assert not {".", ".."} & set(steps)
    assert "\\" not in clean_path(raw)


@pytest.mark.parametrize(
    ("name", "stem", "extension"),
    [
        ("report.PDF", "report", "pdf"),
        ("a.tar.gz", "a.tar", "gz"),
        (".htaccess", ".htaccess", ""),
        ("none", "none", ""),
        ("dot.", "dot.", ""),
        ("a.b c", "a.b c", ""),
        ("x." + "y" * 30, "x." + "y" * 30, ""),
    ],
)
def test_name_and_extension(name: str, stem: str, extension: str) -> None:
    assert split_name(name) == (stem, extension)


@pytest.mark.parametrize(
    ("name", "head", "media"),
    [
        ("a.txt", b"hello", "text/plain"),
        ("a.md", b"# hello", "text/markdown"),
        ("a.py", b"print()", "text/plain"),
        ("a.json", b"{}", "application/json"),
        ("a.svg", b"<svg onload='x()'>", "image/svg+xml"),
        ("a.txt", pdf("x"), "application/pdf"),
        ("a.pdf", b"hello", "text/plain"),
        ("a.jpg", image("PNG"), "image/png"),
        ("a.webp", image("WEBP"), "image/webp"),
        ("a.zip", packed({}), "application/zip"),
        (
            "a.docx",
            packed({"x": b""}),
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
        ("a.exe", b"MZ\0\0\1\2", "application/octet-stream"),
        ("a.txt", bytes(range(256)), "application/octet-stream"),
        ("a.txt", "wide".encode("utf-16"), "text/plain"),
        ("a.gif", b"GIF89a/*\0*/=1;alert(1)//", "image/gif"),
    ],
)
def test_the_content_decides_what_a_file_is(name: str, head: bytes, media: str) -> None:
    assert media_type(name, head) == media


def test_text_in_any_encoding_looks_like_text() -> None:
    assert looks_like_text(b"")
    assert looks_like_text("Grüße".encode("latin-1"))
    assert looks_like_text("日本語".encode("shift_jis"))
    assert not looks_like_text(b"\x00\x01")


@given(st.text())
def test_cleaned_text_can_be_stored(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned
    cleaned.encode()
    assert clean_text(cleaned) == cleaned


def test_lone_halves_of_surrogate_pairs_are_replaced() -> None:
    assert clean_text("a\ud800b\0c 😀") == "a\ufffdb\ufffdc 😀"
