"""HTML: the text a reader would see, its tables, and the images that stand in the page itself."""

import binascii
import re
from base64 import b64decode
from io import StringIO

from selectolax.lexbor import LexborHTMLParser, LexborNode

from clew.documents.extraction.image import embedded
from clew.documents.extraction.reading import Reading, SourceFile
from clew.documents.extraction.table import add_table
from clew.documents.extraction.text import decode

_UNSEEN = ["head", "script", "style", "template", "noscript", "svg", "iframe", "object", "math"]
_CELLS = frozenset({"td", "th"})
_BLOCKS = _CELLS | {
    *("address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset"),
    *(
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
    ),
    *(
        "nav",
        "ol",
        "option",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    ),
}
_CELL = "\0"  # ends a cell until its line is written

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([A-Za-z0-9_-]{2,40})""", re.IGNORECASE)
_DATA_IMAGE = "data:image/"
_MAX_IMAGES = 100
_MAX_TABLES, _MAX_TABLE_ROWS, _MAX_SPAN = 100, 10_000, 64


def read_html(source: SourceFile, reading: Reading) -> None:
    page = LexborHTMLParser(_decode(source.data))
    node = page.css_first("title")
    title = {"title": " ".join(node.text().split())[:300]} if node else {}
    reading.text(visible_text(page), links=len(page.css("a[href]")), **title)
    for at, table in enumerate(_tables(page), 1):
        add_table(table, f"table_{at}", reading, table=at)
    number = 0
    for image in page.css("img[src]")[:_MAX_IMAGES]:
        address = image.attributes.get("src") or ""
        if address.startswith(_DATA_IMAGE) and (data := _data_of(address)):
            number += embedded(data, f"image_{number + 1}", reading)


def _tables(page: LexborHTMLParser) -> list[list[list[str]]]:
    """Those of at least two rows and columns that hold no other table: the others lay out the page."""
    found = []
    for table in page.css("table")[:_MAX_TABLES]:
        if table.css_first("table table") is not None or len(table.css("table")) > 1:
            continue
        rows = [
            [cell for node in row.css("td, th") for cell in _cell(node)]
            for row in table.css("tr")[:_MAX_TABLE_ROWS]
        ]
        if len(rows) > 1 and min(map(len, rows[:2])) > 1:
            found.append(rows)
    return found


def _cell(node: LexborNode) -> list[str]:
    """A cell, and empty ones for the columns that it spans beside its own."""
    span = node.attributes.get("colspan") or "1"
    more = min(int(span), _MAX_SPAN) - 1 if span.isdigit() and len(span) < 4 else 0
    return [" ".join(node.text(separator=" ").split()), *[""] * max(0, more)]


def text_of_html(data: bytes | str) -> str:
    return visible_text(LexborHTMLParser(data if isinstance(data, str) else _decode(data)))


def visible_text(page: LexborHTMLParser) -> str:
    """Blocks on lines of their own, cells apart, nothing of what a browser hides."""
    page.strip_tags(_UNSEEN, recursive=True)
    lines = Lines()
    before, row_before = 0, 0
    blocks: dict[int, LexborNode] = {}
    for node in page.body.traverse(include_text=True) if page.body else ():
        if node.tag == "br":
            lines.end()
        elif node.tag == "-text":
            block = _block_of(node, blocks)
            row = block.parent.mem_id if block.tag in _CELLS and block.parent else 0
            # A line ends where one block is left for another, whether that begins or the outer one goes on.
            if block.mem_id != before:
                if row and row == row_before:
                    lines.add(_CELL)
                else:
                    lines.end()
            before, row_before = block.mem_id, row
            lines.add(node.text_content or "", keep_breaks=block.tag == "pre")
    return lines.text()


class Lines:
    """Text as it grows, one line at a time: all pieces of a page together would take many times its size."""

    def __init__(self) -> None:
        self._out = StringIO()
        self._line: list[str] = []

    def add(self, text: str, *, keep_breaks: bool = False) -> None:
        if keep_breaks:
            *whole, text = text.split("\n")
            for piece in whole:
                self._line.append(piece)
                self.end()
        self._line.append(text)

    def end(self) -> None:
        # White space means nothing in HTML; a tab between cells does.
        cells = (" ".join(cell.split()) for cell in "".join(self._line).split(_CELL))
        if text := "\t".join(cells).strip():
            self._out.write(f"{text}\n")
        self._line.clear()

    def text(self) -> str:
        self.end()
        return self._out.getvalue().rstrip("\n")


def _block_of(node: LexborNode, known: dict[int, LexborNode]) -> LexborNode:
    """The block a text stands in. Tags may be nested as deep as the page is long, so none is climbed twice."""
    passed: list[int] = []
    while node.parent is not None:
        node = node.parent
        if node.tag in _BLOCKS:
            break
        if node.mem_id in known:
            node = known[node.mem_id]
            break
        passed.append(node.mem_id)
    known.update(dict.fromkeys(passed, node))
    return node


def _decode(data: bytes) -> str:
    named = _CHARSET.search(data[:4096])
    if named and not data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        try:
            return data.decode(named[1].decode("ascii"), errors="replace")
        except LookupError:
            pass
    return decode(data)[0]


def _data_of(address: str) -> bytes | None:
    kind, _, data = address.partition(",")
    if not kind.endswith(";base64"):
        return None
    try:
        return b64decode(data, validate=False)
    except binascii.Error:
        return None
