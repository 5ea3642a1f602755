"""What a text says, in a few of its own sentences."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

GIST_CHARACTERS = 300

# How much of a text is looked at: enough to know what it is about, little enough to cost nothing.
_SAMPLE = 20_000
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 - other scripts end sentences too
_WORD = re.compile(r"\w+")


def gist(text: str, *, limit: int = GIST_CHARACTERS) -> str:
    """The sentences that share most words with the rest of the text, in their order: the same for the same text.

    Knows no language: a word counts by how many sentences use it, and what comes first counts more.
    """
    sample = text[:_SAMPLE]
    flat = " ".join(sample.split())
    if len(flat) <= limit:
        return flat
    sentences = [" ".join(piece.split()) for piece in _SENTENCE_END.split(sample)]
    sentences = [sentence for sentence in sentences if any(map(str.isalnum, sentence))]
    if not sentences:
        return flat[:limit]
    chosen: list[int] = []
    room = limit
    for place in _by_weight(sentences):
        if len(sentences[place]) + 3 <= room:
            chosen.append(place)
            room -= len(sentences[place]) + 3
    if not chosen:
        return _cut(sentences[next(_by_weight(sentences))], limit)
    chosen.sort()
    said = sentences[chosen[0]]
    for before, place in pairwise(chosen):
        said += f"{' ' if place == before + 1 else ' … '}{sentences[place]}"
    return said


def _by_weight(sentences: Sequence[str]) -> Iterator[int]:
    words = [frozenset(_words(sentence)) for sentence in sentences]
    used = Counter(word for sentence in words for word in sentence)

    def weight(place: int) -> float:
        shared = sum(used[word] - 1 for word in words[place])
        return (1 + shared / (8 + len(words[place]))) * (1 + 2 / (1 + place))

    return iter(sorted(range(len(sentences)), key=lambda place: (-weight(place), place)))


def _words(sentence: str) -> Iterator[str]:
    for match in _WORD.finditer(sentence.casefold()):
        word = match[0]
        if word > "\u0e00" and len(word) > 2:
            # Scripts without spaces: any two neighbours stand for a word.
            yield from (word[place : place + 2] for place in range(len(word) - 1))
        elif len(word) > 3:
            # Short words hold every language together and say nothing.
            yield word


def _cut(text: str, limit: int) -> str:
    head = text[: limit - 1]
    whole, space, _ = head.rpartition(" ")
    return f"{whole if space and len(whole) > limit // 2 else head}…"
