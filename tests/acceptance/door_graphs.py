"""Graphs that OpenAI's, MCP's and AG-UI's clients run: they speak, ask, call tools, fail, and tell what reached them."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from clew import tool

NAMES = ("talk", "recall", "asker", "panel", "mailer", "counter", "boom", "settings", "slow")


async def speak(state: MessagesState) -> Any:
    """Say the last message, a letter at a time."""
    model = FakeListChatModel(responses=[f"you said {state['messages'][-1].text}"])
    return {"messages": [await model.ainvoke(state["messages"])]}


def one(name: str, node: Any, schema: Any = MessagesState, context: Any = None) -> Any:
    graph = StateGraph(schema, context_schema=context)
    graph.add_node(name, node)
    graph.add_edge(START, name)
    return graph.compile()


def talk() -> Any:
    return one("speak", speak)


def remember(state: MessagesState) -> Any:
    told = "; ".join(f"{message.type}: {message.content}" for message in state["messages"])
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    return {"messages": [AIMessage(content=told, usage_metadata=usage)]}


def recall() -> Any:
    """Says all messages it has."""
    return one("remember", remember)


def ask(state: MessagesState) -> Any:
    return {"messages": [AIMessage(content=f"you are {interrupt({'question': 'Who are you?'})}")]}


def asker() -> Any:
    return one("ask", ask)


def left(state: MessagesState) -> Any:
    return {"messages": [AIMessage(content=f"left {interrupt('left?')}", id="left")]}


def right(state: MessagesState) -> Any:
    return {"messages": [AIMessage(content=f"right {interrupt('right?')}", id="right")]}


def panel() -> Any:
    """Two questions at once."""
    graph = StateGraph(MessagesState)
    for name, node in (("left", left), ("right", right)):
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph.compile()


@tool(approval=True, idempotent=False)
async def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def want(state: MessagesState) -> Any:
    if state["messages"][-1].type == "tool":
        return {"messages": [AIMessage(content=f"done: {state['messages'][-1].content}")]}
    calls = [{"name": "send_mail", "args": {"to": "ann"}, "id": f"call-{len(state['messages'])}"}]
    return {"messages": [AIMessage(content="", tool_calls=calls)]}


def mailer() -> Any:
    """A mail that needs an approval."""
    graph = StateGraph(MessagesState)
    graph.add_node("want", want)
    graph.add_node("tools", ToolNode([send_mail]))
    graph.add_edge(START, "want")
    graph.add_conditional_edges(
        "want", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__"
    )
    graph.add_edge("tools", "want")
    return graph.compile()


class Count(TypedDict, total=False):
    number: int


def counter() -> Any:
    """A graph without messages."""
    return one("count", lambda state: {"number": state["number"] + 1}, Count)


def fail(state: MessagesState) -> Any:
    raise ValueError("it does not work")


def boom() -> Any:
    return one("fail", fail)


@dataclass
class Dials:
    temperature: float = 0.5


def dial(state: MessagesState, runtime: Runtime[Dials]) -> Any:
    return {"messages": [AIMessage(content=f"temperature {runtime.context.temperature}")]}


def settings() -> Any:
    return one("dial", dial, context=Dials)


async def wait(state: MessagesState) -> Any:
    await asyncio.sleep(60)


def slow() -> Any:
    return one("wait", wait)
