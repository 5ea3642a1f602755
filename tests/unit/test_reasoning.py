"""What a model thinks aloud is not what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.graph.reasoning import ReasoningFilter, without_reasoning

PIECES = st.lists(st.sampled_from(["<think>", "</think>", "<", "thi", "nk>", "a", " b", "</"]), max_size=12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Four.", "Four."),
        ("<think>2 and 2</think>\n\nFour.", "Four."),
        ("A <think>x</think>B<think>y</think> C", "A B C"),
        ("<think>it never ends", ""),
        ("2 and 2</think>Four.", "Four."),
        ("a < b and <b>bold</b>", "a < b and <b>bold</b>"),
    ],
)
def test_thoughts_are_taken_out(text: str, said: str) -> None:
    assert without_reasoning(text) == said


@given(PIECES)
def test_pieces_show_what_the_whole_shows_but_for_what_may_still_become_a_tag(pieces: list[str]) -> None:
    one_by_one, at_once = ReasoningFilter(), ReasoningFilter()
    shown = "".join(one_by_one.feed(piece) for piece in pieces)
    assert shown == at_once.feed("".join(pieces))
    assert "<think>" not in shown
