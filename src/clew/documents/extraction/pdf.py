"""PDF: one item a page, its images after it, and at the end the tables that are drawn with lines."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from io import BytesIO

import pdfplumber
import pypdfium2  # type: ignore[import-untyped]  # it ships no types
from pypdfium2 import raw

from clew.documents.extraction.image import check_pixels, embedded
from clew.documents.extraction.reading import MAX_PIXELS, Reading, SourceFile, Unreadable
from clew.documents.extraction.table import add_table

MAX_IMAGES = 500
# Limit for all images of a document together: decoding is the most expensive part of a PDF.
_DECODED_PIXELS = 4 * MAX_PIXELS
# Fewer lines draw no table.
_LINES = 4
_MAX_TABLE_PAGES = 100
# What finding tables leaves of the time for a file, in seconds of computing.
_SPARED_SECONDS = 2.0


def read_pdf(source: SourceFile, reading: Reading) -> None:
    try:
        pdf = pypdfium2.PdfDocument(source.data)
    except pypdfium2.PdfiumError as exc:
        if getattr(exc, "err_code", None) == raw.FPDF_ERR_PASSWORD:
            raise Unreadable("the PDF asks for a password") from exc
        raise Unreadable("the PDF is damaged") from exc
    pages = len(pdf)
    if not pages:
        raise Unreadable("the PDF has no page that can be read")
    pictures = Pictures(reading)
    has_text = False
    ruled: list[int] = []
    for number in range(1, pages + 1):
        try:
            page = pdf[number - 1]
            text = _text(page)
        except pypdfium2.PdfiumError:
            reading.warn(f"page {number} is damaged")
            continue
        has_text = has_text or bool(text)
        part = f"page_{number}"
        reading.text(text, part=part, page=number, pages=pages)
        pictures.of_page(page, part)
        if text and _lines(page) >= _LINES:
            ruled.append(number)
        page.close()
        reading.progress(number, pages)
    if not has_text:
        reading.warn("there is no text on its pages; they may be scanned")
    _add_tables(source.data, ruled, reading)


def _lines(page: pypdfium2.PdfPage) -> int:
    return sum(1 for _ in page.get_objects([raw.FPDF_PAGEOBJ_PATH], max_depth=2))


def _add_tables(data: bytes, pages: Sequence[int], reading: Reading) -> None:
    """The tables of the pages, while there is time: finding them is slower than everything else."""
    for done, number in enumerate(pages):
        if done == _MAX_TABLE_PAGES or reading.time_left() < _SPARED_SECONDS:
            reading.warn(f"tables were looked for on {done} of {len(pages)} pages only; the text is complete")
            return
        try:
            with pdfplumber.open(BytesIO(data), pages=[number]) as pdf:
                found = [_cells(table) for page in pdf.pages for table in page.extract_tables()]
        except Exception:  # noqa: BLE001 - its parser raises anything, and the text of the page is there
            reading.warn(f"the tables on page {number} could not be read; its text is complete")
            continue
        for at, table in enumerate(table for table in found if len(table) > 1 and len(table[0]) > 1):
            add_table(table, f"page_{number}_table_{at + 1}", reading, page=number, table=at + 1)


def _cells(table: Sequence[Sequence[str | None]]) -> list[list[str]]:
    return [[" ".join((cell or "").split()) for cell in row] for row in table]


class Pictures:
    """The images of a document, each once however many pages show it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._seen: set[bytes] = set()
        self._pixels = _DECODED_PIXELS

    def of_page(self, page: pypdfium2.PdfPage, part: str) -> None:
        number = 0
        try:
            for data in self._new(page):
                number += embedded(data, f"{part}_image_{number + 1}", self._reading)
        except pypdfium2.PdfiumError:
            self._reading.warn(f"an image on {part} is damaged")

    def _new(self, page: pypdfium2.PdfPage) -> Iterator[bytes]:
        for image in page.get_objects([raw.FPDF_PAGEOBJ_IMAGE]):
            if len(self._seen) >= MAX_IMAGES:
                return
            width, height = image.get_px_size()
            if not self._may_decode(width, height):
                continue
            stream = bytes(image.get_data(decode_simple=True))
            digest = sha256(b"%d %d " % (width, height) + stream).digest()
            if digest in self._seen:
                continue
            self._seen.add(digest)
            if len(self._seen) == MAX_IMAGES:
                self._reading.warn(f"only the first {MAX_IMAGES} images were kept")
            is_jpeg = image.get_filters(skip_simple=True) == ["DCTDecode"]
            yield stream if is_jpeg else _png(image)

    def _may_decode(self, width: int, height: int) -> bool:
        try:
            check_pixels(width, height)
        except Unreadable as exc:
            self._reading.warn(f"an image was left out: {exc}")
            return False
        self._pixels -= width * height
        return self._pixels >= 0


def _png(image: pypdfium2.PdfImage) -> bytes:
    out = BytesIO()
    image.get_bitmap().to_pil().save(out, "PNG", compress_level=3)
    return out.getvalue()


def _text(page: pypdfium2.PdfPage) -> str:
    textpage = page.get_textpage()
    text: str = textpage.get_text_bounded(errors="replace")
    textpage.close()
    # U+FFFE is pdfium's mark for a hyphen at the end of a line.
    return text.replace("\r\n", "\n").replace("\ufffe", "-").rstrip("\0").strip()
