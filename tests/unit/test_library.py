"""The library in a script: names that can be seen, a checkpointer without `async`, tools outside of Clew."""

import asyncio
from pathlib import Path
from typing import TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

import clew


class Count(TypedDict, total=False):
    number: int


def test_the_names_of_the_library_can_be_seen() -> None:
    assert {*clew.__all__} <= {*dir(clew)}


def test_a_script_uses_the_checkpointer_without_async(tmp_path: Path) -> None:
    builder = StateGraph(Count)
    builder.add_node("add", lambda state: {"number": state["number"] + 1})
    builder.add_edge(START, "add")
    builder.add_edge("add", END)
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    with clew.create_checkpointer(f"sqlite:///{tmp_path}/a.db") as saver:
        assert builder.compile(checkpointer=saver).invoke({"number": 1}, config) == {"number": 2}
    with clew.create_checkpointer(f"sqlite:///{tmp_path}/a.db") as saver:
        assert builder.compile(checkpointer=saver).get_state(config).values == {"number": 2}


def test_a_script_gets_its_own_error_back(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"), clew.create_checkpointer(f"sqlite:///{tmp_path}/a.db"):
        raise KeyError("mine")


def test_a_tool_that_needs_an_approval_refuses_where_no_person_is_asked() -> None:
    paid = []

    @clew.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    @clew.tool
    def look(amount: int) -> str:
        """Look."""
        return f"saw {amount}"

    call = {"type": "tool_call", "id": "c1", "name": "pay", "args": {"amount": 3}}
    with pytest.raises(RuntimeError, match="needs an approval, and outside of Clew"):
        pay.invoke({"amount": 3})
    with pytest.raises(RuntimeError, match="needs an approval"):
        pay.invoke(call)
    with pytest.raises(RuntimeError, match=r"pay\.func"):
        asyncio.run(pay.ainvoke(call))
    assert paid == []
    assert look.invoke({"amount": 3}) == "saw 3"
    assert pay.func is not None
    assert pay.func(3) == "paid"
