"""Parts of a stream as LangGraph's clients hear them."""

import json
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langgraph.types import Interrupt

from clew.domain.events import RunSpec
from clew.graph.stream_encoder import StreamEncoder, as_bytes, place_of, without_ours

OURS = {"clew_fence": 7, "clew_round": 1, "__pregel_task_id": "x"}


def heard(modes: tuple[str, ...], *parts: tuple[str, Any], ns: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    told: list[tuple[str, Any]] = []
    listener = StreamEncoder(
        RunSpec(run_id="r1", assistant_id="a1", graph="g", modes=modes),
        lambda name, data: told.append((name, json.loads(data))),
    )
    for mode, part in parts:
        listener.hear(ns, mode, part)
    return told


def test_only_what_was_ordered_is_told() -> None:
    parts = [("values", {"a": 1}), ("updates", {"n": {"a": 1}}), ("tasks", {"id": 1}), ("custom", "c")]
    for name, part in parts:
        assert heard((name,), *parts) == [(name, part)]
    said: tuple[str, Any] = ("messages", (AIMessageChunk(content="a", id="m1"), {}))
    assert heard(("values",), said) == []


def test_a_question_is_told_to_everybody() -> None:
    asks = ("updates", {"__interrupt__": (Interrupt(value="?", id="i1"),)})
    for mode, name in (("custom", "values"), ("updates", "updates")):
        ((told, data),) = heard((mode,), asks)
        assert (told, [(one["id"], one["value"]) for one in data["__interrupt__"]]) == (name, [("i1", "?")])
    assert heard(("custom",), ("updates", {"__interrupt__": ()})) == []
    # With the values LangGraph tells it itself; alone it would be a state without values.
    assert heard(("values",), asks) == []


def test_a_question_of_a_tool_has_the_id_of_its_call() -> None:
    value = {"clew_call": "call-1", "tool": "send", "args": {}}
    ((_, data),) = heard(("updates",), ("updates", {"__interrupt__": (Interrupt(value=value, id="i1"),)}))
    (one,) = data["__interrupt__"]
    assert (one["id"], one["value"]) == ("call-1", {"tool": "send", "args": {}})


def test_a_part_of_a_graph_inside_is_told_with_its_place() -> None:
    assert heard(("values",), ("values", {}), ns=("a:1", "b:2")) == [("values|a:1|b:2", {})]


def test_messages_are_told_as_far_as_they_were_said() -> None:
    described = {"langgraph_node": "n", **OURS}
    told = heard(
        ("messages",),
        ("messages", (AIMessageChunk(content="go", id="m1"), described)),
        ("messages", (AIMessageChunk(content="od", id="m1"), described)),
        ("messages", (AIMessage("whole", id="m2"), described)),
    )
    assert [name for name, _ in told] == [
        *("messages/metadata", "messages/partial", "messages/partial", "messages/metadata"),
        "messages/complete",
    ]
    assert told[0][1] == {"m1": {"metadata": {"langgraph_node": "n"}}}
    assert [data[0]["content"] for name, data in told if name != "messages/metadata"] == [
        *("go", "good", "whole")
    ]
    assert {data[0]["type"] for name, data in told if name != "messages/metadata"} == {"ai"}


def test_messages_are_told_piece_by_piece() -> None:
    pieces = [
        ("messages", (AIMessageChunk(content=text, id="m1"), {"n": 1, **OURS})) for text in ("go", "od")
    ]
    for modes in (("messages-tuple",), ("messages-tuple", "messages")):
        told = heard(modes, *pieces)
        assert [(name, data[0]["content"], data[1]) for name, data in told] == [
            ("messages", "go", {"n": 1}),
            ("messages", "od", {"n": 1}),
        ]


def test_nothing_of_ours_is_told() -> None:
    config = {"configurable": {"thread_id": "t1", "checkpoint_ns": "", "checkpoint_id": "c1", **OURS}}
    checkpoint = {
        "config": config,
        "parent_config": None,
        "metadata": {"step": 1, **OURS},
        "values": {"a": 1},
        "tasks": [{"id": "1", "state": config}],
    }
    task = {"id": "1", "name": "n", "metadata": {"k": 1, **OURS}}
    told = heard(
        ("checkpoints", "tasks", "debug"),
        ("checkpoints", checkpoint),
        ("tasks", task),
        ("debug", {"type": "checkpoint", "payload": checkpoint}),
        ("debug", {"type": "task", "payload": task}),
        ("debug", {"type": "task_result", "payload": {"id": "1", "result": None}}),
    )
    assert "clew" not in str(told)
    assert "pregel" not in str(told)
    place = {"thread_id": "t1", "checkpoint_ns": "", "checkpoint_id": "c1"}
    shown = told[0][1]
    assert (shown["checkpoint"], shown["parent_checkpoint"], shown["metadata"]) == (place, None, {"step": 1})
    assert (shown["config"], shown["parent_config"]) == ({"configurable": place}, None)
    assert shown["tasks"] == [{"id": "1", "state": {"configurable": place}, "checkpoint": place}]
    assert told[1][1] == {"id": "1", "name": "n", "metadata": {"k": 1}}


def test_anything_can_be_told() -> None:
    class Odd:
        pass

    circle: list[Any] = []
    circle.append(circle)
    assert json.loads(as_bytes({"a": b"\xff", "n": float("nan"), "odd": Odd()}))["n"] is None
    assert "cannot be shown" in json.loads(as_bytes(circle))["error"]


def test_a_config_without_a_checkpoint_is_no_place() -> None:
    assert place_of(None) is None
    assert place_of({"configurable": {"thread_id": "t1"}}) is None
    assert without_ours({"kept": 1, **OURS}) == {"kept": 1}
