"""Labels as the paths of their leaves, and back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.errors import Invalid
from clew.ports.thread_metadata import DEEPEST, LONGEST, MOST, grown, leaves, readable_leaf

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def deep(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels):
        value = {"in": value}
    return dict(value)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_what_is_taken_apart_is_put_together_again(labels: dict[str, Any]) -> None:
    assert grown(map(readable_leaf, leaves(labels).items())) == labels


def test_each_leaf_has_a_path() -> None:
    assert leaves({"a": {"b": 1, "c": {}}, "d": [2, {"e": 3}]}) == {
        '["a", "b"]': "1",
        '["a", "c"]': "{}",
        '["d"]': '[2, {"e": 3}]',
    }


def test_equal_values_are_written_alike() -> None:
    assert leaves({"a": [{"x": 1, "y": 2}]}) == leaves({"a": [{"y": 2, "x": 1}]})


def test_labels_have_limits() -> None:
    assert leaves(deep(DEEPEST))
    assert len(leaves({str(n): n for n in range(MOST)})) == MOST
    for too_much in (
        deep(DEEPEST + 1),
        {str(n): n for n in range(MOST + 1)},
        {"a": {str(n): n for n in range(MOST)}, "b": 1},
        {"n" * LONGEST: 1},
        {"n" * (LONGEST // 2): {"m" * (LONGEST // 2): 1}},
    ):
        with pytest.raises(Invalid) as refused:
            leaves(too_much)
        assert refused.value.field == "metadata"
