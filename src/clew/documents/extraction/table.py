"""CSV and JSON: kept as their text, with the shape of what is in it."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from io import StringIO

from clew.documents.extraction.reading import Reading, SourceFile
from clew.documents.extraction.text import decode
from clew.domain.thread import Json

_DELIMITERS = ",;\t|"
_HEADER_CELLS = 50
_CELL_CHARACTERS = 80
_SUMMARY_CHARACTERS = 300
# Parsed, JSON takes ten times its size.
_PARSED_BYTES = 8 * 2**20
_NO_FIELD_LIMIT = 2**31 - 1


def read_csv(source: SourceFile, reading: Reading) -> None:
    text, encoding = decode(source.data)
    delimiter = "\t" if source.extension == "tsv" else _delimiter(text)
    # The default refuses a cell of 128 KB, which a spreadsheet may well hold.
    csv.field_size_limit(_NO_FIELD_LIMIT)
    rows, columns, header = 0, 0, list[str]()
    try:
        for row in csv.reader(StringIO(text, newline=""), delimiter=delimiter):
            if not row:
                continue
            if not rows:
                header = row
            rows += 1
            columns = max(columns, len(row))
    except csv.Error:
        reading.warn(f"row {rows + 1} is not CSV; the text is kept as it is")
    reading.text(
        text,
        ext=source.extension or "csv",
        media="text/tab-separated-values" if delimiter == "\t" else "text/csv",
        summary=shape(max(0, rows - 1), columns, header),
        encoding=encoding,
        delimiter=delimiter,
        rows=max(0, rows - 1),
        columns=columns,
        header=short_header(header),
    )


def read_json(source: SourceFile, reading: Reading) -> None:
    text, encoding = decode(source.data)
    media, about, summary = "application/json", dict[str, Json](), None
    if len(text) <= _PARSED_BYTES:
        try:
            about, summary = _json_shape(json.loads(text))
        except (ValueError, RecursionError):
            media = "text/plain"
            reading.warn("it is not valid JSON; it is kept as text")
    reading.text(text, ext="json", media=media, summary=summary, encoding=encoding, **about)


def shape(rows: int, columns: int, header: Iterable[str]) -> str:
    """`120 x 3: region, month, sales` says what a table is in any language."""
    return f"{rows} x {columns}: {', '.join(short_header(header))}"[:_SUMMARY_CHARACTERS].removesuffix(": ")


def short_header(header: Iterable[str]) -> list[str]:
    return [" ".join(cell.split())[:_CELL_CHARACTERS] for cell in list(header)[:_HEADER_CELLS]]


def add_table(rows: Iterable[Sequence[str]], part: str, reading: Reading, **about: Json) -> None:
    """A table out of a document, as CSV. Its first row is taken for its header."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header: Sequence[str] = ()
    count, columns = 0, 0
    for row in rows:
        header = header if count else row
        count += 1
        columns = max(columns, len(row))
        writer.writerow(row)
    reading.text(
        out.getvalue(),
        part=part,
        ext="csv",
        media="text/csv",
        summary=shape(max(0, count - 1), columns, header),
        delimiter=",",
        rows=max(0, count - 1),
        columns=columns,
        header=short_header(header),
        **about,
    )


def _delimiter(text: str) -> str:
    """The one that cuts the first lines into the same number of cells, and into most."""
    lines = [line for line in text[:20_000].splitlines()[:20] if line.strip()]

    def fit(delimiter: str) -> tuple[int, int]:
        ((cells, lines_alike),) = Counter(line.count(delimiter) for line in lines).most_common(1)
        return (lines_alike, cells) if cells else (0, 0)

    return max(_DELIMITERS, key=fit) if lines else ","


def _json_shape(value: Json) -> tuple[dict[str, Json], str | None]:
    match value:
        case dict():
            keys = short_header(map(str, value))
            return {"kind": "object", "keys": keys}, f"{{{', '.join(keys)}}}"[:_SUMMARY_CHARACTERS]
        case [dict() as first, *_]:
            keys = short_header(map(str, first))
            summary = f"{len(value)} x {{{', '.join(keys)}}}"[:_SUMMARY_CHARACTERS]
            return {"kind": "array", "length": len(value), "keys": keys}, summary
        case list():
            return {"kind": "array", "length": len(value)}, None
        case _:
            return {"kind": "value"}, None
