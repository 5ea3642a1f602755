"""Graphs that OpenAI's, MCP's and AG-UI's clients run: they speak, ask, call tools, fail, and tell what reached them."""

import asyncio
import operator
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from clew import tool

NAMES = (
    "talk",
    "recall",
    "asker",
    "panel",
    "mailer",
    "counter",
    "boom",
    "settings",
    "slow",
    "painter",
    "locator",
    "thinker",
    "held",
)


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


class Canvas(MessagesState, total=False):
    tools: list[Any]
    color: str
    strokes: Annotated[list[str], operator.add]


def plan(state: Canvas, config: RunnableConfig) -> Any:
    """Call the first tool of the client, or say what it answered."""
    writer = get_stream_writer()
    writer({"name": "progress", "value": 50})
    writer("half")
    last = state["messages"][-1]
    if last.type == "tool":
        return {"messages": [AIMessage(content=f"painted {last.content} ({last.status})")]}
    if not state.get("tools"):
        told = config["configurable"].get("forwarded_props")
        return {"messages": [AIMessage(content=f"no tools; {told}")], "strokes": [last.text]}
    call = {
        "name": state["tools"][0]["function"]["name"],
        "args": {"color": state["color"]},
        "id": f"{last.id}-call",
    }
    return {"messages": [AIMessage(content="", tool_calls=[call])], "color": "red", "strokes": ["line"]}


def painter() -> Any:
    """Works with tools and state of its client."""
    return one("plan", plan, Canvas)


@tool(executor="client")
async def locate(city: str) -> str:
    """Find where the user is."""
    raise AssertionError("the client does that")


def seek(state: MessagesState) -> Any:
    if state["messages"][-1].type == "tool":
        return {"messages": [AIMessage(content=f"you are at {state['messages'][-1].content}")]}
    calls = [{"name": "locate", "args": {"city": "Rome"}, "id": f"{state['messages'][-1].id}-call"}]
    return {"messages": [AIMessage(content="", tool_calls=calls)]}


def locator() -> Any:
    """A tool of Clew that its client carries out."""
    graph = StateGraph(MessagesState)
    graph.add_node("seek", seek)
    graph.add_node("tools", ToolNode([locate]))
    graph.add_edge(START, "seek")
    graph.add_conditional_edges(
        "seek", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__"
    )
    graph.add_edge("tools", "seek")
    return graph.compile()


class Scripted(BaseChatModel):
    """Streams the chunks it is given; with `until`, the last one once that file exists."""

    script: list[Any]
    until: str = ""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def waits(self) -> bool:
        return bool(self.until) and not Path(self.until).exists()

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for index, chunk in enumerate(self.script):
            while index == len(self.script) - 1 and self.waits():
                await asyncio.sleep(0.02)
            yield ChatGenerationChunk(message=chunk.model_copy())


async def think(state: MessagesState) -> Any:
    usage: Any = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    call: Any = {"name": "paint", "args": "", "id": "call-7", "index": 1, "type": "tool_call_chunk"}
    more: Any = {**call, "name": None, "id": None}
    first: Any = {**more, "args": '{"a":'}
    second: Any = {**more, "args": "1}"}
    script = [
        AIMessageChunk(content=[{"type": "reasoning", "reasoning": "let me "}]),
        AIMessageChunk(content=[{"type": "reasoning", "reasoning": "think"}]),
        AIMessageChunk(content="so: "),
        AIMessageChunk(content="this"),
        AIMessageChunk(content="", tool_call_chunks=[call]),
        AIMessageChunk(content="", tool_call_chunks=[first]),
        AIMessageChunk(content="", tool_call_chunks=[second]),
        AIMessageChunk(content="", usage_metadata=usage),
    ]
    return {"messages": [await Scripted(script=script).ainvoke(state["messages"])]}


def thinker() -> Any:
    """Thinks, speaks and calls a tool, in a subgraph."""
    return one("inner", one("think", think))


async def hold(state: MessagesState) -> Any:
    """Says a part, and the rest once the file exists that the first message names."""
    script = [AIMessageChunk(content=text) for text in ("a ", "slow ", "answer")]
    model = Scripted(script=script, until=state["messages"][0].text)
    return {"messages": [await model.ainvoke(state["messages"])]}


def held() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("greet", lambda state: {"messages": [AIMessage(content="hello", id="greeting")]})
    graph.add_node("hold", hold)
    graph.add_edge(START, "greet")
    graph.add_edge("greet", "hold")
    return graph.compile()
