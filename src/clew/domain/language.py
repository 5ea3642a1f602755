"""Which language somebody writes: by its script where that is enough, else by what a detector thinks of it."""

import re
from collections.abc import Mapping

# Those our fixed texts exist in. A model may answer in any other.
SUPPORTED = ("en", "de", "fr", "es", "it", "pt", "zh")
DEFAULT = "en"

# Close relatives: a detector takes short texts for one of them, and who speaks them reads their neighbour.
_RELATIVES = {
    "gl": "pt", "ast": "es", "an": "es", "ca": "es", "oc": "fr", "wa": "fr", "lmo": "it", "vec": "it", "scn": "it",
    "sc": "it", "als": "de", "bar": "de", "nds": "de", "lb": "de", "wuu": "zh", "yue": "zh", "sco": "en",
}  # fmt: skip

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
    folded = dict.fromkeys(SUPPORTED, 0.0)
    for code, score in scores.items():
        if (ours := _RELATIVES.get(code, code)) in folded:
            folded[ours] += score
    best = max(SUPPORTED, key=lambda code: folded[code])
    if folded[best] >= (SURE if previous else LIKELY):
        return best
    return previous or DEFAULT
