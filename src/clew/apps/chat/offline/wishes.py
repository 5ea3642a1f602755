"""Request recognition: what a prompt asks for, by its words, in the supported languages."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from clew.domain.documents import clean_name, split_name
from clew.texts.catalog import merge_words

_PACKAGE = "clew.apps.chat.offline"


class Wish(StrEnum):
    SUMMARY = "summary"
    CHART = "chart"
    TABLE = "table"
    SEARCH = "search"
    TRANSLATION = "translation"
    CODE = "code"
    WRITING = "writing"
    CONVERSION = "conversion"
    FREE = "free"
    REPORT = "report"


_CODE_ENDINGS = frozenset(
    {
        "py",
        "js",
        "ts",
        "sql",
        "sh",
        "bash",
        "go",
        "rs",
        "java",
        "c",
        "cpp",
        "rb",
        "php",
        "r",
        "json",
        "yaml",
        "yml",
        "toml",
        "xml",
        "css",
    }
)
_TEXT_ENDINGS = frozenset({"md", "txt", "html", "docx", "pdf"})
_TABLE_ENDINGS = frozenset({"xlsx", "csv"})
_PICTURE_ENDINGS = frozenset({"png"})
FILE_NAME = re.compile(r"(?<![\w/\\.-])[\w-]+(?:\.[\w-]+)*\.[A-Za-z0-9]{1,5}(?![\w/\\])")
_FORMATS = ("docx", "pdf", "html", "md", "xlsx", "csv", "png")


@dataclass(frozen=True, slots=True)
class Wishes:
    """The requested actions, the files to make, and the documents that were named."""

    wishes: frozenset[Wish]
    outputs: tuple[str, ...]
    named: tuple[str, ...]
    formats: tuple[str, ...]

    def outputs_of(self, endings: Collection[str]) -> list[str]:
        return [label for label in self.outputs if split_name(label)[1] in endings]

    @property
    def explicit(self) -> frozenset[Wish]:
        """What to do with the documents, rather than what to make of them."""
        return self.wishes - {Wish.WRITING, Wish.CONVERSION, Wish.FREE, Wish.REPORT}

    @property
    def is_a_report(self) -> bool:
        """A document is wanted, and nothing says how to come by it: then everything that can be done is."""
        if Wish.FREE in self.wishes:
            return False
        reports = {Wish.WRITING, Wish.REPORT} <= self.wishes
        writes = reports or (bool(self.texts) and Wish.CONVERSION not in self.wishes)
        return writes and not self.explicit and not self.code

    @property
    def texts(self) -> list[str]:
        return self.outputs_of(_TEXT_ENDINGS)

    @property
    def written(self) -> list[str]:
        """Formats of text that are asked for without a name for the file."""
        return [ending for ending in self.formats if ending in _TEXT_ENDINGS and not self.texts]

    @property
    def tables(self) -> list[str]:
        return self.outputs_of(_TABLE_ENDINGS)

    @property
    def pictures(self) -> list[str]:
        return self.outputs_of(_PICTURE_ENDINGS)

    @property
    def code(self) -> list[str]:
        return self.outputs_of(_CODE_ENDINGS)


def read_wishes(prompt: str, documents: Collection[str]) -> Wishes:
    """Named files that exist are the input; any other named file is to be made."""
    names = list(dict.fromkeys(clean_name(match[0]) for match in FILE_NAME.finditer(prompt)))
    known = {label.casefold(): label for label in documents}
    named = tuple(known[name.casefold()] for name in names if name.casefold() in known)
    endings = _TEXT_ENDINGS | _TABLE_ENDINGS | _PICTURE_ENDINGS | _CODE_ENDINGS
    outputs = tuple(name for name in names if name.casefold() not in known and split_name(name)[1] in endings)
    spoken = f" {FILE_NAME.sub(' ', prompt).casefold()} "
    words = merge_words(_PACKAGE, "wishes")
    wishes = {wish for wish in Wish if any(begins(spoken, word) for word in words[wish])}
    if "?" in prompt or "？" in prompt:  # noqa: RUF001 - Chinese asks with it
        wishes.add(Wish.SEARCH)
    called = merge_words(_PACKAGE, "formats")
    formats = tuple(ending for ending in _FORMATS if any(begins(spoken, name) for name in called[ending]))
    return Wishes(frozenset(wishes), outputs, named, formats)


def begins(text: str, word: str) -> bool:
    """Whether a word of the text begins so; scripts without spaces have it anywhere."""
    if word[0] > "\u2e80":
        return word in text
    # Plain substring search: a prompt may be a megabyte long, and there are many words to find.
    place = text.find(word)
    while place >= 0:
        if place == 0 or not (text[place - 1].isalnum() or text[place - 1] == "_"):
            return True
        place = text.find(word, place + 1)
    return False
