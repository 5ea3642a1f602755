"""What a list gained over an older one, and whether somebody changed an element of it in place."""

import uuid
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from clew.checkpointer.deltas import WINDOW, Delta, Remembered, build, parse_splice, touched_by
from clew.domain.errors import Corrupt

ELEMENT = st.one_of(
    st.builds(HumanMessage, st.text(max_size=5)),
    st.builds(
        AIMessage, st.text(max_size=5), tool_calls=st.just([{"name": "f", "args": {"a": [1]}, "id": "1"}])
    ),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.lists(st.integers(), max_size=2),
    st.text(max_size=4),
    st.booleans(),
    st.just(1),
    st.none(),
)


def rebuilt(old: list[Any], delta: Delta) -> list[Any]:
    return build(old, parse_splice(delta.splice), delta.gained)


@given(old=st.lists(ELEMENT, max_size=12), new=st.lists(st.one_of(ELEMENT, st.integers(0, 11)), max_size=16))
def test_the_new_list_comes_out_of_the_old_one_and_what_it_gained(old: list[Any], new: list[Any]) -> None:
    # A number below twelve stands for the old list's element: the same object, somewhere else.
    built = [old[item] if type(item) is int and item < len(old) else item for item in new]
    delta = Remembered.of(old).delta_to(built)
    if delta is not None:
        result = rebuilt(old, delta)
        assert result == built
        assert [type(element) for element in result] == [type(element) for element in built]


@given(old=st.lists(ELEMENT, max_size=12), data=st.data())
def test_chains_of_changes_end_in_the_same_list(old: list[Any], data: st.DataObject) -> None:
    remembered, stored = Remembered.of(old), deepcopy(old)
    current = list(old)
    for _ in range(data.draw(st.integers(1, 6))):
        match data.draw(st.sampled_from(["append", "remove", "replace", "nothing"])):
            case "append":
                current = [*current, *data.draw(st.lists(ELEMENT, max_size=3))]
            case "remove" if current:
                at = data.draw(st.integers(0, len(current) - 1))
                current = current[:at] + current[at + 1 :]
            case "replace" if current:
                at = data.draw(st.integers(0, len(current) - 1))
                current = [*current[:at], data.draw(ELEMENT), *current[at + 1 :]]
            case _:
                current = list(current)
        delta = remembered.delta_to(current)
        if delta is None:
            remembered, stored = Remembered.of(current), deepcopy(current)
        else:
            remembered, stored = (
                remembered.then(delta),
                rebuilt(stored, Delta(deepcopy(delta.gained), delta.pieces)),
            )
        assert stored == current
        assert remembered.copy() == current


def test_appending_costs_what_was_appended() -> None:
    old = [HumanMessage(str(n)) for n in range(50)]
    assert Remembered.of(old).delta_to([*old, "new"]) == Delta(["new"])


def test_an_element_replaced_in_the_middle_is_all_that_is_stored() -> None:
    old = [HumanMessage(str(n)) for n in range(50)]
    new = [*old[:20], AIMessage("new"), *old[21:], AIMessage("newer")]
    delta = Remembered.of(old).delta_to(new)
    assert delta is not None
    assert delta.gained == [new[20], new[50]]
    assert delta.splice == "[[0,20],1,[21,50],1]"


def test_a_list_that_keeps_nothing_is_not_a_change() -> None:
    assert Remembered.of([HumanMessage("a")]).delta_to([HumanMessage("a")]) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda message: setattr(message, "content", "changed"),
        lambda message: message.additional_kwargs.update(a=1),
        lambda message: message.tool_calls[0]["args"].update(a=2),
        lambda message: setattr(message, "id", str(uuid.uuid4())),
    ],
)
def test_a_message_changed_in_place_is_seen(change: Any) -> None:
    def make() -> AIMessage:
        return AIMessage("text", id="1", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}])

    old: list[Any] = [HumanMessage("before"), make(), HumanMessage("after")]
    remembered = Remembered.of(old)
    assert remembered.intact()
    change(old[1])
    assert not remembered.intact()
    delta = remembered.delta_to([*old, "new"])
    assert delta is not None
    assert delta.gained == [old[1], "new"]
    # Known to have been returned, or known not to have been.
    assert remembered.delta_to(old, touched_by([old[1]])) == Delta([old[1]], [[0, 1], 1, [2, 3]])
    assert remembered.delta_to([*old, "new"], touched_by(["new"])) == Delta(["new"])


def test_a_dict_changed_in_place_and_returned_is_stored_again() -> None:
    plan = [{"done": False}, {"done": False}]
    remembered = Remembered.of(plan)
    plan[0]["done"] = True
    assert remembered.delta_to(plan, touched_by(plan)) == Delta([{"done": True}], [1, [1, 2]])


def test_in_a_long_list_every_element_is_looked_at_in_turn() -> None:
    old = [HumanMessage(str(n)) for n in range(10 * WINDOW)]
    remembered = Remembered.of(old)
    assert all(remembered.intact() for _ in range(30))
    old[3 * WINDOW].content = "changed"
    assert not all(remembered.intact() for _ in range(10))
    old[3 * WINDOW].content = str(3 * WINDOW)
    old[-1].content = "changed"
    assert not remembered.intact()


class Opaque:
    """Equal to nothing but itself."""


class Hostile:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError


@pytest.mark.parametrize("element", [Opaque(), Hostile(), (1, 2), {1: 2}, {"a": (1,)}, {1}])
def test_what_a_reader_from_disk_would_see_differently_is_not_given_out(element: Any) -> None:
    assert not Remembered.of([element]).intact()
    assert Remembered.of(["a", element]).delta_to(["a", element, "new"]) is not None


def test_an_object_that_is_there_twice_is_not_given_out() -> None:
    message = HumanMessage("a")
    assert not Remembered.of([message, message]).intact()
    assert not Remembered.of([message]).then(Delta([message])).intact()
    assert not Remembered.of([message, "b"]).then(Delta([], [[0, 1], [0, 1]])).intact()
    assert Remembered.of(["a", "a", None, None]).then(Delta(["a"])).intact()


def test_two_branches_of_one_list_do_not_meet() -> None:
    trunk = Remembered.of(["a"])
    left = trunk.then(Delta(["left"]))
    right = trunk.then(Delta(["right"]))
    assert (trunk.copy(), left.copy(), right.copy()) == (["a"], ["a", "left"], ["a", "right"])
    assert left.intact()
    assert right.intact()


@pytest.mark.parametrize(
    "splice", ["", "{}", "[[1]]", "[[1,2,3]]", "[-1]", "[true]", "[[0,-1]]", '["a"]', "[1.5]"]
)
def test_a_damaged_splice_is_corrupt(splice: str) -> None:
    with pytest.raises(Corrupt):
        parse_splice(splice)


def test_pieces_that_do_not_use_what_was_gained_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        build(["a"], [[0, 1]], ["left over"])
