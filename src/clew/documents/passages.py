"""Passages: sentences of a text, the words that carry meaning, and the passages that matter for a request.

Knows no language. A word counts by how rare it is in the text at hand, so that the words every language is held
together by count little without being listed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import log

MAX_SENTENCES = 5_000

_WRAPPED = re.compile(r"(?<=\w)-\n(?=[a-zà-ÿ])")
_END = re.compile(r"(?<=[.!?…])[\"')\]»”]*\s+(?=[\"'(\[«“]?[A-ZÀ-ÞА-Я0-9])|(?<=[。！？])")  # noqa: RUF001
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_MARKUP = re.compile(r"^\s{0,3}(#{1,6}\s+|[-*+•]\s+|\d{1,3}[.)]\s+|>\s?)")
# A dot after these ends no sentence.
_ABBREVIATION = re.compile(
    r"(?:^|\s)(?:[A-Za-z]|\d{1,2}|Dr|Mr|Mrs|Ms|[Pp]rof|St|No|Nr|vs|etc|bzw|ca|inkl|usw|Abs|Art|Fig|Abb|p|pp|S|vol|al|Inc|Ltd|Co|Sr|Sra|av|env|núm|ecc|e\.g|i\.e|z\.B|d\.h|u\.a|p\.ex|p\.es)\.$"
)
_STOPS = ".!?…。！？"  # noqa: RUF001
_SHORTEST, _LONGEST = 12, 600
# So much of the end of a text shows whether an abbreviation stands there.
_ABBREVIATED = 16
# The share of a sentence's words that others have used, above which it adds nothing.
_SAID = 0.8
_FEW_WORDS = 5
# The first sentence of a paragraph mostly says what it is about.
_LEAD = 2.5
# What comes early in a text weighs up to so much more.
_EARLY = 1.0


def paragraphs(text: str) -> Iterator[str]:
    """What stands between empty lines, with lines that were only wrapped put together again."""
    together: list[str] = []  # the lines of a paragraph: put together once, since a text may be one paragraph
    length = 0
    for raw in _WRAPPED.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).split("\n"):
        line = " ".join(raw.split())
        if together and (not line or _stands_alone(together, length, line)):
            yield " ".join(together)
            together, length = [], 0
        if line:
            together.append(line)
            length += len(line) + 1
    if together:
        yield " ".join(together)


def sentences(text: str) -> list[str]:
    """The first sentences of a text in order, without headings, table rows and crumbs."""
    found = (
        sentence
        for paragraph in paragraphs(text)
        if not paragraph.startswith(("#", "|"))
        for sentence in _split(_MARKUP.sub("", paragraph))
        if _is_sentence(sentence)
    )
    return list(islice(found, MAX_SENTENCES))


def words(text: str) -> list[str]:
    """Lower-case words; of scripts without spaces every two neighbours."""
    found: list[str] = []
    for match in _WORD.finditer(text.casefold()):
        word = match[0]
        if _CJK.match(word):
            found += [word[place : place + 2] for place in range(max(1, len(word) - 1))]
        elif len(word) > 1:
            found.append(_stem(word))
    return found


def digest(text: str, *, count: int = 7) -> list[str]:
    """The sentences that cover most of the text, in its order; none repeats another one."""
    pieces = sentences(text)
    whole = [piece for piece in pieces if piece[-1] in _STOPS]
    # Headings only where there is nothing else.
    headings = [piece for piece in pieces if piece[-1] not in _STOPS]
    pieces = whole if len(whole) * 2 >= len(pieces) else pieces
    if len(pieces) <= count:
        return pieces
    leads = {found[0] for paragraph in paragraphs(text) if (found := sentences(paragraph))}
    bags = [frozenset(word for word in words(piece) if len(word) > 3 or _CJK.match(word)) for piece in pieces]
    used = Counter(word for bag in bags for word in bag)
    used.update(word for heading in headings for word in set(words(heading)) if word in used)
    # Words of one sentence only say nothing about the whole, words of every sentence hold the language together.
    weights = {word: log(1 + n) if 1 < n < max(3, len(pieces) // 2) else 0.3 for word, n in used.items()}
    scores = [
        sum(weights[word] for word in bag)
        / (6 + len(bag))
        * (_LEAD if piece in leads else 1.0)
        * _tells(piece)
        * (1 + _EARLY * (1 - place / len(pieces)))
        for place, (bag, piece) in enumerate(zip(bags, pieces, strict=True))
    ]
    chosen: list[int] = []
    said: set[str] = set()
    while len(chosen) < count:
        best = max(
            (place for place in range(len(pieces)) if place not in chosen),
            key=lambda place: (scores[place] * (1 - _overlap(bags[place], said)), -place),
        )
        if _overlap(bags[best], said) > _SAID:
            break
        chosen.append(best)
        said |= bags[best]
    return [pieces[place] for place in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class Relevance:
    """How much pieces of a text have to do with a request."""

    weights: dict[str, float]

    @classmethod
    def of(cls, request: str, pieces: Sequence[str]) -> "Relevance":
        wanted = set(words(request))
        used = Counter(word for piece in pieces for word in set(words(piece)) & wanted)
        return cls({word: log(1 + len(pieces) / n) for word, n in used.items()})

    def score(self, piece: str) -> float:
        return sum(self.weights.get(word, 0.0) for word in set(words(piece)))


def relevant(text: str, request: str, *, limit: int) -> str:
    """What of a text a request needs, in its order: the pieces that share words with it; else how it begins."""
    pieces = sentences(text) or [text[:limit]]
    relevance = Relevance.of(request, pieces)
    scored = [(relevance.score(piece), -place) for place, piece in enumerate(pieces)]
    order = [-place for score, place in sorted(scored, reverse=True) if score > 0] or list(range(len(pieces)))
    return "\n".join(pieces[place] for place in sorted(_fitting(order, pieces, limit)))[:limit]


def relevant_rows(text: str, request: str, *, limit: int) -> str:
    """The same of a table as text: its header, and the lines that share words with the request; else the first ones."""
    header, *lines = text.splitlines() or [""]
    relevance = Relevance.of(request, lines)
    matching = [place for place, line in enumerate(lines) if relevance.score(line) > 0]
    kept = _fitting(matching or range(len(lines)), lines, limit - len(header))
    return "\n".join([header, *(lines[place] for place in sorted(kept))])[:limit]


def cut(text: str, limit: int) -> str:
    """The beginning of a text, with a sign where it was cut."""
    return text if len(text) <= limit else f"{text[: max(0, limit - 6)].rstrip()} […]"


def _fitting(order: Sequence[int], pieces: Sequence[str], room: int) -> list[int]:
    kept: list[int] = []
    for place in order:
        room -= len(pieces[place]) + 1
        if room < 0:
            break
        kept.append(place)
    return kept


def _stands_alone(before: Sequence[str], length: int, line: str) -> bool:
    """Whether a line begins a new paragraph rather than continuing the lines before, `length` characters."""
    if _MARKUP.match(line) or line.startswith("|") or before[0].startswith(("#", "|")):
        return True
    # A short line without a full stop is a heading, or the last of its paragraph.
    return length <= 40 and not before[-1].endswith((",", ";", "-"))


def _split(paragraph: str) -> Iterator[str]:
    kept = ""
    start = 0
    for end in chain((match.span() for match in _END.finditer(paragraph)), [(len(paragraph), 0)]):
        piece = paragraph[start : end[0]].strip()
        start = end[1]
        kept = f"{kept} {piece}" if kept else piece
        # What is too long for a sentence does not grow: a text may consist of abbreviations.
        if kept and (len(kept) > _LONGEST or not _ABBREVIATION.search(kept[-_ABBREVIATED:])):
            yield kept
            kept = ""
    if kept:
        yield kept


def _is_sentence(text: str) -> bool:
    # Where a character is a word, few of them are a sentence.
    return (
        len(text) <= _LONGEST
        and len(text) + 2 * len("".join(_CJK.findall(text))) >= _SHORTEST
        and any(map(str.isalpha, text))
    )


def _stem(word: str) -> str:
    """Regions and region are one word; without a dictionary, further stemming would be wrong too often."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _tells(sentence: str) -> float:
    """Whole sentences weigh more than headings and fragments."""
    return 1.0 if sentence[-1] in _STOPS and len(words(sentence)) > _FEW_WORDS else 0.5


def _overlap(bag: frozenset[str], said: set[str]) -> float:
    return len(bag & said) / len(bag) if bag else 1.0
