"""Archives and mails: what is inside them is read, and what would burst is not opened."""

import io
import random
import zipfile

import pytest

from clew.documents.extraction.reading import MAX_DEPTH, MAX_ENTRIES
from tests.made_files import image, mail, packed, pdf, read_here, word, workbook


def nested(levels: int) -> bytes:
    data = packed({"end.txt": b"the end"})
    for _ in range(levels - 1):
        data = packed({"in.zip": data})
    return data


def test_everything_in_an_archive_is_read() -> None:
    found = read_here(
        "all.zip",
        packed({"docs/a.txt": b"inside", "docs/b.pdf": pdf("A page."), "c.docx": word(), "d/": b""}),
    )
    assert [item.name for item in found.contents] == ["all", "docs/a", "docs/b/page_1", "c", "c/table_1"]
    listing = found.contents[0]
    assert listing.data.splitlines()[0] == "docs/a.txt\t6"
    assert listing.metadata["entries"] == 3
    assert found.contents[1].data == "inside"


def test_one_bad_file_does_not_spoil_the_others() -> None:
    found = read_here(
        "a.zip", packed({"bad.pdf": b"%PDF-1.4 no", "x/blob.bin": b"\0\1", "good.txt": b"fine"})
    )
    assert [item.name for item in found.contents] == ["a", "good"]
    assert found.warnings == (
        "bad.pdf: the PDF is damaged",
        "x/blob.bin: there is no reader for this kind of file",
    )


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "C:\\x\\y.txt", "a\0b.txt", "x\u202etxt.exe", "..", "d/../../e.txt"],
)
def test_names_in_archives_are_only_labels(name: str) -> None:
    found = read_here("a.zip", packed({name: b"text"}))
    inner = found.contents[1]
    assert not inner.name.startswith("/")
    assert not {".", ".."} & set(inner.name.split("/"))
    assert not set(inner.name) & set("\\\0\u202e")


def test_an_encrypted_or_damaged_entry_is_named() -> None:
    data = bytearray(packed({"a.txt": b"a" * 100, "b.txt": b"b"}, method=zipfile.ZIP_STORED))
    data[data.index(b"aaaa") + 10] ^= 0xFF
    found = read_here("x.zip", bytes(data))
    assert found.warnings == ("a.txt is damaged",)
    assert [item.name for item in found.contents] == ["x", "b"]


@pytest.mark.parametrize("levels", [1, MAX_DEPTH])
def test_archives_in_archives_are_opened(levels: int) -> None:
    found = read_here("a.zip", nested(levels))
    assert found.contents[-1].data == "the end"
    assert found.warnings == ()


def test_archives_too_deep_in_archives_are_not() -> None:
    found = read_here("a.zip", nested(MAX_DEPTH + 7))
    assert len(found.contents) == MAX_DEPTH
    assert "more than 3 deep" in found.warnings[0]


def refused(name: str, data: bytes) -> str:
    found = read_here(name, data)
    assert found.contents == ()
    (warning,) = found.warnings
    return warning


@pytest.mark.fault("F7")
@pytest.mark.parametrize("name", ["bomb.zip", "bomb.docx", "bomb.xlsx", "bomb.pptx"])
def test_what_unpacks_to_a_hundred_times_its_size_is_refused(name: str) -> None:
    folder = {"docx": "word/document.xml", "xlsx": "xl/sharedStrings.xml", "pptx": "ppt/slides/slide1.xml"}
    bomb = packed({"[Content_Types].xml": b"<Types/>", folder.get(name[5:], "zeros"): b"\0" * 40_000_000})
    assert "100 times its size" in refused(name, bomb)


def test_ten_thousand_files_are_enough() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for n in range(MAX_ENTRIES + 1):
            archive.writestr(f"{n}", b"")
    assert "more than 10,000 files" in refused("many.zip", out.getvalue())


@pytest.mark.fault("F7")
def test_a_million_files_are_refused_without_reading_their_names() -> None:
    entry = b"PK\x01\x02" + b"\0" * 42
    directory = entry * 1_000_000
    end = b"PK\x05\x06" + b"\0" * 4 + b"\xff" * 4 + len(directory).to_bytes(4, "little") + b"\0" * 6
    assert "more than 10,000 files" in refused("many.zip", b"PK\x03\x04" + directory + end)


