"""Graphs that stop: with a question, with several, inside of another graph, before a node."""

from pathlib import Path
from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from tests.acceptance.run_graphs import (
    Words,
    around,
    ask,
    asker,
    first,
    mailer,
    panel,
    second,
    twice,
    wait,
    walk,
)

NAMES = (
    "asker",
    "twice",
    "panel",
    "mailer",
    "nested_asker",
    "both",
    "then_waits",
    "gated",
    "fails_once",
    "walk",
)

nested_asker = around(asker())


def ask_both(state: Words) -> Words:
    return {"words": [f"{interrupt('one?')} and {interrupt('two?')}"]}


def sequence(*nodes: tuple[str, Any], **options: Any) -> Any:
    graph = StateGraph(Words)
    graph.add_sequence(list(nodes))
    graph.add_edge(START, nodes[0][0])
    return graph.compile(**options)


def fail_once(state: Words) -> Words:
    mark = Path(f"{state['marks']}.failed")
    if not mark.exists():
        mark.touch()
        raise ValueError("the first time")
    return {"words": ["failed"]}


# Two questions of one node.
both = sequence(("ask", ask_both))
# Asks, then waits for a file, then takes one more step.
then_waits = sequence(("ask", ask), ("wait", wait), ("second", second))
fails_once = sequence(("fail", fail_once), ("wait", wait))
# Stops before the node that a person is to answer for.
gated = sequence(("first", first), ("human", second), ("wait", wait), interrupt_before=["human"])

__all__ = ["asker", "mailer", "panel", "twice", "walk"]
