"""A bot of the tests that remembers a chat by its conversation key, and one that says much."""

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from clew.graph.agent_node import AgentNode
from tests.graphs import Obedient


class Chat(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    results: dict[str, Any]


def remembering() -> Any:
    """An AgentNode on the parsed message, as the templates of its history keys want it."""
    graph = StateGraph(Chat)
    graph.add_node("agent", AgentNode(Obedient(), use_graph_chat_history=True))
    graph.add_edge(START, "agent")
    graph.add_edge("agent", END)
    return graph


def verbose() -> Any:
    """Says a word as often as it is told: `word 3000`."""

    def say(state: Chat) -> Chat:
        word, _, times = state["messages"][-1].text.partition(" ")
        return {"messages": [AIMessage(" ".join([word] * int(times)))]}

    graph = StateGraph(Chat)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    return graph


def curious() -> Any:
    """Asks in its own words, and repeats what it was answered."""

    def ask(state: Chat) -> Chat:
        return {"messages": [AIMessage(f"so it is {interrupt('which colour?')}")]}

    graph = StateGraph(Chat)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph
