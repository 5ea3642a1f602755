"""Sample graphs in one line: nodes one after another."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from langgraph.graph import END, START, StateGraph


def chain(state: type[Any], *nodes: Callable[..., Any] | tuple[str, Any]) -> StateGraph[Any]:
    """A graph that runs these nodes in order. A node is called like its function, or as the pair says."""
    named = [node if isinstance(node, tuple) else (node.__name__, node) for node in nodes]
    graph = StateGraph(state)
    for name, node in named:
        graph.add_node(name, node)
    names = [START, *(name for name, _ in named), END]
    for before, after in pairwise(names):
        graph.add_edge(before, after)
    return graph
