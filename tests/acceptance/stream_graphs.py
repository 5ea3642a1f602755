"""Graphs that stream everything there is to stream: tokens, tool calls, custom parts, subgraphs, questions, a failure."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from tests.chains import chain

NAMES = ("talker", "family", "polite", "broken", "handy")


class Talk(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    words: Annotated[list[str], operator.add]


async def speak(state: Talk) -> Talk:
    """One model call, token by token, under an id that is the same in every run."""
    get_stream_writer()({"about": "to speak"})
    model = GenericFakeChatModel(messages=iter([AIMessage("hello dear world", id="said-1")]))
    return {"messages": [await model.ainvoke([HumanMessage("go")])]}


def think(state: Talk) -> Talk:
    return {"words": [f"{len(state.get('words', ()))} words"]}


def talker() -> Any:
    return chain(Talk, think, speak).compile(name="talker")


def family() -> Any:
    """A talker inside of a graph."""
    return chain(Talk, think, ("child", talker())).compile(name="family")


def ask(state: Talk) -> Talk:
    return {"words": [f"answered {interrupt({'question': 'really?'})}"]}


def polite() -> Any:
    """A graph that asks, inside of another."""
    return chain(Talk, think, ("child", chain(Talk, ask).compile())).compile(name="polite")


def fail(state: Talk) -> Talk:
    raise ValueError("out of luck")


def broken() -> Any:
    return chain(Talk, think, fail).compile(name="broken")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call_tool(state: Talk) -> Talk:
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "call-1"}
    return {"messages": [AIMessage("", id="asks-1", tool_calls=[call])]}


def handy() -> Any:
    return chain(Talk, ("call", call_tool), ("tools", ToolNode([add])), speak).compile(name="handy")
