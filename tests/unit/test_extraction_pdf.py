"""PDF and images."""

import base64
import io

import pytest
from PIL import Image
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from clew.documents.extraction.pdf import MAX_IMAGES
from tests.made_files import giant_png, image, pdf, phone_photo, read_here


def test_a_page_is_an_item_and_its_images_follow_it() -> None:
    picture, photo = image(), image("JPEG", colour=(1, 2, 3))
    found = read_here("r.pdf", pdf("Erste Seite - ä", "Two", "Three", images={1: [picture], 2: [photo]}))
    assert [(item.sequence_nr, item.name, item.content_type) for item in found.contents] == [
        (1, "page_1", "text/plain"),
        (2, "page_1_image_1", "image/png"),
        (3, "page_2", "text/plain"),
        (4, "page_2_image_1", "image/jpeg"),
        (5, "page_3", "text/plain"),
    ]
    first, drawn, _, jpeg, _ = found.contents
    assert first.data == "Erste Seite - ä"
    assert first.metadata["page"] == 1
    assert first.metadata["pages"] == 3
    assert first.summary == "Erste Seite - ä"
    assert (drawn.metadata["isText"], drawn.metadata["base64Encoded"]) == (False, True)
    pixel = Image.open(io.BytesIO(base64.b64decode(drawn.data))).convert("RGB").getpixel((5, 5))
    assert pixel == (200, 30, 40)
    assert base64.b64decode(jpeg.data) == photo, "a JPEG is kept as it is"
    assert found.warnings == ()


def test_an_image_on_every_page_is_kept_once() -> None:
    logo = image()
    found = read_here("r.pdf", pdf("a", "b", "c", images={1: [logo], 2: [logo], 3: [logo]}))
    assert [item.name for item in found.contents if not item.metadata["isText"]] == ["page_1_image_1"]


def test_dots_and_rules_are_not_images() -> None:
    found = read_here("r.pdf", pdf("a", images={1: [image(width=500, height=2)]}))
    assert [item.name for item in found.contents] == ["page_1"]


def test_many_images_end_somewhere() -> None:
    pictures = [image(width=9, height=9, colour=(n % 256, n // 256, 0)) for n in range(MAX_IMAGES + 20)]
    found = read_here("r.pdf", pdf("a", images={1: pictures}))
    assert len(found.contents) == 1 + MAX_IMAGES
    assert f"first {MAX_IMAGES} images" in found.warnings[0]


def test_pages_without_text_are_said_to_be_scanned() -> None:
    found = read_here("scan.pdf", pdf("", images={1: [image()]}))
    assert [item.summary for item in found.contents] == ["(no text)", "PNG, 64 x 48"]
    assert "scanned" in found.warnings[0]


def test_a_password_is_not_guessed() -> None:
    out = io.BytesIO()
    canvas = Canvas(out, encrypt=StandardEncryption("secret", canPrint=0))
    canvas.drawString(72, 700, "hidden")
    canvas.save()
    found = read_here("r.pdf", out.getvalue())
    assert found.contents == ()
    assert found.warnings == ("the PDF asks for a password",)


@pytest.mark.parametrize(
    "data",
    [
        pdf("x" * 2000)[:400],
        b"%PDF-1.7\nnothing else",
        b"not a PDF at all",
        b"",
        pdf("x")[:-300] + b"\xff" * 300,
    ],
    ids=["truncated", "header only", "text", "empty", "no table"],
)
def test_a_damaged_pdf_gives_a_warning_or_what_can_be_saved(data: bytes) -> None:
    found = read_here("r.pdf", data)
    if found.contents:
        assert found.contents[0].data == "x", "pdfium mends what it can"
    else:
        assert "damaged" in found.warnings[0]


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP"])
def test_an_image_is_kept_as_it_came(format: str) -> None:
    data = image(format)
    found = read_here(f"x.{format.lower()}", data)
    (item,) = found.contents
    assert base64.b64decode(item.data) == data
    assert item.metadata == {
        "isText": False,
        "base64Encoded": True,
        "aiProcessed": False,
        "width": 64,
        "height": 48,
        "frames": 1,
    }
    assert item.summary == f"{format}, 64 x 48"
    assert item.content_type == f"image/{format.lower()}"


def test_a_photo_of_a_phone_is_a_jpeg() -> None:
    (item,) = read_here("p.jpg", phone_photo()).contents
    assert item.summary == "JPEG, 64 x 48"
    assert item.content_type == "image/jpeg"


def test_the_content_decides_which_image_it_is() -> None:
    (item,) = read_here("x.png", image("JPEG")).contents
    assert (item.ext, item.content_type) == ("jpg", "image/jpeg")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.png", image()[:60]),
        ("x.png", image()[:-30] + b"\0" * 30),
        ("x.jpg", image("JPEG", width=400, height=400)[:1000]),
        ("x.gif", image("GIF", width=400, height=400)[:60]),
        ("x.webp", image("WEBP", width=400, height=400)[:60]),
        ("x.png", b"\x89PNG\r\n\x1a\n"),
        ("x.png", b"hello"),
    ],
)
def test_a_damaged_image_gives_a_warning(name: str, data: bytes) -> None:
    found = read_here(name, data)
    assert found.contents == ()
    assert "damaged" in found.warnings[0]


def test_a_gigantic_image_is_refused_by_its_header() -> None:
    found = read_here("x.png", giant_png())
    assert found.contents == ()
    assert found.warnings == ("50,000 x 50,000 pixels are more than 64 million",)


def test_an_image_too_large_to_keep_is_left_out() -> None:
    found = read_here("x.png", image(), output_bytes=100)
    assert found.contents == ()
    assert "left out" in found.warnings[0]
