"""Translation into events of LangGraph's thread protocol."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from clew.api.sdk.protocol.commands import Refusal, answers_of, is_command
from clew.api.sdk.protocol.events import EVENTS_PER_PART, RunEvents
from clew.api.sdk.protocol.filters import EventFilter
from clew.api.sdk.protocol.messages import protocol_state
from clew.domain.errors import Invalid
from clew.domain.events import RunSpec
from clew.domain.records import StreamPart
from clew.domain.runs import Run, RunStatus

AT = datetime(2026, 1, 1, tzinfo=UTC)
CHILD = "child:1"


def run(status: RunStatus = RunStatus.SUCCESS, **more: Any) -> Run:
    spec = RunSpec(run_id="r1", assistant_id="a", graph="g")
    return Run(thread_id="t1", spec=spec, input=None, status=status, created_at=AT, updated_at=AT, **more)


def part(number: int, name: str, data: Any, **params: Any) -> StreamPart:
    method, *namespace = name.split("|")
    told = {"type": "event", "method": method, "params": {"namespace": namespace, "data": data, **params}}
    return StreamPart(number, name, json.dumps(told).encode(), "r1")


def told(events: list[Any]) -> list[tuple[str, list[str], Any]]:
    return [(one["method"], one["params"]["namespace"], one["params"]["data"]) for one in events]


def status(event: str, **more: str) -> tuple[str, list[str], Any]:
    return ("lifecycle", [], {"event": event, "graph_name": "g", **more})


def test_a_run_begins_and_ends_with_its_lifecycle() -> None:
    ends = {
        RunStatus.SUCCESS: status("completed"),
        RunStatus.INTERRUPTED: status("interrupted"),
        RunStatus.ERROR: status("failed", error="no luck"),
    }
    for ended, expected in ends.items():
        events = RunEvents(run(RunStatus.RUNNING))
        assert told(events.begin(10)) == [status("running")]
        error = {"error": "ValueError: no luck"} if ended is RunStatus.ERROR else {}
        assert told(events.end(run(ended, **error), 20)) == [expected]


def test_a_question_is_asked_once_by_the_innermost_graph() -> None:
    events = RunEvents(run())
    events.begin(10)
    asks = [{"id": "i1", "value": "sure?"}]
    first = events.feed(part(11, f"updates|{CHILD}", {"__interrupt__": asks}))
    asked = ("input.requested", [CHILD], {"interrupt_id": "i1", "payload": "sure?"})
    assert told(first) == [asked, status("interrupted")]
    assert [one["seq"] for one in first] == [11 * EVENTS_PER_PART, 11 * EVENTS_PER_PART + 1]
    again = events.feed(part(12, f"values|{CHILD}", {"a": 1}, interrupts=asks))
    assert told(again) == [("values", [CHILD], {"a": 1})]
    assert events.feed(part(13, "updates", {"__interrupt__": asks})) == []
    # What only the log knows of, such as a tool's question, is asked at the end.
    more = events.end(run(asked={"i1": "sure?", "call-1": {"tool": "pay"}}), 20)
    assert told(more)[0] == ("input.requested", [], {"interrupt_id": "call-1", "payload": {"tool": "pay"}})
    assert events.tree()["status"] == "interrupted"


def test_parts_of_every_channel() -> None:
    events = RunEvents(run())
    events.begin(10)
    assert told(events.feed(part(11, "updates", {"n": {"a": 1}, "m": 2}))) == [
        ("updates", [], {"node": "n", "values": {"a": 1}}),
        ("updates", [], {"node": "m", "values": {"value": 2}}),
    ]
    assert told(events.feed(part(12, "custom", "x"))) == [("custom", [], {"payload": "x"})]
    assert told(events.feed(part(13, "custom:mine", "x"))) == [
        ("custom", [], {"name": "mine", "payload": "x"})
    ]
    checkpoint = {"id": "c1", "step": 0, "source": "loop"}
    assert told(events.feed(part(14, "checkpoints", checkpoint))) == [("checkpoints", [], checkpoint)]
    assert events.feed(part(15, "checkpoints", checkpoint)) == []
    delta = {"event": "content-block-delta", "index": 0}
    assert told(events.feed(part(16, "messages", delta))) == [("messages", [], delta)]
    assert events.feed(StreamPart(17, "metadata", b"{}", "r1")) == []
    done = {"event": "tool-finished", "tool_call_id": "c", "output": {"content": "3", "id": None}}
    tools, *said = told(events.feed(part(18, "tools", done)))
    assert tools == ("tools", [], done)
    assert [(place, data["event"]) for _, place, data in said] == [
        (["tools:c"], name)
        for name in (
            "message-start",
            "content-block-start",
            "content-block-delta",
            "content-block-finish",
            "message-finish",
        )
    ]


def test_a_run_of_another_client_is_told_as_far_as_it_fits() -> None:
    events = RunEvents(run())
    plain = StreamPart(11, "values", b'{"a": 1, "__interrupt__": [{"id": "i1", "value": 2}]}', "r1")
    assert [one["method"] for one in events.feed(plain)] == ["input.requested", "lifecycle", "values"]
    assert events.feed(StreamPart(12, "messages/partial", b"[]", "r1")) == []
    place = b'{"checkpoint": {"checkpoint_id": "c"}, "metadata": {"step": 1, "source": "loop"}}'
    assert told(events.feed(StreamPart(13, "checkpoints", place, "r1"))) == [
        ("checkpoints", [], {"id": "c", "step": 1, "source": "loop"})
    ]


def test_a_message_that_was_cut_off_is_in_one_state_and_gone_from_the_next() -> None:
    """So that clients which keep what was streamed take it away: the attempt after a crash says it under another id."""
    events = RunEvents(run())
    events.begin(10)
    human = {"type": "human", "content": "hi", "id": "h"}
    kept = {"type": "ai", "content": "hello", "id": "kept"}

    def begins(number: int, message: str) -> list[Any]:
        return told(events.feed(part(number, "messages", {"event": "message-start", "id": message})))

    def values(number: int, *messages: Any) -> list[Any]:
        return told(events.feed(part(number, "values", {"messages": [*messages]})))

    def state(*messages: Any) -> tuple[str, list[str], Any]:
        return ("values", [], {"messages": [*messages]})

    events.feed(part(11, "metadata", {"run_id": "r1"}))
    assert values(12, human) == [state(human)]
    for number, message in ((13, "kept"), (14, "lost")):
        assert len(begins(number, message)) == 1
    assert values(15, human, kept) == [state(human, kept)]
    events.feed(part(30, "metadata", {"run_id": "r1"}))
    lost = {"type": "ai", "content": "", "id": "lost"}
    assert values(31, human, kept) == [state(human, kept, lost), state(human, kept)]
    begins(32, "anew")
    assert values(33, human, kept) == [state(human, kept)]


def test_graphs_inside_are_a_tree() -> None:
    events = RunEvents(run())
    events.begin(10)
    started = {"event": "started", "namespace": [CHILD], "graph_name": "kid", "trigger_call_id": "1"}
    assert told(events.feed(part(11, "lifecycle", started))) == [("lifecycle", [CHILD], started)]
    assert events.feed(part(12, "lifecycle", started)) == []
    child = {"namespace": [CHILD], "status": "started", "graph_name": "kid"}
    root = {"namespace": [], "status": "running", "graph_name": "g"}
    assert events.tree() == {**root, "children": [child]}
    ends = told(events.end(run(), 20))
    assert ends == [
        ("lifecycle", [CHILD], {"event": "completed", "graph_name": "kid"}),
        status("completed"),
    ]


def test_messages_of_a_state_have_the_form_of_the_protocol() -> None:
    ai: dict[str, Any] = {
        "type": "ai",
        "id": "m1",
        "content": ["hi", {"type": "image_url", "image_url": {"url": "u"}}, {"type": "odd"}],
        "additional_kwargs": {},
        "response_metadata": {},
        "tool_calls": [{"id": "c", "name": "f", "args": {"a": 1}, "type": "tool_call"}],
        "invalid_tool_calls": [],
        "usage_metadata": None,
    }
    state = {"messages": [ai, {"type": "user", "content": "x", "id": None}], "n": [1], "__interrupt__": []}
    assert protocol_state(state) == {
        "messages": [
            {
                "type": "ai",
                "id": "m1",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image", "url": "u"},
                    {"type": "non_standard", "value": {"type": "odd"}},
                ],
                "tool_calls": [{"type": "tool_call", "name": "f", "args": {"a": 1}, "id": "c"}],
            },
            {"type": "human", "content": "x"},
        ],
        "n": [1],
    }
    openai = {"id": "c", "function": {"name": "f", "arguments": "{"}}
    broken = protocol_state({"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [openai]}})
    (call,) = broken["invalid_tool_calls"]
    assert (call["type"], call["id"], call["args"]) == ("invalid_tool_call", "c", "{")


@pytest.mark.parametrize(
    ("params", "method", "namespace", "admitted"),
    [
        ({"channels": ["values"]}, "values", ["a:1"], True),
        ({"channels": ["values"]}, "updates", [], False),
        ({"channels": ["input"]}, "input.requested", [], True),
        ({"channels": ["custom:mine"]}, "custom", [], True),
        ({"channels": ["custom:other"]}, "custom", [], False),
        ({"channels": ["values"], "namespaces": [["a"]]}, "values", ["a:1", "b:2"], True),
        ({"channels": ["values"], "namespaces": [["a"]], "depth": 0}, "values", ["a:1", "b:2"], False),
        ({"channels": ["values"], "namespaces": [["a:2"]]}, "values", ["a:1"], False),
        ({"channels": ["values"], "namespaces": [["a:1", "b"]]}, "values", ["a:1"], False),
    ],
)
def test_a_filter_admits_channels_and_namespaces(
    params: dict[str, Any], method: str, namespace: list[str], admitted: bool
) -> None:
    event = {"method": method, "params": {"namespace": namespace, "data": {"name": "mine"}}}
    assert EventFilter.of(params).admits(event) is admitted


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"channels": []},
        {"channels": ["songs"]},
        {"channels": ["custom:"]},
        {"channels": ["values"], "namespaces": ["a"]},
        {"channels": ["values"], "depth": -1},
        {"channels": ["values"], "depth": True},
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        EventFilter.of(params)


def test_answers_are_given_one_by_one_or_together() -> None:
    assert answers_of({"interrupt_id": "i", "response": 1, "namespace": []}) == {"i": 1}
    both = [{"interrupt_id": "i", "response": 1}, {"interrupt_id": "j", "response": None}]
    assert answers_of({"responses": both}) == {"i": 1, "j": None}
    wrongs: list[dict[str, Any]] = [
        {},
        {"responses": []},
        {"responses": [1]},
        {"interrupt_id": "i", "namespace": "x"},
    ]
    for wrong in wrongs:
        with pytest.raises(Refusal):
            answers_of(wrong)
    odd: list[Any] = [None, [], {"id": True, "method": "m"}, {"id": 1}]
    assert not any(is_command(each) for each in odd)
