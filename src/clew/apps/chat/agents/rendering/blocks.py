"""Markdown blocks: the parts of a document, independent of its output format."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

# XML cannot contain these characters; a model's text or a page may.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_LINK = re.compile(r"(?:https?|mailto):\S+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TextRun:
    """Words in one style."""

    text: str
    bold: bool = False
    italic: bool = False
    code: bool = False
    link: str = ""


Runs: TypeAlias = tuple[TextRun, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    runs: Runs


@dataclass(frozen=True, slots=True)
class Paragraph:
    runs: Runs
    is_quote: bool = False


@dataclass(frozen=True, slots=True)
class ListItem:
    """One line of a list. `number` is 0 where the list has none."""

    runs: Runs
    depth: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the first row is its header."""

    rows: tuple[tuple[Runs, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture by its label among the task's own documents. Pictures elsewhere are never fetched."""

    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, slots=True)
class HorizontalRule:
    """A line across the page."""


Block: TypeAlias = Heading | Paragraph | ListItem | Grid | Picture | Code | HorizontalRule


def plain(runs: Runs) -> str:
    return "".join(run.text for run in runs)


def parse(markdown: str) -> list[Block]:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    return list(_blocks(parser.parse(_UNPRINTABLE.sub("", markdown))))


def _blocks(tokens: Sequence[Token]) -> Iterator[Block]:
    numbers: list[int] = []  # one an open list; 0 where it is not numbered
    quotes = 0
    at_item = False
    grid: list[list[Runs]] = []
    opened: Token | None = None
    for token in tokens:
        match token.type:
            case "bullet_list_open":
                numbers.append(0)
            case "ordered_list_open":
                numbers.append(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                numbers.pop()
            case "list_item_open":
                at_item = True
            case "list_item_close":
                if numbers and numbers[-1]:
                    numbers[-1] += 1
                at_item = False
            case "blockquote_open":
                quotes += 1
            case "blockquote_close":
                quotes -= 1
            case "tr_open":
                grid.append([])
            case "table_close":
                yield Grid(tuple(tuple(row) for row in grid))
                grid = []
            case "heading_open" | "th_open" | "td_open":
                opened = token
            case "heading_close" | "th_close" | "td_close":
                opened = None
            case "fence" | "code_block":
                yield Code(token.content.rstrip("\n"))
            case "hr":
                yield HorizontalRule()
            case "inline":
                runs, pictures = _runs(token.children or [])
                if opened is not None and opened.type != "heading_open":
                    grid[-1].append(runs)
                    continue
                if opened is not None:
                    yield Heading(int(opened.tag[1:]), runs)
                elif plain(runs).strip():
                    if at_item and numbers:
                        yield ListItem(runs, len(numbers) - 1, numbers[-1])
                        at_item = False
                    else:
                        yield Paragraph(runs, is_quote=quotes > 0)
                yield from pictures
            case _:
                pass


def _runs(tokens: Sequence[Token]) -> tuple[Runs, list[Picture]]:
    runs: list[TextRun] = []
    pictures: list[Picture] = []
    bold = italic = 0
    link = ""
    for token in tokens:
        match token.type:
            case "strong_open":
                bold += 1
            case "strong_close":
                bold -= 1
            case "em_open":
                italic += 1
            case "em_close":
                italic -= 1
            case "link_open":
                target = str(token.attrGet("href") or "")
                link = target if _LINK.fullmatch(target) else ""
            case "link_close":
                link = ""
            case "image":
                # The parser has URL-encoded it; it is a label.
                pictures.append(Picture(unquote(str(token.attrGet("src") or "")), token.content))
            case "softbreak":
                runs.append(TextRun(" "))
            case "hardbreak":
                runs.append(TextRun("\n"))
            case "code_inline":
                runs.append(TextRun(token.content, code=True))
            case "text":
                runs.append(TextRun(token.content, bold=bold > 0, italic=italic > 0, link=link))
            case _:
                pass
    return tuple(run for run in runs if run.text), pictures
