"""Zip bomb checks before anything is unpacked: archives, and every office document."""

from io import BytesIO
from zipfile import BadZipFile, LargeZipFile, ZipFile

from clew.documents.extraction.reading import HARMLESS_BYTES, MAX_ENTRIES, MAX_RATIO, Unreadable

# This signature precedes each name in a zip's directory. Counting opens nothing, and a directory that
# claims to be shorter than it is does not change the count.
_ENTRY = b"PK\x01\x02"


def open_zip(data: bytes) -> ZipFile:
    """Raises Unreadable for a damaged archive, and for one that would unpack to too much."""
    if data.count(_ENTRY) > MAX_ENTRIES:
        raise Unreadable(f"refused: it holds more than {MAX_ENTRIES:,} files")
    try:
        archive = ZipFile(BytesIO(data))
    except (BadZipFile, LargeZipFile, ValueError, OSError, EOFError) as exc:
        raise Unreadable("the archive is damaged") from exc
    unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > max(HARMLESS_BYTES, MAX_RATIO * len(data)):
        raise Unreadable(f"refused: it would unpack to more than {MAX_RATIO} times its size")
    return archive
