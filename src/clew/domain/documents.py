"""Documents: what a file may be called, what its first bytes say it is, and what was read out of it."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clew.domain.records import ContentItem
from clew.domain.thread import Json

MAX_NAME_BYTES = 255
_HEAD = 4096

_JOINERS = (
    "\u200c\u200d"  # letters of some scripts need them; every other format character can disguise a name
)
_EXTENSION = re.compile(r"[A-Za-z0-9_-]{1,16}")

BY_EXTENSION: Mapping[str, str] = {
    "txt": "text/plain",
    "text": "text/plain",
    "log": "text/plain",
    "md": "text/markdown",
    "markdown": "text/markdown",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "json": "application/json",
    "html": "text/html",
    "htm": "text/html",
    "xml": "application/xml",
    "svg": "image/svg+xml",
    "eml": "message/rfc822",
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "docm": "application/vnd.ms-word.document.macroenabled.12",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "pptm": "application/vnd.ms-powerpoint.presentation.macroenabled.12",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "zip": "application/zip",
}
OFFICE = frozenset({"docx", "docm", "xlsx", "xlsm", "pptx", "pptm"})
UNKNOWN = "application/octet-stream"

_MAGIC: Sequence[tuple[bytes, str]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),  # an empty one
)
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")  # UTF-16 and UTF-32: the texts that may hold zero bytes
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What a file holds, as far as it could be read; and for a person, what could not."""

    contents: Sequence[ContentItem] = ()
    warnings: Sequence[str] = ()


def clean_name(raw: str) -> str:
    """A name to show and to download under. It never becomes a path: files are kept under ids of ours."""
    name = re.split(r"[/\\]", raw)[-1]
    name = "".join(character for character in name if _is_visible(character)).lstrip()
    return _without_end(_shorten(_without_end(name))) or "file"


def _without_end(name: str) -> str:
    """Without dots and spaces of any kind, in any order, that it ends with."""
    end = len(name)
    while end and (name[end - 1] == "." or name[end - 1].isspace()):
        end -= 1
    return name[:end]


def clean_path(raw: str) -> str:
    """Where something stands inside an archive, to show: without a way out and without a root."""
    steps = (clean_name(step) for step in re.split(r"[/\\]", raw) if step.strip(". ") and step[1:] != ":")
    return "/".join(steps)[-MAX_NAME_BYTES:] or "file"


def split_name(name: str) -> tuple[str, str]:
    """`report.final` and `pdf` of `report.final.PDF`. A name that only begins with a dot has no extension."""
    stem, dot, extension = name.rpartition(".")
    if not dot or not stem.strip(".") or not _EXTENSION.fullmatch(extension):
        return name, ""
    return stem, extension.lower()


def media_type(name: str, head: bytes) -> str:
    """What the file is by its first bytes; its name only chooses among what these allow."""
    _, extension = split_name(name)
    by_name = BY_EXTENSION.get(extension, "")
    by_content = magic(head)
    if by_content == "application/zip" and extension in OFFICE:
        return by_name
    if by_content is not None:
        return by_content
    if looks_like_text(head):
        return by_name if is_text_type(by_name) else "text/plain"
    return UNKNOWN


def magic(head: bytes) -> str | None:
    """The binary format the bytes declare themselves to be; None for text and for what we do not know."""
    for mark, media in _MAGIC:
        if head.startswith(mark):
            return media
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    # Readers of PDF accept a preamble, so a file with one counts as a PDF.
    return "application/pdf" if b"%PDF-" in head[:1024] else None


def looks_like_text(data: bytes) -> bool:
    head = data[:_HEAD]
    if head.startswith(_WIDE_MARKS):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return b"\0" not in head and controls * 50 <= len(head)


def is_text_type(media: str) -> bool:
    return media.startswith("text/") or media in {
        "application/json",
        "application/xml",
        "image/svg+xml",
        "message/rfc822",
    }


def clean_json(value: Json) -> Json:
    """The same for every text in it, names included."""
    match value:
        case str():
            return clean_text(value)
        case list() | tuple():
            return [clean_json(item) for item in value]
        case Mapping():
            return {
                clean_text(name) if isinstance(name, str) else name: clean_json(item)
                for name, item in value.items()
            }
        case _:
            return value


def clean_text(text: str) -> str:
    """Without what no database can hold: NUL, and halves of surrogate pairs."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _is_visible(character: str) -> bool:
    category = unicodedata.category(character)
    return category not in {"Cc", "Cf", "Cs", "Zl", "Zp"} or character in _JOINERS


def _shorten(name: str) -> str:
    """To what any file system takes, with the extension kept: it says what the file is."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    stem, dot, extension = name.rpartition(".")
    tail = f"{dot}{extension}" if stem and _EXTENSION.fullmatch(extension) else ""
    kept = name.encode()[: MAX_NAME_BYTES - len(tail)]
    return kept.decode(errors="ignore") + tail
