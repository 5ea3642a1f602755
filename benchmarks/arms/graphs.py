"""The graphs that every server of `benchmarks/peers.py` serves, and the bare references run themselves."""

from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

REPLY = "y" * 200


def append(old: list[str], new: list[str]) -> list[str]:
    return old + new


class Said(TypedDict):
    said: Annotated[list[str], append]


class Talk(TypedDict):
    messages: Annotated[list[Any], add_messages]


def say(state: Said) -> Said:  # noqa: ARG001 - every node takes the state
    return {"said": ["one"]}


def reply(state: Talk) -> dict[str, Any]:  # noqa: ARG001 - every node takes the state
    return {"messages": [{"role": "assistant", "content": REPLY}]}


def one_builder() -> StateGraph[Said, None, Said, Said]:
    """One node that writes a few bytes: what is left is what the server itself costs."""
    made = StateGraph(Said)
    made.add_node("say", say)
    made.add_edge(START, "say")
    return made


def chat_builder() -> StateGraph[Talk, None, Talk, Talk]:
    """A chat of two messages of 200 characters a turn."""
    made = StateGraph(Talk)
    made.add_node("reply", reply)
    made.add_edge(START, "reply")
    return made


one = one_builder().compile()
chat = chat_builder().compile()
