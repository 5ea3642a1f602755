"""Expenses: small ones are paid at once, large ones wait for a person. A payment is never made twice.

clew run expenses --input '{"invoice": "A-1", "amount": 20}'
clew run expenses --input '{"invoice": "A-2", "amount": 900}'
"""

from pathlib import Path
from typing import Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from clew import tool

LEDGER = Path("payments.txt")  # stands for the bank


class Expense(TypedDict, total=False):
    invoice: str
    amount: float
    outcome: str


def transfer(invoice: str, amount: float) -> str:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{invoice} {amount:.2f}\n")
    return f"paid {amount:.2f}"


@tool(idempotent=False)
def pay_small(invoice: str, amount: float) -> str:
    """Pay an invoice."""
    return transfer(invoice, amount)


@tool(idempotent=False, approval=True)
def pay_large(invoice: str, amount: float) -> str:
    """Pay an invoice after a person has seen it and its amount."""
    return transfer(invoice, amount)


def route(state: Expense) -> Literal["small", "large"]:
    return "small" if state["amount"] <= 100 else "large"


async def small(state: Expense) -> Expense:
    return {"outcome": await call(pay_small, state)}


async def large(state: Expense) -> Expense:
    return {"outcome": await call(pay_large, state)}


async def call(payment: Any, state: Expense) -> str:
    """The whole call, with its id: the ledger of tools knows by it what was approved and what was done."""
    args = {"invoice": state["invoice"], "amount": state["amount"]}
    done = await payment.ainvoke(
        {"type": "tool_call", "id": f"pay-{state['invoice']}", "name": payment.name, "args": args}
    )
    return str(done.content)


graph = StateGraph(Expense)
graph.add_node("small", small)
graph.add_node("large", large)
graph.add_conditional_edges(START, route)
graph.add_edge("small", END)
graph.add_edge("large", END)
