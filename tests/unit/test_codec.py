"""Values survive the way into a row and back, or are refused before they are written."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.errors import Corrupt, Invalid
from clew.domain.events import BODIES, Body, Event, ToolCall, UserMessage
from clew.domain.thread import Json
from clew.stores.codec import VERSION, dump, dump_body, load, load_event, micros, moment
from tests.samples import EVERY_BODY

LONE = "\ud800"


def through_a_row(body: Body) -> Body:
    return load_event("t1", (1, "evt_1", 1, body.type, VERSION, dump_body(body), 0)).body


def nested(depth: int, kind: type) -> Json:
    value: Json = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("body", EVERY_BODY, ids=lambda body: type(body).__name__)
def test_every_body_comes_back_as_it_was(body: Body) -> None:
    assert through_a_row(body) == body


def test_the_samples_show_every_type() -> None:
    assert {body.type for body in EVERY_BODY} == set(BODIES)


@given(json_values)
def test_any_json_comes_back_as_it_was(value: Json) -> None:
    assert load(dump(value)) == value
    body = ToolCall(call_id="c1", name="n", args=value)
    assert through_a_row(body) == body


@pytest.mark.parametrize("args", ["", "{not json", [], None, 7, True, [1, "x"], 2**70, {"": {"": []}}, "\0"])
def test_odd_tool_arguments_are_kept_as_they_came(args: Json) -> None:
    body = ToolCall(call_id="c1", name="n", args=args)
    assert through_a_row(body) == body
    assert load(dump(args)) == args


@given(st.text(alphabet=st.characters(exclude_categories=[]), min_size=1))
def test_text_comes_back_or_is_refused(text: str) -> None:
    body = UserMessage(content=text)
    if any("\ud800" <= character <= "\udfff" for character in text):
        with pytest.raises(Invalid):
            dump_body(body)
        with pytest.raises(Invalid):
            dump(text)
    else:
        assert through_a_row(body) == body
        assert load(dump(text)) == text


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("depth", [10, 149, 150, 151, *range(195, 205), 240, 253, 254, 255, 256, 5000])
def test_what_is_accepted_can_be_read_back(depth: int, kind: type) -> None:
    value = nested(depth, kind)
    for write, read in ((dump, load), (_dump_args, _load_args)):
        try:
            row = write(value)
        except Invalid:
            assert depth > 190, "nobody nests that deep by accident"
        else:
            assert read(row) == value


def _dump_args(args: Json) -> str:
    return dump_body(ToolCall(call_id="c1", name="n", args=args))


def _load_args(row: str) -> Json:
    body = load_event("t1", (1, "evt_1", 1, "tool_call", VERSION, row, 0)).body
    assert isinstance(body, ToolCall)
    return body.args


@pytest.mark.parametrize("value", [object(), {"a": object()}, b"\xff", LONE, {LONE: 1}, [[LONE]]])
def test_what_is_not_json_is_refused(value: Json) -> None:
    with pytest.raises(Invalid):
        dump(value)
    with pytest.raises(Invalid):
        _dump_args(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_become_null(value: float) -> None:
    assert load(dump([value])) == [None]
    assert _load_args(_dump_args([value])) == [None]


def test_keys_come_back_as_strings() -> None:
    assert load(dump({1: {2: 3}})) == {"1": {"2": 3}}
    assert _load_args(_dump_args({1: {2: 3}})) == {"1": {"2": 3}}


def test_fields_with_their_default_take_no_room() -> None:
    assert dump_body(UserMessage(content="hi")) == '{"content":"hi"}'


@pytest.mark.parametrize(
    "damage",
    [
        {"type": "pickle"},
        {"type": "USER_MSG"},
        {"type": None},
        {"version": VERSION + 1},
        {"version": None},
        {"content": ""},
        {"content": "{"},
        {"content": "null"},
        {"content": "[]"},
        {"content": "{}"},
        {"content": '{"content": 7}'},
        {"content": '{"content":"hi","number":"many"}'},
        {"content": None},
        {"content": 7},
        {"content": b"\xff"},
        {"at": "yesterday"},
        {"at": None},
        {"at": 2**62},
    ],
    ids=str,
)
def test_a_damaged_row_is_corrupt_and_its_text_is_not_repeated(damage: dict[str, Any]) -> None:
    row = {
        "seq": 3,
        "id": "msg_1",
        "round": 1,
        "type": "user_msg",
        "version": VERSION,
        "content": '{"content":"hi"}',
        "at": 0,
    }
    assert isinstance(load_event("t1", tuple(row.values())), Event)
    with pytest.raises(Corrupt, match="'t1': event 3") as refused:
        load_event("t1", tuple((row | damage).values()))
    assert "hi" not in str(refused.value).replace("which this", "")


def test_unknown_fields_of_a_younger_minor_version_are_passed_over() -> None:
    row = (1, "msg_1", 1, "user_msg", VERSION, '{"content":"hi","mood":"good"}', 0)
    assert load_event("t1", row).body == UserMessage(content="hi")


@pytest.mark.fault("D3")
@given(
    # Not the first day of all: somewhere it is the day before.
    st.datetimes(
        datetime(1, 1, 2),  # noqa: DTZ001 - as the strategy wants it
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
    )
)
def test_a_moment_keeps_its_microseconds(at: datetime) -> None:
    assert moment(micros(at)) == at
    assert moment(micros(at)).tzinfo is UTC
