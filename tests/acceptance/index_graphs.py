"""A project with a semantic store: its embedding, and a graph that searches."""

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

NAMES = ("seeker",)

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def embed(texts: list[str]) -> list[list[float]]:
    """How often each letter is in a text."""
    if any("unspeakable" in text for text in texts):
        raise ValueError("cannot embed this")
    return [[float(text.lower().count(letter)) for letter in LETTERS] for text in texts]


class Words(TypedDict):
    words: Annotated[list[str], operator.add]


async def seek(state: Words, runtime: Runtime) -> Words:
    assert runtime.store is not None
    found = await runtime.store.asearch(("notes",), query=state["words"][-1], limit=1)
    return {"words": [f"{item.key} {item.score:.2f}" for item in found]}


def seeker() -> Any:
    graph = StateGraph(Words)
    graph.add_node("seek", seek)
    graph.add_edge(START, "seek")
    return graph.compile()
