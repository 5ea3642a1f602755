"""Language files: one TOML file per language, in the folder `languages` of the package that uses them."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

SUPPORTED = ("en", "de", "fr", "es", "it", "pt", "zh")
DEFAULT = "en"


@cache
def read_language(package: str, language: str) -> Mapping[str, Any]:
    """The file of one supported language, read once per process."""
    file = files(package) / "languages" / f"{language}.toml"
    return MappingProxyType(tomllib.loads(file.read_text("utf-8")))


def read_text(package: str, name: str, language: str, values: Mapping[str, object]) -> str:
    """The text of that name with its placeholders filled in; the English text for any other language."""
    texts = read_language(package, language if language in SUPPORTED else DEFAULT)["texts"]
    return str(texts[name].format(**values))


@cache
def merge_words(package: str, table: str) -> Mapping[str, frozenset[str]]:
    """The word lists of one table, by their names, each with the words of every language."""
    merged: dict[str, frozenset[str]] = {}
    for language in SUPPORTED:
        for name, words in read_language(package, language)[table].items():
            merged[name] = merged.get(name, frozenset()) | frozenset(words)
    return MappingProxyType(merged)
