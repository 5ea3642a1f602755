"""A bot that takes orders for a bakery: it collects, asks for the address, and remembers the chat.

It answers by rules, so it runs without a model and costs nothing. `order` is the place for one.
"""

import re
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

MENU = {"bread": 4.0, "roll": 0.8, "cake": 18.0}
ITEM = re.compile(r"(\d+)?\s*(bread|roll|cake)s?\b", re.IGNORECASE)


class Chat(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    basket: dict[str, int]
    results: dict[str, Any]  # what Telegram says of the sender


def order(state: Chat) -> Chat:
    said = state["messages"][-1].text
    basket = dict(state.get("basket", {}))
    for number, name in ITEM.findall(said):
        basket[name.lower()] = basket.get(name.lower(), 0) + int(number or 1)
    if not basket:
        prices = ", ".join(f"{name} {price:.2f}" for name, price in MENU.items())
        return {"messages": [AIMessage(f"Hello! We have {prices}. What would you like?")]}
    if "done" not in said.lower():
        return {
            "basket": basket,
            "messages": [AIMessage(f"{listed(basket)}. Anything else? Say done when not.")],
        }
    return {"basket": basket}


def is_done(state: Chat) -> str:
    return "deliver" if state["messages"][-1].type == "human" else END


def deliver(state: Chat) -> Chat:
    # The next message of the chat is the answer, after minutes or days, through restarts.
    address = interrupt({"kind": "elicitation", "question": "Where may we bring it?"})
    total = sum(MENU[name] * number for name, number in state["basket"].items())
    text = f"{listed(state['basket'])} to {address}: {total:.2f}. Thank you!"
    return {"basket": {}, "messages": [AIMessage(text)]}


def listed(basket: dict[str, int]) -> str:
    return ", ".join(f"{number} x {name}" for name, number in basket.items())


graph = StateGraph(Chat)
graph.add_node("order", order)
graph.add_node("deliver", deliver)
graph.add_edge(START, "order")
graph.add_conditional_edges("order", is_done)
graph.add_edge("deliver", END)
