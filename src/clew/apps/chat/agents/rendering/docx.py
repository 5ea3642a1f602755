"""Word documents."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from docx import Document
from docx.image.exceptions import InvalidImageStreamError, UnexpectedEndOfFileError, UnrecognizedImageError
from docx.shared import Inches, Pt

from clew.apps.chat.agents.rendering.blocks import (
    Block,
    Code,
    Grid,
    Heading,
    HorizontalRule,
    ListItem,
    Paragraph,
    Picture,
    Runs,
)

_WIDTH = Inches(6)
_DEEPEST = 3


def to_docx(blocks: Sequence[Block], pictures: Mapping[str, bytes], *, title: str, language: str) -> bytes:
    document = Document()
    document.core_properties.title = title
    document.core_properties.author = "Clew"
    document.core_properties.language = language
    for block in blocks:
        _add(document, block, pictures)
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def _add(document: Any, block: Block, pictures: Mapping[str, bytes]) -> None:
    match block:
        case Heading(level, runs):
            _write(document.add_heading(level=min(level, 9)), runs)
        case Paragraph(runs, is_quote):
            _write(document.add_paragraph(style="Quote" if is_quote else None), runs)
        case ListItem(runs, depth, number):
            style = "List Number" if number else "List Bullet"
            level = min(depth, _DEEPEST - 1) + 1
            _write(document.add_paragraph(style=f"{style} {level}" if level > 1 else style), runs)
        case Code(text):
            run = document.add_paragraph().add_run(text)
            run.font.name, run.font.size = "Courier New", Pt(9)
        case HorizontalRule():
            document.add_paragraph()
        case Picture(label, title):
            _add_picture(document, pictures.get(label), title)
        case Grid(rows):
            _add_grid(document, rows)


def _add_picture(document: Any, data: bytes | None, title: str) -> None:
    try:
        document.add_picture(BytesIO(data or b""), width=_WIDTH)
    except (UnrecognizedImageError, InvalidImageStreamError, UnexpectedEndOfFileError):
        document.add_paragraph(f"[{title}]")
        return
    if title:
        document.add_paragraph(title, style="Caption")


def _add_grid(document: Any, rows: Sequence[Sequence[Runs]]) -> None:
    if not rows:
        return
    table = document.add_table(len(rows), len(rows[0]), style="Light Grid Accent 1")
    for row, cells in zip(rows, table.rows, strict=True):
        for runs, cell in zip(row, cells.cells, strict=False):
            _write(cell.paragraphs[0], runs)


def _write(paragraph: Any, runs: Runs) -> None:
    for run in runs:
        written = paragraph.add_run(
            f"{run.text} ({run.link})" if run.link and run.link != run.text else run.text
        )
        written.bold = run.bold or None
        written.italic = run.italic or None
        if run.code:
            written.font.name = "Courier New"
