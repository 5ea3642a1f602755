"""Language files: every language has every text with the same placeholders, and every list of words."""

from collections.abc import Iterable
from importlib.resources import files
from string import Formatter

import pytest

from clew.apps.chat.offline.wishes import Wish
from clew.channels.phrases import Phrase
from clew.texts.catalog import DEFAULT, SUPPORTED, merge_words, read_language
from clew.texts.phrases import Text

OFFLINE = "clew.apps.chat.offline"
PACKAGES = ("clew.texts", "clew.channels", OFFLINE)
TEXTS = [("clew.texts", Text), ("clew.channels", Phrase)]
OTHERS = [language for language in SUPPORTED if language != DEFAULT]


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("package", PACKAGES)
def test_there_is_one_file_for_each_supported_language_and_no_other(package: str) -> None:
    found = {entry.name for entry in (files(package) / "languages").iterdir()}
    assert found == {f"{language}.toml" for language in SUPPORTED}


@pytest.mark.parametrize(("package", "names"), TEXTS)
@pytest.mark.parametrize("language", SUPPORTED)
def test_a_language_has_every_text_and_no_other(package: str, names: Iterable[str], language: str) -> None:
    texts = read_language(package, language)["texts"]
    assert set(texts) == set(names)
    assert all(text.strip() for text in texts.values())


@pytest.mark.parametrize(("package", "names"), TEXTS)
@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_placeholders_of_the_english_text(
    package: str, names: Iterable[str], language: str
) -> None:
    english, translated = (read_language(package, code)["texts"] for code in (DEFAULT, language))
    for name in names:
        assert placeholders(translated[name]) == placeholders(english[name]), name
        # A long text that reads the same was forgotten; a short one may be the same word in both.
        assert len(english[name]) <= 40 or translated[name] != english[name], name


@pytest.mark.parametrize("package", PACKAGES)
def test_languages_have_the_same_tables_and_lists(package: str) -> None:
    assert len({frozenset(read_language(package, language)) for language in SUPPORTED}) == 1


@pytest.mark.parametrize("language", SUPPORTED)
def test_a_language_has_words_for_every_wish_aggregate_and_chart(language: str) -> None:
    spoken = read_language(OFFLINE, language)
    assert set(spoken["wishes"]) == {str(wish) for wish in Wish}
    for table in ("wishes", "aggregates", "charts"):
        assert set(spoken[table]) == set(read_language(OFFLINE, DEFAULT)[table])
        assert all(spoken[table].values())


def test_words_of_all_languages_are_merged() -> None:
    assert {"chart", "zeichne", "camembert", "柱状图"} <= merge_words(OFFLINE, "wishes")["chart"]
