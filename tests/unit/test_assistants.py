"""What an assistant becomes when it is changed, and which one a search finds."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clew.domain.assistants import Assistant, AssistantPatch, Search, new_assistant, revised
from clew.domain.errors import Invalid
from clew.domain.items import contains
from clew.engine.assistants import as_id, system_id
from tests.samples import NOW

LATER = NOW + timedelta(hours=1)


def made(**wish: Any) -> Assistant:
    return new_assistant("a", "echo", AssistantPatch(**wish), now=NOW)


def test_a_wish_for_nothing_in_particular_has_defaults() -> None:
    assert made() == Assistant(id="a", graph="echo", name="Untitled", created_at=NOW, updated_at=NOW)


def test_what_is_not_wished_for_stays() -> None:
    before = made(name="n", description="d", config={"tags": ["t"]}, metadata={"a": 1, "b": 1})
    after = revised(before, AssistantPatch(metadata={"b": 2}), now=LATER)
    assert after == replace(before, metadata={"a": 1, "b": 2}, updated_at=LATER)
    assert revised(before, AssistantPatch(graph="nested"), now=NOW) == replace(before, graph="nested")
    assert revised(before, AssistantPatch(description=""), now=NOW) == replace(before, description="")


def test_a_context_is_configurable_under_another_name() -> None:
    by_context = made(config={"tags": ["t"]}, context={"k": 1})
    assert by_context.config == {"tags": ["t"], "configurable": {"k": 1}}
    by_config = made(config={"configurable": {"k": 1}})
    assert by_config.context == {"k": 1}
    changed = revised(by_context, AssistantPatch(context={"k": 2}), now=NOW)
    assert (changed.config, changed.context) == ({"tags": ["t"], "configurable": {"k": 2}}, {"k": 2})
    changed = revised(by_context, AssistantPatch(config={"configurable": {"k": 3}}), now=NOW)
    assert (changed.config, changed.context) == ({"configurable": {"k": 3}}, {"k": 3})
    with pytest.raises(Invalid):
        AssistantPatch(config={"configurable": {"k": 1}}, context={"k": 1})


@pytest.mark.parametrize(
    ("whole", "part", "is_in"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": None}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 0}, {"a": False}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": {"b": 1}}, {"a": {}}, True),
        ({"a": 1}, {"a": {}}, False),
        ({"a": {}}, {"a": 1}, False),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
    ],
)
def test_an_object_contains_another(whole: Any, part: Any, is_in: bool) -> None:
    assert contains(whole, part) is is_in


def test_two_pages_never_show_the_same_one() -> None:
    """Though all are of the same time."""
    all_of_them = [replace(made(), id=str(n)) for n in (3, 1, 4, 2, 0)]
    for descending in (True, False):
        pages = [
            Search(limit=2, offset=offset, descending=descending).page(all_of_them) for offset in (0, 2, 4)
        ]
        assert [one.id for page in pages for one in page] == ["3", "1", "4", "2", "0"]


def test_names_are_in_order_whatever_their_case() -> None:
    all_of_them = [replace(made(name=name), id=name) for name in ("b", "C", "a")]
    page = Search(sort_by="name", descending=False).page(all_of_them)
    assert [one.name for one in page] == ["a", "b", "C"]


def test_a_graphs_own_assistant_has_the_id_that_langgraph_gives_it() -> None:
    assert system_id("echo") == "046b5dc7-2108-582c-9c6c-31d556d138f0"


def test_an_id_is_written_in_one_way() -> None:
    for text in ("046B5DC7-2108-582C-9C6C-31D556D138F0", "046b5dc72108582c9c6c31d556d138f0"):
        assert as_id(text) == "046b5dc7-2108-582c-9c6c-31d556d138f0"
    with pytest.raises(Invalid):
        as_id("echo")
