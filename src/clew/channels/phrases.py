"""Answers to a chat message that Clew cannot take; the folder `languages` has them in every language."""

from enum import StrEnum

from clew.texts.catalog import DEFAULT, SUPPORTED, read_text

_PACKAGE = "clew.channels"


class Phrase(StrEnum):
    UNREADABLE = "unreadable"
    SPOKEN = "spoken"
    TOO_LARGE = "too_large"
    NOT_FETCHED = "not_fetched"


def phrase(which: Phrase, language: str, **values: object) -> str:
    return read_text(_PACKAGE, which, language, values)


def language_of(code: str) -> str:
    """Of a language tag such as `pt-BR`, the language if we have it, else the default."""
    language = code.partition("-")[0].casefold()
    return language if language in SUPPORTED else DEFAULT
