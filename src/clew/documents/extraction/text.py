"""Plain text and Markdown; and detection of their encoding."""

import codecs

from charset_normalizer import from_bytes

from clew.documents.extraction.reading import Reading, SourceFile
from clew.domain.documents import media_type

# The beginning is enough to detect an encoding; reading more is slow.
_SAMPLE = 16 * 1024

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_text(source: SourceFile, reading: Reading) -> None:
    text, encoding = decode(source.data)
    reading.text(
        text,
        ext=source.extension or "txt",
        media=media_type(source.name, source.data),
        encoding=encoding,
        characters=len(text),
        lines=text.count("\n") + 1 if text else 0,
    )


def decode(data: bytes) -> tuple[str, str]:
    """The text and the encoding it was in. What does not fit the encoding is replaced, never lost silently."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace"), encoding
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        best = from_bytes(data[:_SAMPLE]).best()
        encoding = "cp1252" if best is None or best.encoding in {"ascii", "utf_8"} else best.encoding
        return data.decode(encoding, errors="replace"), encoding.replace("_", "-")
