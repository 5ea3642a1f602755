"""Language of a text: by its script where that is enough, else by a detector's scores and by known words."""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from clew.texts.catalog import DEFAULT, SUPPORTED, read_language

_PACKAGE = "clew.texts"

# Below these scores the previous language, or English, is a better guess.
SURE = 0.45
LIKELY = 0.3
# A single word that is in no list, such as "ok", counts only if the detector is certain.
CERTAIN = 0.9
_ONLY_MINE = 3
_FEW = 3

_CODE_AND_NAMES = re.compile(
    r"```.*?```|`[^`]*`|https?://\S+|\S+@\S+|[\w./\\-]+\.[A-Za-z0-9]{1,5}\b", re.DOTALL
)
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_]+")
_LETTER = re.compile(r"[^\W\d_]")


def spoken(text: str) -> str:
    """The text without what belongs to no language: file names, addresses, code."""
    return " ".join(_CODE_AND_NAMES.sub(" ", text).split())


def by_script(text: str) -> str | None:
    """`zh` for Chinese characters without the signs of Japanese and Korean; None where the script does not tell."""
    letters = len(_LETTER.findall(text))
    if not letters or _KANA_OR_HANGUL.search(text):
        return None
    # One character says about as much as three letters do.
    return "zh" if len(_HAN.findall(text)) * 3 >= letters else None


def choose(text: str, scores: Mapping[str, float], *, previous: str | None = None) -> str:
    """One of the supported languages: what a detector thinks, and how many of the words are known. A weak guess
    changes nothing."""
    if (script := by_script(text)) is not None:
        return script
    folded, relatives = dict.fromkeys(SUPPORTED, 0.0), _relatives()
    for code, score in scores.items():
        if (ours := relatives.get(code, code)) in folded:
            folded[ours] += score
    words = _WORD.findall(text.casefold())
    known = _known(words)
    for code, share in known.items():
        folded[code] += share
    best = max(SUPPORTED, key=lambda code: folded[code])
    says_little = len(words) < 2 and not known
    needed = CERTAIN if says_little else SURE if previous else LIKELY
    return best if folded[best] >= needed else previous or DEFAULT


def _known(words: Sequence[str]) -> dict[str, float]:
    """How much of a text each language knows, of those that know at least half of it, or a word of a few. A word of one
    language alone counts more."""
    vocabularies = _vocabularies()
    speakers = [[code for code, its in vocabularies.items() if word in its] for word in words]
    found: dict[str, float] = {}
    for code in vocabularies:
        mine = [known for known in speakers if code in known]
        if mine and (len(mine) * 2 >= len(words) or len(words) <= _FEW):
            found[code] = sum(_ONLY_MINE if known == [code] else 1 for known in mine) / len(words)
    return found


@cache
def _vocabularies() -> Mapping[str, frozenset[str]]:
    """Words that requests are made of, by language. For a few words they are more reliable than a detector."""
    return {code: frozenset(read_language(_PACKAGE, code)["words"].split()) for code in SUPPORTED}


@cache
def _relatives() -> Mapping[str, str]:
    """Close relatives of a supported language: a detector takes short texts for one of them."""
    return {near: code for code in SUPPORTED for near in read_language(_PACKAGE, code)["relatives"]}
