"""HTML pages in one file: embedded pictures, no script, no external resources."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape

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
from clew.domain.documents import magic

_STYLE = (
    "body{font:16px/1.55 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{border:1px solid #ccc;padding:.3rem .6rem;text-align:left}"
    "img{max-width:100%}pre{background:#f4f4f4;padding:.8rem;overflow:auto}"
    "blockquote{border-left:3px solid #ccc;margin-left:0;padding-left:1rem;color:#555}"
)
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def to_html(blocks: Sequence[Block], pictures: Mapping[str, bytes], *, title: str, language: str) -> bytes:
    body = "\n".join(_body(blocks, pictures))
    page = (
        f'<!doctype html>\n<html lang="{escape(language)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
    return page.encode()


def _body(blocks: Sequence[Block], pictures: Mapping[str, bytes]) -> Iterator[str]:
    depth: list[str] = []  # the tags of the lists that are open
    for block in blocks:
        if isinstance(block, ListItem):
            yield from _open_lists(depth, block)
            yield f"<li>{_inline(block.runs)}</li>"
            continue
        while depth:
            yield f"</{depth.pop()}>"
        yield _block(block, pictures)
    while depth:
        yield f"</{depth.pop()}>"


def _open_lists(depth: list[str], item: ListItem) -> Iterator[str]:
    while len(depth) > item.depth + 1:
        yield f"</{depth.pop()}>"
    while len(depth) < item.depth + 1:
        depth.append("ol" if item.number else "ul")
        yield f"<{depth[-1]}>"


def _block(block: Block, pictures: Mapping[str, bytes]) -> str:
    match block:
        case Heading(level, runs):
            return f"<h{level}>{_inline(runs)}</h{level}>"
        case Paragraph(runs, is_quote):
            text = f"<p>{_inline(runs)}</p>"
            return f"<blockquote>{text}</blockquote>" if is_quote else text
        case ListItem(runs):
            return f"<p>{_inline(runs)}</p>"
        case Code(text):
            return f"<pre><code>{escape(text)}</code></pre>"
        case HorizontalRule():
            return "<hr>"
        case Picture(label, title):
            return _picture(pictures.get(label), title)
        case Grid(rows):
            lines = [
                f"<tr>{''.join(f'<{cell}>{_inline(runs)}</{cell}>' for runs in row)}</tr>"
                for row, cell in zip(rows, ["th", *["td"] * len(rows)], strict=False)
            ]
            return f"<table>{''.join(lines)}</table>"


def _picture(data: bytes | None, title: str) -> str:
    kind = magic(data[:64]) if data else None
    if data is None or kind is None or not kind.startswith("image/"):
        return f"<p>[{escape(title)}]</p>"
    return f'<p><img alt="{escape(title)}" src="data:{kind};base64,{b64encode(data).decode()}"></p>'


def _inline(runs: Runs) -> str:
    pieces: list[str] = []
    for run in runs:
        text = escape(run.text).replace("\n", "<br>")
        for tag, is_on in (("strong", run.bold), ("em", run.italic), ("code", run.code)):
            text = f"<{tag}>{text}</{tag}>" if is_on else text
        pieces.append(f'<a href="{escape(run.link)}" rel="noopener">{text}</a>' if run.link else text)
    return "".join(pieces)
