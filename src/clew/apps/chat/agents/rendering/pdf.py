"""PDF files, with fonts that cover the supported languages."""

from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import get_data_path
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import cm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import HRFlowable, Image, Preformatted, SimpleDocTemplate, Spacer, Table
from reportlab.platypus import Paragraph as Text

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
    plain,
)

_MARGIN = 2 * cm
_WIDTH = A4[0] - 2 * _MARGIN
_HEIGHT = A4[1] - 2 * _MARGIN - 1 * cm
_CELL_CHARACTERS = 1_000
_SIZES = {1: 20, 2: 15, 3: 12.5}
_CHINESE = "STSong-Light"
_WESTERN = "DejaVuSans"


def to_pdf(blocks: Sequence[Block], pictures: Mapping[str, bytes], *, title: str, language: str) -> bytes:
    out = BytesIO()
    pages = SimpleDocTemplate(
        out,
        pagesize=A4,
        leftMargin=_MARGIN,
        rightMargin=_MARGIN,
        topMargin=_MARGIN,
        bottomMargin=_MARGIN,
        title=title,
        author="Clew",
        lang=language,
    )
    font = _font(blocks)
    story = [flowable for block in blocks for flowable in _flowables(block, pictures, font)]
    pages.build(story or [Spacer(1, 1)])
    return out.getvalue()


def _flowables(block: Block, pictures: Mapping[str, bytes], font: str) -> list[Any]:
    match block:
        case Heading(level, runs):
            size = _SIZES.get(level, 11)
            style = _style(font, size=size, before=size * 0.9, after=size * 0.4, bold=True)
            return [Text(_inline(runs), style)]
        case Paragraph(runs, is_quote):
            return [
                Text(
                    _inline(runs),
                    _style(font, indent=18 if is_quote else 0, color="#555555" if is_quote else ""),
                )
            ]
        case ListItem(runs, depth, number):
            style = _style(font, indent=14 * (depth + 1), after=2)
            return [Text(_inline(runs), style, bulletText=f"{number}." if number else "•")]
        case Code(text):
            return [
                Preformatted(text, _style("Courier" if font == _WESTERN else font, size=8), maxLineLength=95)
            ]
        case HorizontalRule():
            return [HRFlowable(width="100%", color=colors.lightgrey)]
        case Picture(label, title):
            return _picture(pictures.get(label), title, font)
        case Grid(rows):
            return _grid(rows, font)


def _picture(data: bytes | None, title: str, font: str) -> list[Any]:
    caption = Text(escape(title), _style(font, size=8.5, color="#555555"))
    try:
        if data is None:
            return [Text(f"[{escape(title)}]", _style(font))]
        with PillowImage.open(BytesIO(data)) as opened:
            width, height = opened.size
    except (UnidentifiedImageError, PillowImage.DecompressionBombError, OSError):
        return [Text(f"[{escape(title)}]", _style(font))]
    scale = min(_WIDTH / width, _HEIGHT / height, 1.0)
    return [Image(BytesIO(data), width * scale, height * scale), caption]


def _grid(rows: Sequence[Sequence[Runs]], font: str) -> list[Any]:
    if not rows or not rows[0]:
        return []
    cells = [
        [
            Text(escape(plain(runs)[:_CELL_CHARACTERS]), _style(font, size=8.5, after=0, bold=at == 0))
            for runs in row
        ]
        for at, row in enumerate(rows)
    ]
    table = Table(
        cells,
        colWidths=[_WIDTH / len(rows[0])] * len(rows[0]),
        repeatRows=1,
        style=[
            ("GRID", (0, 0), (-1, -1), 0.4, colors.lightgrey),
            ("BACKGROUND", (0, 0), (-1, 0), colors.whitesmoke),
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ],
    )
    return [table, Spacer(1, 8)]


def _inline(runs: Runs) -> str:
    pieces: list[str] = []
    for run in runs:
        text = escape(run.text).replace("\n", "<br/>")
        text = f"<b>{text}</b>" if run.bold else text
        text = f"<i>{text}</i>" if run.italic else text
        pieces.append(f'<a href="{escape(run.link)}" color="#2f6f8f">{text}</a>' if run.link else text)
    return "".join(pieces)


def _style(
    font: str,
    *,
    size: float = 10.5,
    before: float = 0,
    after: float = 6,
    indent: float = 0,
    color: str = "",
    bold: bool = False,
) -> ParagraphStyle:
    return ParagraphStyle(
        name="clew",
        fontName=f"{font}-Bold" if bold and font == _WESTERN else font,
        fontSize=size,
        leading=size * 1.4,
        spaceBefore=before,
        spaceAfter=after,
        leftIndent=indent,
        bulletIndent=max(0, indent - 12),
        textColor=colors.HexColor(color) if color else colors.black,
        wordWrap="CJK" if font == _CHINESE else None,
    )


def _font(blocks: Sequence[Block]) -> str:
    """One font for a document: the Chinese one where there is Chinese, else one with Latin, Greek and Cyrillic."""
    if any("\u2e80" <= character <= "\uffef" for block in blocks for character in _letters(block)):
        pdfmetrics.registerFont(UnicodeCIDFont(_CHINESE))
        return _CHINESE
    if _WESTERN not in pdfmetrics.getRegisteredFontNames():
        folder = Path(get_data_path(), "fonts", "ttf")
        faces = {"": "DejaVuSans", "-Bold": "DejaVuSans-Bold", "-Italic": "DejaVuSans-Oblique"}
        faces["-BoldItalic"] = "DejaVuSans-BoldOblique"
        for face, file in faces.items():
            pdfmetrics.registerFont(TTFont(f"{_WESTERN}{face}", str(folder / f"{file}.ttf")))
        pdfmetrics.registerFontFamily(
            _WESTERN, _WESTERN, f"{_WESTERN}-Bold", f"{_WESTERN}-Italic", f"{_WESTERN}-BoldItalic"
        )
    return _WESTERN


def _letters(block: Block) -> str:
    match block:
        case Heading(_, runs) | Paragraph(runs) | ListItem(runs):
            return plain(runs)
        case Grid(rows):
            return "".join(plain(runs) for row in rows for runs in row)
        case Code(text):
            return text
        case Picture(_, title):
            return title
        case HorizontalRule():
            return ""
