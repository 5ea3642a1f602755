"""Texts in pieces: sentences, digests, and what matters for a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.documents.passages import cut, digest, paragraphs, relevant, relevant_rows, sentences, words

REPORT = """Annual report

Revenue grew by 12 percent compared with the previous year. Growth came from the northern
region, where revenue doubled. Dr. Meyer expects the northern region to grow further in
2025.

Costs stayed flat. Logistics were renegotiated in spring, e.g. with the two largest carriers.
The supply of chips remains the main risk for revenue in the northern region.

| region | sales |
| --- | --- |
| north | 5 |
"""


def test_wrapped_lines_are_one_paragraph_and_abbreviations_end_nothing() -> None:
    assert "Dr. Meyer expects the northern region to grow further in 2025." in sentences(REPORT)
    assert "Logistics were renegotiated in spring, e.g. with the two largest carriers." in sentences(REPORT)


def test_headings_and_tables_are_no_sentences() -> None:
    assert not any("|" in sentence or sentence == "Annual report" for sentence in digest(REPORT, count=20))


def test_hyphens_at_the_end_of_a_line_are_taken_back() -> None:
    assert list(paragraphs("The infra-\nstructure is old.")) == ["The infrastructure is old."]


def test_chinese_sentences() -> None:
    assert sentences("收入增长了百分之十二。成本保持不变！主要风险是什么？") == [  # noqa: RUF001
        "收入增长了百分之十二。",
        "成本保持不变！",  # noqa: RUF001
        "主要风险是什么？",  # noqa: RUF001
    ]


def test_a_digest_takes_what_says_most_in_its_order() -> None:
    said = digest(REPORT, count=3)
    assert len(said) == 3
    assert said == [sentence for sentence in sentences(REPORT) if sentence in said]
    assert any("northern" in sentence for sentence in said)


def test_a_digest_says_nothing_twice() -> None:
    text = (
        "Sales rose in the north because of new shops. " * 10
        + "Costs fell in the south after the merger ended."
    )
    assert len(digest(text, count=5)) == 2


def test_what_matters_depends_on_the_request() -> None:
    costs = relevant(REPORT, "How did logistics and costs develop?", limit=200)
    growth = relevant(REPORT, "Which region did revenue grow in?", limit=200)
    assert "Logistics" in costs
    assert "northern" in growth
    assert costs != growth


def test_without_a_word_in_common_the_beginning_matters() -> None:
    assert (
        relevant("First things first. Second things later.", "quantum zebra", limit=25)
        == "First things first."
    )


def test_rows_of_a_table_that_matter_keep_their_header() -> None:
    table = "region,sales\n" + "".join(f"region{n},{n}\n" for n in range(1000)) + "north,5\n"
    assert relevant_rows(table, "sales in the north", limit=200) == "region,sales\nnorth,5"
    assert relevant_rows(table, "anything", limit=60).splitlines()[:2] == ["region,sales", "region0,0"]


def test_words_of_scripts_without_spaces_are_pairs() -> None:
    assert words("销售额 Regions x") == ["销售", "售额", "region"]


@pytest.mark.parametrize("limit", [10, 100])
def test_cutting_says_that_it_cut(limit: int) -> None:
    assert cut("short", limit) == "short"
    assert cut("x" * 200, limit).endswith("[…]")
    assert len(cut("x" * 200, limit)) <= limit


@given(st.text(max_size=400), st.text(max_size=40), st.integers(20, 200))
def test_any_text_has_pieces_of_itself(text: str, request: str, limit: int) -> None:
    flat = "".join(text.split())
    for sentence in digest(text, count=3):
        assert "".join(sentence.split()).replace("-", "") in flat.replace("-", "")
    assert len(relevant(text, request, limit=limit)) <= limit
    assert len(relevant_rows(text, request, limit=limit)) <= limit
