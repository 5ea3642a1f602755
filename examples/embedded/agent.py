"""A graph that asks before it pays. It knows nothing of the application or of Clew."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class Refund(TypedDict, total=False):
    amount: int
    outcome: str


def decide(state: Refund) -> Refund:
    answer = interrupt({"question": f"Pay {state['amount']} back?"})
    return {"outcome": "paid" if answer["approved"] else "not paid"}


graph = StateGraph(Refund)
graph.add_node("decide", decide)
graph.add_edge(START, "decide")
graph.add_edge("decide", END)
