"""The gist: extractive, the same every time, in any language."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.documents.gist import GIST_CHARACTERS, gist

REPORT = (
    "Revenue of the northern region grew by twelve percent this quarter. "
    + "The weather was pleasant. " * 3
    + "Lunch was served at noon. Somebody lost an umbrella. "
    + "Growth of revenue in the northern region came from renewed contracts with hospitals. "
    + "The parking lot was repainted. A new plant stands in the lobby. "
    + "Hospitals in the region renewed contracts worth nine million. "
    + "Nobody knows who moved the chairs. "
)


def test_a_short_text_is_its_own_gist() -> None:
    assert gist("  Two words.\n\nThree more words. ") == "Two words. Three more words."
    assert gist("") == ""


def test_the_gist_is_made_of_sentences_that_matter_in_their_order() -> None:
    said = gist(REPORT)
    assert said.startswith("Revenue of the northern region grew")
    assert "renewed contracts with hospitals" in said
    assert "umbrella" not in said
    assert len(said) <= GIST_CHARACTERS


@pytest.mark.parametrize(
    "text",
    [
        "今年の売上は北部で増加しました。天気は良かったです。" * 20,
        "Выручка северного региона выросла. Погода была хорошая. " * 20,
        "ارتفعت الإيرادات في المنطقة الشمالية. كان الطقس جميلا؟ " * 20,
        "उत्तरी क्षेत्र का राजस्व बढ़ा। मौसम अच्छा था। " * 20,
    ],
)
def test_other_scripts_end_their_sentences_too(text: str) -> None:
    assert 0 < len(gist(text)) <= GIST_CHARACTERS
    assert gist(text)[:10] == text[:10]


@given(st.text(max_size=2000))
def test_any_text_has_a_bounded_gist_made_of_its_own_words(text: str) -> None:
    said = gist(text)
    assert said == gist(text)
    assert len(said) <= GIST_CHARACTERS
    assert set(said) <= set(text) | set(" …")


def test_one_endless_sentence_is_cut_between_words() -> None:
    said = gist("word " * 1000)
    assert said.endswith("word…")
    assert len(said) <= GIST_CHARACTERS


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "." * 10**6, "\n" * 10**6, "a. " * 10**6, " " * 10**6 + "x", "한" * 10**6]
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    gist(text)
    assert time.process_time() - started < 5
