"""What a model thinks aloud is not what it says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from clew.history.agent_node import AgentNode
from clew.texts.reasoning import ReasoningFilter, without_reasoning, without_thoughts
from tests.fakes import scripted

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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("  Four. ", "  Four. "),
        ("<think>2 and 2</think>Four.", "Four."),
        (
            [{"type": "text", "text": "<think>x</think>A"}, "B", {"type": "image"}],
            [{"type": "text", "text": "A"}, "B", {"type": "image"}],
        ),
    ],
)
def test_the_content_of_a_message_has_no_thoughts(content: object, said: object) -> None:
    assert without_thoughts(content) == said


@pytest.mark.anyio
async def test_an_agent_node_neither_answers_nor_remembers_thoughts() -> None:
    model = scripted("<think>The user is slow.</think>Four.", "Five.")
    node = AgentNode(model, use_graph_chat_history=True)
    store = InMemoryStore()
    graph = StateGraph(Remembering).add_node("agent", node).add_edge(START, "agent").compile(store=store)
    asked: Any = {"messages": [HumanMessage("2 and 2?")], "inputs": {"history_key": "telegram:1"}}
    answer = await graph.ainvoke(asked)
    assert [message.text for message in answer["messages"]] == ["2 and 2?", "Four."]
    await graph.ainvoke(asked | {"messages": [HumanMessage("and 1?")]})
    assert model.texts() == ["2 and 2?", "Four.", "and 1?"]


class Remembering(MessagesState, total=False):
    inputs: dict[str, Any]
