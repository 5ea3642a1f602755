"""Scan of a prompt: which of its words a list names, and which words nothing has explained yet."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from clew.apps.chat.offline.wishes import FILE_NAME
from clew.texts.catalog import DEFAULT, SUPPORTED, read_language

PACKAGE = "clew.apps.chat.offline"
# A prompt of more words says more than a rule understands.
MAX_WORDS = 150

# A number, a character of a script without spaces, a word, or a sign of comparison.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[\u3400-\u9fff]|[^\W\d_]+\d*|[<>]=?|%")
_HAN = "\u3400"


def fold(text: str) -> str:
    """Lower case without accents: people leave them out."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in plain if not unicodedata.combining(character))


def tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(fold(text)))


@dataclass(frozen=True, slots=True)
class Hit:
    """Words of the prompt, by their places, and the entry of a list that names them."""

    start: int
    end: int
    entry: str


@dataclass(slots=True)
class Scan:
    """The words of a prompt. Each is explained at most once."""

    words: tuple[str, ...]
    languages: tuple[str, ...]
    _is_free: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self._is_free = [True] * len(self.words)

    @classmethod
    def of(cls, prompt: str, language: str | None) -> "Scan":
        known = (language, DEFAULT) if language in SUPPORTED else SUPPORTED
        return cls(tokens(FILE_NAME.sub(" ", prompt)), tuple(dict.fromkeys(code for code in known if code)))

    def copy(self) -> "Scan":
        return Scan(self.words, self.languages)

    def take(self, entries: Iterable[str]) -> list[Hit]:
        """Every place where an entry stands whose words are free, the longest entry first."""
        return self._take(_parsed(tuple(entries)))

    def take_list(self, table: str, name: str) -> list[Hit]:
        """The same for a list of the prompt's languages."""
        return self._take(_listed(self.languages, table, name))

    def take_words(self, wanted: Sequence[str], *, gap: int = 0) -> Hit | None:
        """The words in their order, with at most `gap` other ones between two of them."""
        for start in range(len(self.words)):
            places = self._along(wanted, start, gap)
            if places:
                for place in places:
                    self._is_free[place] = False
                return Hit(places[0], places[-1] + 1, " ".join(wanted))
        return None

    def take_at(self, place: int) -> None:
        self._is_free[place] = False

    def free(self) -> Iterator[tuple[int, str]]:
        return ((place, word) for place, word in enumerate(self.words) if self._is_free[place])

    def is_free(self, place: int) -> bool:
        return 0 <= place < len(self.words) and self._is_free[place]

    def _take(self, entries: Sequence[tuple[str, ...]]) -> list[Hit]:
        found: list[Hit] = []
        for entry in entries:
            for start in range(len(self.words) - len(entry) + 1):
                span = range(start, start + len(entry))
                fits = all(
                    self._is_free[at] and _is_word(self.words[at], word)
                    for at, word in zip(span, entry, strict=True)
                )
                if fits:
                    for at in span:
                        self._is_free[at] = False
                    found.append(Hit(start, start + len(entry), " ".join(entry)))
        return sorted(found, key=lambda hit: hit.start)

    def _along(self, wanted: Sequence[str], start: int, gap: int) -> list[int]:
        places: list[int] = []
        at = start
        for number, word in enumerate(wanted):
            reach = range(at, min(len(self.words), at + 1 + (gap if number else 0)))
            place = next((one for one in reach if self._is_free[one] and same(self.words[one], word)), None)
            if place is None:
                return []
            places.append(place)
            at = place + 1
        return places


def same(word: str, other: str) -> bool:
    """Whether two words differ only in their endings."""
    if word == other:
        return True
    shorter, longer = sorted((len(word), len(other)))
    common = next((at for at in range(shorter) if word[at] != other[at]), shorter)
    return common >= 4 and shorter - common <= 1 and longer - common <= 2 and not word[0].isdigit()


def _is_word(word: str, entry: str) -> bool:
    return word.startswith(entry[:-1]) if entry.endswith("*") else word == entry


@cache
def _listed(languages: tuple[str, ...], table: str, name: str) -> tuple[tuple[str, ...], ...]:
    return _parsed(
        tuple(entry for code in languages for entry in read_language(PACKAGE, code)[table].get(name, ()))
    )


@cache
def _parsed(entries: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The longest first. A star behind a word stands for any ending."""
    parsed: set[tuple[str, ...]] = set()
    for entry in entries:
        words = list(tokens(entry.rstrip("*")))
        if words and entry.endswith("*") and words[-1] < _HAN:
            words[-1] += "*"
        if words:
            parsed.add(tuple(words))
    return tuple(sorted(parsed, key=lambda words: (-len(words), words)))
