"""Graphs of a LangGraph project that knows nothing of Clew."""

import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

NAMES = ("echo", "nested", "keeper")


class Words(TypedDict):
    words: Annotated[list[str], operator.add]


@dataclass
class Voice:
    loud: bool = False


def say(state: Words) -> Words:
    return {"words": [f"you said {state['words'][-1]}"]}


def echo() -> Any:
    graph = StateGraph(Words, context_schema=Voice)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    return graph.compile()


def nested() -> Any:
    """A graph in a graph in a graph."""
    graph = StateGraph(Words)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    for name in ("inner", "middle"):
        outer = StateGraph(Words)
        outer.add_node(name, graph.compile())
        outer.add_edge(START, name)
        graph = outer
    return graph.compile(name="Matryoshka")


async def keep(state: Words, *, store: BaseStore) -> Words:
    """Remember the last word, and tell what is remembered."""
    await store.aput(("words",), "last", {"word": state["words"][-1]})
    found = await store.asearch(("words",))
    return {"words": [str(item.value["word"]) for item in found]}


def keeper() -> Any:
    graph = StateGraph(Words)
    graph.add_node("keep", keep)
    graph.add_edge(START, "keep")
    return graph.compile()