def test_overlapping_entries_are_refused() -> None:
    """Fifield's bomb: every name points at the same packed bytes."""
    kernel = packed({"0": b"\0" * 1_000_000})
    local = kernel[: kernel.index(b"PK\x01\x02")]
    central = kernel[kernel.index(b"PK\x01\x02") : kernel.index(b"PK\x05\x06")]
    count = 2000
    directory = central * count
    end = (
        b"PK\x05\x06"
        + b"\0" * 4
        + count.to_bytes(2, "little") * 2
        + len(directory).to_bytes(4, "little")
        + len(local).to_bytes(4, "little")
        + b"\0\0"
    )
    assert "100 times its size" in refused("overlap.zip", local + directory + end)


def test_archives_that_are_harmless_alone_are_counted_together() -> None:
    """The way of 42.zip: each layer packs moderately, all layers together do not."""
    noise = random.Random(1).randbytes(100)
    leaf = packed({"0.txt": noise + b" " * 9_900_000})
    middle = packed({f"{n}.zip": leaf for n in range(16)})
    top = packed({f"{n}.zip": middle for n in range(16)})
    found = read_here("42.zip", top)
    assert any("100 times its size" in warning for warning in found.warnings)
    assert sum(len(item.data) for item in found.contents) < 100 * len(top) + 10 * 2**20


def test_entries_are_counted_over_all_archives() -> None:
    inner = packed({f"{n}.bin": b"\0" for n in range(2500)})
    found = read_here("a.zip", packed({f"{n}.zip": inner for n in range(5)}))
    assert any("more than 10,000 files" in warning for warning in found.warnings)


def test_what_packs_well_and_stays_small_is_no_bomb() -> None:
    found = read_here("a.zip", packed({"log.txt": b"same line\n" * 500_000}))
    assert len(found.contents) == 2
    assert found.warnings == ()


def test_a_mail_is_its_text_and_its_attachments() -> None:
    found = read_here("m.eml", mail("Guten Tag", attached={"t.xlsx": workbook(), "p.png": image()}))
    body = found.contents[0]
    assert body.data == "From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: Grüße\n\nGuten Tag\n"
    assert body.metadata["subject"] == "Grüße"
    assert body.metadata["attachments"] == 2
    assert [item.name for item in found.contents[1:]] == ["t/Sales", "t/Notes", "p"]


def test_a_mail_in_html_alone_is_read_as_text() -> None:
    raw = b"From: a@b.c\nSubject: x\nContent-Type: text/html; charset=latin-1\n\n<p>Gr\xfc\xdfe <script>x()</script></p>"
    assert read_here("m.eml", raw).contents[0].data.endswith("\n\nGrüße")


def test_mails_in_mails_end_somewhere() -> None:
    data = mail("innermost")
    for _ in range(6):
        data = mail("outer", attached={"fwd.eml": data})
    found = read_here("m.eml", data)
    assert len([item for item in found.contents if "From:" in item.data]) == MAX_DEPTH
    assert any("more than 3 deep" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no headers here",
        b"From: a\nContent-Type: multipart/mixed\n\nno boundary",
        b"From: =?utf-8?b?!!!?=\nSubject: =?x-unknown?q?a?=\n\nbody",
        b"From: a\nContent-Type: text/plain; charset=no-such\n\nbody",
        b"From: a\nContent-Type: multipart/mixed; boundary=x\n\n" + b"--x\n\n" * 5000,
        b"Subject: " + b"a" * 100_000 + b"\n\nbody",
        b"To: " + b"<" * 5000 + b"\nFrom: x\n\nbody",
    ],
    ids=["empty", "text", "no boundary", "bad words", "charset", "parts", "long", "brackets"],
)
def test_odd_mails_are_read_or_said_to_be_none(raw: bytes) -> None:
    found = read_here("m.eml", raw)
    assert found.contents or found.warnings
