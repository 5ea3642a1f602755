"""What a model is shown, and when the past is summed up."""

import itertools
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import AIMessage

from clew.domain.events import AssistantMessage, Body, Content, Event, ToolCall, ToolResult, UserMessage
from clew.graph.context_window import RESULT_EXPIRED, Compaction, render
from clew.graph.tools import own_ids


def log(*bodies: Body) -> list[Event]:
    return [
        Event(thread_id="t", seq=seq, id=f"e{seq}", round=1, at=datetime(2026, 1, 1, tzinfo=UTC), body=body)
        for seq, body in enumerate(bodies, 1)
    ]


def turns(first: Content) -> list[Event]:
    rest: list[Body] = [AssistantMessage(content="yes"), UserMessage(content="and?")] * 3
    return log(UserMessage(content=first), *rest)


def test_an_image_is_not_summed_up_for_the_letters_it_takes() -> None:
    compaction = Compaction(tokens=100, keep=2)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}
    also = {"type": "image", "base64": "A" * 10_000}
    assert compaction.span(turns([{"type": "text", "text": "look"}, image, also])) == ()
    for words in ({"type": "text", "text": "a " * 10_000}, {"type": "thinking", "thinking": "a " * 10_000}):
        assert len(compaction.span(turns([words, image]))) == 4
    assert len(compaction.span(turns("a " * 10_000))) == 4


def test_a_call_that_gets_another_id_has_it_among_the_parts_too() -> None:
    numbers = itertools.count(1)
    said = {"type": "text", "text": "again"}
    calls: list[dict[str, Any]] = [
        {"type": "tool_use", "id": call_id, "name": "look_up", "input": {}} for call_id in ("c1", "c2")
    ]
    message = AIMessage(
        [said, *calls],
        tool_calls=[{"id": "c1", "name": "look_up", "args": {}}, {"id": "c2", "name": "look_up", "args": {}}],
    )
    renamed = own_ids(message, used={"c1"}, new_id=lambda: str(next(numbers)))
    assert [call["id"] for call in renamed.tool_calls] == ["call_1", "c2"]
    assert renamed.content == [said, {**calls[0], "id": "call_1"}, calls[1]]
    assert own_ids(message, used={"c3"}, new_id=lambda: str(next(numbers))) is message


def test_results_that_no_model_has_read_are_shown_whatever_their_number_and_size() -> None:
    results: list[Body] = [ToolResult(call_id=f"c{n}", ok=True, result="x" * 9000) for n in range(30)]
    calls = [ToolCall(call_id=f"c{n}", name="search", args={}) for n in range(30)]
    asked = [UserMessage(content="look"), AssistantMessage(content="I look"), *calls, *results]
    shown = [turn.content for turn in render(log(*asked)).turns if turn.role == "tool"]
    assert shown == ["x" * 9000] * 30
    read = render(log(*asked, AssistantMessage(content="I see")))
    assert {turn.content for turn in read.turns if turn.role == "tool"} == {RESULT_EXPIRED}
    assert len(read.evictions) == 30
