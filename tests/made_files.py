"""Real files of every format, made on the spot; and the readers called directly, without a process around them."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from datetime import date
from email.message import EmailMessage

import docx
import pptx
from openpyxl import Workbook
from openpyxl.drawing.image import Image as SheetImage
from PIL import Image
from pptx.util import Inches
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from clew.documents.extraction.formats import read
from clew.documents.extraction.reading import Enough, ReadBudget, Reading, SourceFile
from clew.domain.documents import Extraction
from clew.domain.records import ContentItem

OUTPUT_BYTES = 50 * 2**20


class Collected:
    """A sink that keeps what comes."""

    def __init__(self) -> None:
        self.contents: list[ContentItem] = []
        self.warnings: list[str] = []
        self.steps: list[tuple[int, int]] = []

    def item(self, item: ContentItem) -> None:
        self.contents.append(item)

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def progress(self, done: int, total: int) -> None:
        self.steps.append((done, total))


def read_here(name: str, data: bytes, *, output_bytes: int = OUTPUT_BYTES) -> Extraction:
    sink = Collected()
    try:
        read(
            SourceFile(name, data),
            Reading(read, sink, ReadBudget.of(data, output_bytes=output_bytes), path=name),
        )
    except Enough as exc:
        sink.warning(str(exc))
    return Extraction(contents=tuple(sink.contents), warnings=tuple(sink.warnings))


def image(
    format: str = "PNG", *, width: int = 64, height: int = 48, colour: tuple[int, int, int] = (200, 30, 40)
) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, format)
    return out.getvalue()


def phone_photo() -> bytes:
    """Two JPEGs in one file, with the data a camera adds."""
    out = io.BytesIO()
    first, second = (Image.new("RGB", (64, 48), colour) for colour in ((9, 9, 9), (8, 8, 8)))
    exif = Image.Exif()
    exif[0x0110] = "a camera"
    first.save(out, "MPO", save_all=True, append_images=[second], exif=exif)
    return out.getvalue()


def giant_png(width: int = 50_000, height: int = 50_000) -> bytes:
    """A header that promises 2.5 billion pixels, and next to nothing behind it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    head = struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 100_000))
        + chunk(b"IEND", b"")
    )


def pdf(*pages: str, images: Mapping[int, Sequence[bytes]] | None = None) -> bytes:
    """`images` by the number of the page that shows them."""
    out = io.BytesIO()
    canvas = Canvas(out)
    for number, text in enumerate(pages, 1):
        for line, words in enumerate(text.splitlines()):
            canvas.drawString(72, 760 - 14 * line, words)
        for place, data in enumerate((images or {}).get(number, ())):
            canvas.drawImage(ImageReader(io.BytesIO(data)), 72, 100 + 80 * place)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def word(*, images: Sequence[bytes] = ()) -> bytes:
    document = docx.Document()
    document.add_heading("Quarterly report", 1)
    document.add_paragraph("Sales rose in the north.")
    document.add_paragraph("a point", style="List Bullet")
    rows = (("region", "sales"), ("north", "12"), ("a|b", ""))
    table = document.add_table(len(rows), 2)
    for row, cells in enumerate(rows):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    document.add_paragraph("The end.")
    for data in images:
        document.add_picture(io.BytesIO(data))
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def workbook(*, images: Sequence[bytes] = ()) -> bytes:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Sales"
    for row in (("region", "units", "day"), ("north", 3, date(2026, 1, 2)), ("süd", 2.5, None)):
        sheet.append(row)
    for place, data in enumerate(images):
        sheet.add_image(SheetImage(io.BytesIO(data)), f"E{2 + 10 * place}")
    hidden = book.create_sheet("Notes")
    hidden.append(["secret plan"])
    hidden.sheet_state = "hidden"
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def slides(*titles: str, images: Sequence[bytes] = ()) -> bytes:
    """`images` and the same notes on every slide."""
    show = pptx.Presentation()
    for title in titles:
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = "one\ntwo"
        for data in images:
            slide.shapes.add_picture(io.BytesIO(data), Inches(1), Inches(4))
        slide.notes_slide.notes_text_frame.text = "say it slowly"
    out = io.BytesIO()
    show.save(out)
    return out.getvalue()


def packed(files: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def mail(
    text: str = "Hello there", *, subject: str = "Grüße", attached: Mapping[str, bytes] | None = None
) -> bytes:
    message = EmailMessage()
    message["From"] = "Ann <ann@example.org>"
    message["To"] = "bob@example.org"
    message["Subject"] = subject
    message.set_content(text)
    message.add_alternative(f"<p>{text} <b>in HTML</b></p>", subtype="html")
    for name, data in (attached or {}).items():
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


HTML = b"""<!doctype html><html><head><title>A &amp; B</title><style>p {}</style><script>steal()</script></head>
<body><h1>Head</h1><p>One <b>bold</b> word.</p><div>left</div>right
<table><tr><td>1</td><td>2</td></tr></table><noscript>unseen</noscript></body></html>"""


def one_of_each() -> dict[str, bytes]:
    """By the name each would be uploaded under."""
    picture, photo = image(), image("JPEG", colour=(1, 2, 3))
    return {
        "plain.txt": "First line.\nZweite Zeile mit Grüßen.\n".encode(),
        "old.txt": "Schöne Grüße aus Köln, und einen guten Tag wünscht Jürgen.".encode("latin-1"),
        "read.me.md": b"# Title\n\nSome *text*.\n",
        "table.csv": b"region;sales\nnorth;12\nsouth;7\n",
        "data.json": b'[{"a": 1, "b": null}, {"a": 2}]',
        "page.html": HTML,
        "report.pdf": pdf("Page one says this.", "Page two.", "Three.", images={1: [picture], 2: [photo]}),
        "letter.docx": word(images=[picture]),
        "sheet.xlsx": workbook(images=[picture]),
        "show.pptx": slides("First", "Second", images=[picture]),
        "picture.png": picture,
        "photo.jpg": photo,
        "phone.jpg": phone_photo(),
        "moving.gif": image("GIF"),
        "modern.webp": image("WEBP"),
        "all.zip": packed({"docs/a.txt": b"inside", "docs/b.pdf": pdf("In the zip.")}),
        "mail.eml": mail(attached={"sheet.xlsx": workbook(), "fwd.eml": mail("older")}),
    }
