"""Zip archives: a list of the entries, then every entry that can be read."""

import zlib
from zipfile import BadZipFile, ZipFile, ZipInfo

from clew.documents.extraction.bombs import open_zip
from clew.documents.extraction.reading import MAX_DEPTH, Reading, SourceFile, Unreadable
from clew.domain.documents import clean_path

_ENCRYPTED = 0x1


def read_zip(source: SourceFile, reading: Reading) -> None:
    if reading.depth >= MAX_DEPTH:
        raise Unreadable(f"refused: archives are packed into each other more than {MAX_DEPTH} deep")
    with open_zip(source.data) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        listing = "\n".join(f"{clean_path(entry.filename)}\t{entry.file_size}" for entry in entries)
        reading.text(listing, summary=f"{len(entries)}: {listing}"[:300], entries=len(entries))
        for number, entry in enumerate(entries, 1):
            _read_entry(archive, entry, reading)
            reading.progress(number, len(entries))


def _read_entry(archive: ZipFile, entry: ZipInfo, reading: Reading) -> None:
    path = clean_path(entry.filename)
    if entry.flag_bits & _ENCRYPTED:
        reading.warn(f"{path} is encrypted")
        return
    try:
        data = archive.read(entry)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError, RuntimeError):
        reading.warn(f"{path} is damaged")
        return
    reading.inside(path, data)
