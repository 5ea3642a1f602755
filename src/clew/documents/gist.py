"""Gist: a summary of a text in a few of its own sentences."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

GIST_CHARACTERS = 300

# How much of a text is read: enough to know its subject, little enough to be fast.
_SAMPLE = 20_000
_SENTENCE_END = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 - other scripts end sentences too
# A sentence that weighs less than this part of the heaviest is left out even if it fits the limit.
_LIGHTEST = 0.3
_WORD = re.compile(r"\w+")


def gist(text: str, *, limit: int = GIST_CHARACTERS) -> str:
    """The sentences that share most words with the rest of the text, in their order: the same for the same text.

    Knows no language: a word counts by how many sentences use it, and what comes first counts more.
    """
    sample = text[:_SAMPLE]
    flat = " ".join(sample.split())
    if len(flat) <= limit:
        return flat
    sentences = _sentences(sample)
    if not sentences:
        return flat[:limit]
    weights = _weights(sentences)
    heaviest = max(weights)
    chosen: list[int] = []
    room = limit
    for place in sorted(range(len(sentences)), key=lambda place: (-weights[place], place)):
        if weights[place] < heaviest * _LIGHTEST:
            break
        if len(sentences[place]) + 3 <= room:
            chosen.append(place)
            room -= len(sentences[place]) + 3
    if not chosen:
        return _cut(sentences[weights.index(heaviest)], limit)
    chosen.sort()
    said = sentences[chosen[0]]
    for before, place in pairwise(chosen):
        said += f"{' ' if place == before + 1 else ' … '}{sentences[place]}"
    return said


def _sentences(text: str) -> list[str]:
    """Each sentence once: repetition on every page adds no weight."""
    pieces = (" ".join(piece.split()) for piece in _SENTENCE_END.split(text))
    return list(dict.fromkeys(piece for piece in pieces if any(map(str.isalnum, piece))))


def _weights(sentences: Sequence[str]) -> list[float]:
    words = [frozenset(_words(sentence)) for sentence in sentences]
    used = Counter(word for sentence in words for word in sentence)
    return [
        (0.2 + sum(used[word] - 1 for word in own) / (8 + len(own))) * (1 + 2 / (1 + place))
        for place, own in enumerate(words)
    ]


def _words(sentence: str) -> Iterator[str]:
    for match in _WORD.finditer(sentence.casefold()):
        word = match[0]
        if word > "\u0e00" and len(word) > 2:
            # Scripts without spaces: any two neighbours stand for a word.
            yield from (word[place : place + 2] for place in range(len(word) - 1))
        elif len(word) > 3:
            # Short words are function words in every language and carry no meaning.
            yield word


def _cut(text: str, limit: int) -> str:
    head = text[: limit - 1]
    whole, space, _ = head.rpartition(" ")
    return f"{whole if space and len(whole) > limit // 2 else head}…"
