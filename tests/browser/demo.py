"""Demo graphs of the screenshots: a support desk that looks up orders and asks before it refunds, and a report."""

import asyncio
import re
from datetime import timedelta
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from clew import tool

GRAPHS = """graphs:
  support: tests.browser.demo:support
  report: tests.browser.demo:report
"""


class Case(MessagesState, total=False):
    order: dict[str, Any]
    policy: str
    decision: dict[str, Any]


@tool
async def look_up_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    await asyncio.sleep(0.35)
    return {"id": order_id, "item": "Reading lamp", "total": 89.0, "delivered": "2026-11-12"}


@tool
async def search_policies(question: str) -> str:
    """Search the shop's policies."""
    await asyncio.sleep(0.6)
    return "Damaged goods are refunded in full within 30 days of delivery."


@tool(approval=True, idempotent=False, patience=timedelta(hours=4))
async def refund(order_id: str, amount: float, reason: str) -> str:
    """Pay money back."""
    await asyncio.sleep(0.5)
    return f"Refunded {amount:.2f} EUR for {order_id}."


async def call(used: Any, **args: Any) -> Any:
    name = used.name
    done = await used.ainvoke({"type": "tool_call", "id": f"call-{name}", "name": name, "args": args})
    return done.content


def order_of(state: Case) -> str:
    found = re.search(r"[A-Z]-\d+", str(state["messages"][0].content))
    return found[0] if found else "A-1000"


async def triage(state: Case) -> dict[str, Any]:
    await asyncio.sleep(0.3)
    return {}


async def orders(state: Case) -> dict[str, Any]:
    await call(look_up_order, order_id=order_of(state))
    return {"order": {"id": order_of(state), "item": "Reading lamp", "total": 89.0}}


async def policies(state: Case) -> dict[str, Any]:
    return {"policy": await call(search_policies, question="refund of damaged goods")}


async def decide(state: Case) -> dict[str, Any]:
    await asyncio.sleep(0.45)
    is_refund = "refund" in str(state["messages"][0].content).lower()
    return {"decision": {"action": "refund" if is_refund else "reply", "amount": 89.0 if is_refund else 0.0}}


def after_decide(state: Case) -> Literal["refund", "reply"]:
    return "refund" if state["decision"]["action"] == "refund" else "reply"


async def pay_back(state: Case) -> dict[str, Any]:
    said = await call(refund, order_id=order_of(state), amount=89.0, reason="Arrived damaged, within 30 days")
    return {"messages": [AIMessage(str(said), name="cashier")]}


async def reply(state: Case) -> dict[str, Any]:
    await asyncio.sleep(0.3)
    answer = f"Dear customer, your order **{order_of(state)}** is taken care of."
    return {"messages": [AIMessage(answer, name="support")]}


def support() -> StateGraph[Case]:
    research: StateGraph[Case] = StateGraph(Case)
    research.add_node("orders", orders)
    research.add_node("policies", policies)
    research.add_edge(START, "orders")
    research.add_edge("orders", "policies")
    research.add_edge("policies", END)
    graph: StateGraph[Case] = StateGraph(Case)
    graph.add_node("triage", triage)
    graph.add_node("research", research.compile())
    graph.add_node("decide", decide)
    graph.add_node("refund", pay_back)
    graph.add_node("reply", reply)
    graph.add_edge(START, "triage")
    graph.add_edge("triage", "research")
    graph.add_edge("research", "decide")
    graph.add_conditional_edges("decide", after_decide)
    graph.add_edge("refund", "reply")
    graph.add_edge("reply", END)
    return graph


async def gather(state: MessagesState) -> dict[str, Any]:
    words = str(state["messages"][0].content)
    if "October" in words:
        raise ValueError("the ledger of October is not closed")
    await asyncio.sleep(120 if "November" in words else 0.4)
    return {"messages": [AIMessage("Orders rose by 4 %, returns fell by 1 %.", name="analyst")]}


def report() -> StateGraph[MessagesState]:
    graph = StateGraph(MessagesState)
    graph.add_node("gather", gather)
    graph.add_edge(START, "gather")
    graph.add_edge("gather", END)
    return graph
