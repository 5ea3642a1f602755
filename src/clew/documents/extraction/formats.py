"""File formats: which reader takes a file, and the warning for one that none can read."""

from collections.abc import Callable, Mapping

from clew.documents.extraction.archive import read_zip
from clew.documents.extraction.bombs import open_zip
from clew.documents.extraction.html import read_html
from clew.documents.extraction.image import read_image
from clew.documents.extraction.mail import read_mail
from clew.documents.extraction.office import read_docx, read_pptx, read_xlsx
from clew.documents.extraction.pdf import read_pdf
from clew.documents.extraction.reading import Enough, Reading, SourceFile, Unreadable
from clew.documents.extraction.table import read_csv, read_json
from clew.documents.extraction.text import read_text
from clew.domain.documents import BY_EXTENSION, OFFICE, is_text_type, looks_like_text, magic, split_name

Reader = Callable[[SourceFile, Reading], None]

_BINARY: Mapping[str, Reader] = {
    "application/pdf": read_pdf,
    "image/png": read_image,
    "image/jpeg": read_image,
    "image/gif": read_image,
    "image/webp": read_image,
}
_TEXTS: Mapping[str, Reader] = {
    "text/csv": read_csv,
    "text/tab-separated-values": read_csv,
    "application/json": read_json,
    "text/html": read_html,
    "message/rfc822": read_mail,
}
# Where an office document keeps its main part.
_FOLDERS: Mapping[str, Reader] = {"word/": read_docx, "xl/": read_xlsx, "ppt/": read_pptx}


def read(source: SourceFile, reading: Reading) -> None:
    """Read what can be read. Whatever the bytes are, this ends in items and warnings; only Enough goes through."""
    try:
        reader_of(source)(source, reading)
    except Unreadable as exc:
        reading.warn(str(exc))
    except Enough:
        raise
    except MemoryError:
        reading.warn("it needs more memory than a file may take")
    except Exception as exc:  # noqa: BLE001 - parsers of damaged files raise anything
        reading.warn(f"it is damaged ({type(exc).__name__})")


def reader_of(source: SourceFile) -> Reader:
    """By content where that is clear, by name among texts. Raises Unreadable."""
    declared = magic(source.data)
    if declared == "application/zip":
        return _packed(source.data)
    if declared is not None:
        return _BINARY[declared]
    _, extension = split_name(source.name)
    by_name = BY_EXTENSION.get(extension, "")
    if by_name and (extension in OFFICE or not is_text_type(by_name)):
        raise Unreadable(f"it is damaged: it does not begin like a {extension} file")
    if not looks_like_text(source.data):
        raise Unreadable("there is no reader for this kind of file")
    if not by_name and source.data[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return read_html
    return _TEXTS.get(by_name, read_text)


def _packed(data: bytes) -> Reader:
    with open_zip(data) as archive:
        names = archive.namelist()
    if "[Content_Types].xml" in names:
        for folder, reader in _FOLDERS.items():
            if any(name.startswith(folder) for name in names):
                return reader
    return read_zip
