"""Word, Excel and PowerPoint: text in reading order, tables and sheets as CSV, images apart. Macros are never read."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from hashlib import sha256
from io import BytesIO
from itertools import islice
from typing import Any

from docx.opc.part import PartFactory
from docx.package import Package
from docx.parts.document import DocumentPart
from pptx import Presentation
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

from clew.documents.extraction.bombs import open_zip
from clew.documents.extraction.image import embedded
from clew.documents.extraction.reading import Reading, SourceFile, Unreadable
from clew.documents.extraction.table import add_table

Element = Any  # of lxml, which has no types

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_P, _TABLE, _ROW, _CELL, _CONTROL = (f"{_W}{name}" for name in ("p", "tbl", "tr", "tc", "sdt"))
_MARKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
# What a revision took away, and the second form in which a text box is stored for old readers.
_GONE = frozenset({f"{_W}del", f"{_W}moveFrom", f"{_MC}Fallback"})

_MAX_GROUPS = 10

# A document with macros is read too; python-docx only does not know its content type.
PartFactory.part_type_for["application/vnd.ms-word.document.macroEnabled.main+xml"] = DocumentPart


def read_docx(source: SourceFile, reading: Reading) -> None:
    _check(source, reading)
    package = Package.open(BytesIO(source.data))
    part = package.main_document_part
    if not isinstance(part, DocumentPart):
        raise Unreadable("it is not a Word document")
    prefixes = _prefixes(part)
    body: list[str] = []
    tables: list[list[list[str]]] = []
    for block in _blocks(part.element.body):
        if block.tag == _TABLE:
            tables.append(_table(block))
            body.append(_markdown(tables[-1]))
        elif text := _text(block).strip():
            body.append(_prefix(block, prefixes) + text)
    reading.text("\n\n".join(body), ext="md", media="text/markdown", tables=len(tables))
    for number, table in enumerate(tables, 1):
        add_table(table, f"table_{number}", reading, table=number, tables=len(tables))
    media = [one for one in package.iter_parts() if one.partname.startswith("/word/media/")]
    _add_images((one.blob for one in media), reading)


def read_pptx(source: SourceFile, reading: Reading) -> None:
    _check(source, reading)
    slides = Presentation(BytesIO(source.data)).slides
    seen: set[bytes] = set()
    for number, slide in enumerate(slides, 1):
        shapes = list(_shapes(slide.shapes))
        texts = [text for shape in shapes if (text := _shape_text(shape))]
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if notes is not None and notes.text.strip():
            texts.append(notes.text.strip())
        part = f"slide_{number}"
        reading.text("\n\n".join(texts), part=part, slide=number, slides=len(slides))
        for at, table in enumerate(_slide_tables(shapes), 1):
            add_table(table, f"{part}_table_{at}", reading, slide=number, table=at)
        _add_images(_new_pictures(shapes, seen), reading, part)
        reading.progress(number, len(slides))


def read_xlsx(source: SourceFile, reading: Reading) -> None:
    _check(source, reading)
    try:
        book = CalamineWorkbook.from_filelike(BytesIO(source.data))
    except CalamineError as exc:
        raise Unreadable("the workbook is damaged") from exc
    sheets = [sheet for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
    if not sheets:
        raise Unreadable("the workbook has no sheet that can be read")
    for number, sheet in enumerate(sheets, 1):
        try:
            cells = book.get_sheet_by_name(sheet.name)
        except CalamineError:
            reading.warn(f"sheet {number} is damaged")
            continue
        hidden = sheet.visible != SheetVisibleEnum.Visible
        about: dict[str, Any] = {"sheet": sheet.name, "sheets": len(sheets), "hidden": hidden}
        add_table(_rows(cells), sheet.name, reading, **about)
        reading.progress(number, len(sheets))
    with open_zip(source.data) as archive:
        media = [name for name in archive.namelist() if name.startswith("xl/media/")]
        _add_images((archive.read(name) for name in media), reading)


def _check(source: SourceFile, reading: Reading) -> None:
    with open_zip(source.data) as archive:
        if any(name.lower().endswith("vbaproject.bin") for name in archive.namelist()):
            reading.warn("it holds macros; they are ignored")


def _add_images(images: Iterator[bytes], reading: Reading, part: str = "") -> None:
    number = 0
    for data in images:
        number += embedded(data, f"{part}_image_{number + 1}".lstrip("_"), reading)


# Word


def _prefixes(part: DocumentPart) -> dict[str, str]:
    """Markdown by the id of a style. Ids may be in any language; the names of built-in styles are English."""
    prefixes: dict[str, str] = {}
    for style in part.styles:
        name = (style.name or "").lower()
        if name.startswith("heading ") and name[8:].isdigit():
            prefixes[style.style_id] = f"{'#' * min(6, int(name[8:]))} "
        elif name == "title":
            prefixes[style.style_id] = "# "
        elif name.startswith(("list bullet", "list number")):
            prefixes[style.style_id] = "- "
    return prefixes


def _blocks(parent: Element) -> Iterator[Element]:
    """Paragraphs and tables in their order, also those inside content controls."""
    for child in parent.iterchildren():
        if child.tag in (_P, _TABLE):
            yield child
        elif child.tag == _CONTROL:
            content = child.find(f"{_W}sdtContent")
            if content is not None:
                yield from _blocks(content)


def _prefix(paragraph: Element, prefixes: dict[str, str]) -> str:
    properties = paragraph.pPr
    is_listed = properties is not None and properties.numPr is not None
    return prefixes.get(paragraph.style or "") or ("- " if is_listed else "")


def _text(element: Element) -> str:
    pieces: list[str] = []
    todo = list(reversed(element))
    while todo:
        node = todo.pop()
        if node.tag == f"{_W}t":
            pieces.append(node.text or "")
        elif node.tag in _MARKS:
            pieces.append(_MARKS[node.tag])
        elif node.tag not in _GONE:
            if node.tag == _P:  # a text box, or a cell's second paragraph
                pieces.append("\n")
            todo.extend(reversed(node))
    return "".join(pieces)


def _table(table: Element) -> list[list[str]]:
    rows = []
    for row in table.iterchildren(_ROW):
        cells: list[str] = []
        for cell in row.iterchildren(_CELL):
            cells.append(_text(cell).strip())
            cells.extend([""] * (min(cell.grid_span, 64) - 1))
        rows.append(cells)
    return rows


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in row)} |" for row in rows]
    if rows:
        lines.insert(1, f"|{' --- |' * len(rows[0])}")
    return "\n".join(lines)


# PowerPoint


def _shapes(shapes: Any, depth: int = 0) -> Iterator[Any]:
    for one in shapes:
        yield one
        if depth < _MAX_GROUPS and hasattr(one, "shapes"):
            yield from _shapes(one.shapes, depth + 1)


def _shape_text(shape: Any) -> str:
    if shape.has_text_frame:
        return str(shape.text_frame.text).replace("\v", "\n").strip()
    return "\n\n".join(map(_markdown, _slide_tables([shape])))


def _slide_tables(shapes: Sequence[Any]) -> list[list[list[str]]]:
    return [
        [[cell.text for cell in row.cells] for row in shape.table.rows]
        for shape in shapes
        if getattr(shape, "has_table", False)
    ]


def _new_pictures(shapes: Sequence[Any], seen: set[bytes]) -> Iterator[bytes]:
    for one in shapes:
        # A placeholder without a picture and a linked picture have no image data.
        try:
            data: bytes = one.image.blob
        except (AttributeError, ValueError, KeyError):
            continue
        digest = sha256(data).digest()
        if digest not in seen:
            seen.add(digest)
            yield data


# Excel


def _rows(sheet: CalamineSheet) -> Iterator[list[str]]:
    """Row by row: as Python values, the cells of a large sheet would exceed the memory limit."""
    first, _ = sheet.start or (0, 0)
    for row in islice(sheet.iter_rows(), first, None):
        yield [_cell(value) for value in row]


def _cell(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return str(value)
        case _:
            return str(value)
