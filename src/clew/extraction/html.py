"""HTML: the text a reader would see, and the images that stand in the page itself."""

import binascii
import re
from base64 import b64decode

from selectolax.lexbor import LexborHTMLParser, LexborNode

from clew.extraction.image import embedded
from clew.extraction.reading import Reading, Source
from clew.extraction.text import decode

_UNSEEN = frozenset({"head", "script", "style", "template", "noscript", "svg", "iframe", "object", "math"})
_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|br|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|form|h[1-6]"
    "|header|hr|li|main|nav|ol|option|p|pre|section|summary|table|tbody|tfoot|thead|tr|ul"
)
_CELLS = frozenset({"td", "th"})
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([A-Za-z0-9_-]{2,40})""", re.IGNORECASE)
_DATA_IMAGE = "data:image/"
_MAX_IMAGES = 100


def read_html(source: Source, reading: Reading) -> None:
    page = LexborHTMLParser(_decode(source.data))
    title = page.css_first("title")
    reading.text(
        visible_text(page),
        links=len(page.css("a[href]")),
        **({"title": " ".join(title.text().split())[:300]} if title else {}),
    )
    number = 0
    for image in page.css("img[src]")[:_MAX_IMAGES]:
        address = image.attributes.get("src") or ""
        if address.startswith(_DATA_IMAGE) and (data := _data_of(address)):
            number += embedded(data, f"image_{number + 1}", reading)


def text_of_html(data: bytes | str) -> str:
    return visible_text(LexborHTMLParser(data if isinstance(data, str) else _decode(data)))


def visible_text(page: LexborHTMLParser) -> str:
    """Blocks on lines of their own, cells apart, nothing of what a browser hides."""
    pieces: list[str] = []
    # A stack of our own: pages may be nested deeper than Python calls.
    todo: list[LexborNode | str] = [page.body] if page.body else []
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            pieces.append(node)
            continue
        name = node.tag or ""
        if name == "-text":
            pieces.append(re.sub(r"\s+", " ", node.text_content or ""))
        elif name not in _UNSEEN:
            end = "\n" if _BLOCKS.fullmatch(name) else "\t" if name in _CELLS else ""
            if end == "\n":
                pieces.append(end)
            if end:
                todo.append(end)
            todo.extend(reversed(list(node.iter(include_text=True))))
    lines = (
        re.sub(r" *\t *", "\t", re.sub(r" +", " ", line)).strip() for line in "".join(pieces).split("\n")
    )
    return "\n".join(line for line in lines if line)


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
