"""Which language somebody writes: by its script where that is enough, else by what a detector thinks of it."""

import re
from collections.abc import Mapping

# Those our fixed texts exist in. A model may answer in any other.
SUPPORTED = ("en", "de", "fr", "es", "it", "pt", "zh")
DEFAULT = "en"

# Below these a guess is worth less than what was spoken before, or than English.
SURE = 0.45
LIKELY = 0.3

_CODE_AND_NAMES = re.compile(
    r"```.*?```|`[^`]*`|https?://\S+|\S+@\S+|[\w./\\-]+\.[A-Za-z0-9]{1,5}\b", re.DOTALL
)
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
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
    """One of the supported languages. A weak guess changes nothing."""
    if (script := by_script(text)) is not None:
        return script
    best = max(SUPPORTED, key=lambda code: scores.get(code, 0.0))
    if scores.get(best, 0.0) >= (SURE if previous else LIKELY):
        return best
    return previous or DEFAULT
