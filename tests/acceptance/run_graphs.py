"""Graphs for runs: they speak, ask, wait, fail, go in circles, send mails, and tell what reached them."""

import asyncio
import fcntl
import operator
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langgraph.config import get_config, get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from clew import tool

NAMES = (
    "echo",
    "nested",
    "nested_asker",
    "talk",
    "teller",
    "asker",
    "panel",
    "mailer",
    "waiter",
    "walk",
    "boom",
    "circles",
    "twice",
    "twice_slowly",
    "burst",
    "told_of_its_end",
    "talk_slowly",
    "flood",
    "steady",
)
FLOOD = 300


class Words(TypedDict, total=False):
    words: Annotated[list[str], operator.add]
    marks: str  # a file in which nodes leave a mark for every time they run
    until: str  # a file: a node that waits goes on once it is there


@dataclass
class Voice:
    loud: bool = False
    name: str = ""


def mark(state: Words, text: str) -> None:
    if path := state.get("marks"):
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


def first(state: Words) -> Words:
    get_stream_writer()({"heard": state["words"][-1]})
    return {"words": ["first"]}


def second(state: Words) -> Words:
    return {"words": ["second"]}


def echo() -> Any:
    """Two steps."""
    graph = StateGraph(Words, context_schema=Voice)
    graph.add_sequence([("first", first), ("second", second)])
    graph.add_edge(START, "first")
    return graph.compile()


def around(inner: Any) -> Any:
    graph = StateGraph(Words)
    graph.add_node("inner", inner)
    graph.add_edge(START, "inner")
    return graph.compile()


def nested() -> Any:
    return around(echo())


def nested_asker() -> Any:
    return around(twice())


async def speak(state: MessagesState) -> Any:
    model = FakeListChatModel(responses=["good day"])
    return {"messages": [await model.ainvoke(state["messages"])]}


def talk() -> Any:
    """A model that says a letter at a time."""
    graph = StateGraph(MessagesState)
    graph.add_node("speak", speak)
    graph.add_edge(START, "speak")
    return graph.compile()


def tell(state: Words, runtime: Runtime[Voice]) -> Words:
    config = get_config()
    told = {**config["configurable"], **config["metadata"]}
    kept = {name: value for name, value in told.items() if isinstance(value, str | int)}
    words = [f"{name}={value}" for name, value in kept.items() if not name.startswith("__pregel")]
    words += [f"tag={tag}" for tag in config.get("tags") or ()]
    if runtime.context is not None:
        words += [f"loud={runtime.context.loud}", f"name={runtime.context.name}"]
    return {"words": sorted({*words})}


def teller() -> Any:
    """Says which config and context it was given."""
    graph = StateGraph(Words, context_schema=Voice)
    graph.add_node("tell", tell)
    graph.add_edge(START, "tell")
    return graph.compile()


def ask(state: Words) -> Words:
    return {"words": [f"answered {interrupt({'question': 'sure?'})}"]}


def asker() -> Any:
    graph = StateGraph(Words)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph.compile()


def left(state: Words) -> Words:
    return {"words": [f"left {interrupt('left?')}"]}


def right(state: Words) -> Words:
    return {"words": [f"right {interrupt('right?')}"]}


def panel() -> Any:
    """Two who ask at the same time."""
    graph = StateGraph(Words)
    for name, node in (("left", left), ("right", right)):
        graph.add_node(name, node)
        graph.add_edge(START, name)
    return graph.compile()


def is_there(path: str | None) -> bool:
    return path is None or Path(path).exists()


@tool(approval=True, idempotent=False)
async def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def want(state: MessagesState) -> Any:
    calls = [{"name": "send_mail", "args": {"to": to}, "id": f"call-{to}"} for to in ("ann", "bob")]
    return {"messages": [AIMessage(content="", tool_calls=calls)]}


def mailer() -> Any:
    """Two mails at once, for each of which somebody must say yes."""
    graph = StateGraph(MessagesState)
    graph.add_node("want", want)
    graph.add_node("tools", ToolNode([send_mail]))
    graph.add_edge(START, "want")
    graph.add_edge("want", "tools")
    return graph.compile()


async def wait(state: Words) -> Words:
    word = state["words"][-1]
    mark(state, f"began {word}")
    get_stream_writer()({"waits": word})
    while not is_there(state.get("until")):
        await asyncio.sleep(0.02)
    mark(state, f"ended {word}")
    return {"words": [f"{word} done"]}


async def wait_and_say_when_cancelled(state: Words) -> Words:
    try:
        return await wait(state)
    except asyncio.CancelledError:
        mark(state, f"cancelled {state['words'][-1]}")
        raise


def told_of_its_end() -> Any:
    graph = StateGraph(Words)
    graph.add_node("wait", wait_and_say_when_cancelled)
    graph.add_edge(START, "wait")
    return graph.compile()


async def speak_slowly(state: MessagesState) -> Any:
    model = FakeListChatModel(responses=["good day to you"], sleep=0.05)
    return {"messages": [await model.ainvoke(state["messages"])]}


def talk_slowly() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("speak", speak_slowly)
    graph.add_edge(START, "speak")
    return graph.compile()


async def pour(state: Words) -> Words:
    for number in range(FLOOD):
        get_stream_writer()({"number": number, "text": "x" * 20_000})
        await asyncio.sleep(0)
    return {"words": ["poured"]}


def flood() -> Any:
    """Streams several megabytes."""
    graph = StateGraph(Words)
    graph.add_node("pour", pour)
    graph.add_edge(START, "pour")
    return graph.compile()


class Stride(TypedDict, total=False):
    left: int
    seconds: float  # of a step
    marks: str  # a file in which each step says which process took it and when


async def stride(state: Stride) -> Stride:
    # The kernel unlocks it at the death of its process.
    with open(state["marks"], "a") as file:  # noqa: ASYNC230 - a line
        is_alone = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_alone = False
        file.write(f"{os.getpid()} {time.time()} {is_alone}\n")
        file.flush()
        await asyncio.sleep(state["seconds"])
    return {"left": state["left"] - 1}


def steady() -> Any:
    """So many steps of so many seconds."""
    graph = StateGraph(Stride)
    graph.add_node("stride", stride)
    graph.add_edge(START, "stride")
    graph.add_conditional_edges("stride", lambda state: "stride" if state["left"] > 0 else END)
    return graph.compile()


def waiter() -> Any:
    graph = StateGraph(Words)
    graph.add_node("wait", wait)
    graph.add_edge(START, "wait")
    return graph.compile()


def walk() -> Any:
    """A step, one that waits, and a step."""
    graph = StateGraph(Words)
    graph.add_sequence([("first", first), ("wait", wait), ("second", second)])
    graph.add_edge(START, "first")
    return graph.compile()


def fail(state: Words) -> Words:
    raise ValueError("it does not work")


def boom() -> Any:
    graph = StateGraph(Words)
    graph.add_node("fail", fail)
    graph.add_edge(START, "fail")
    return graph.compile()


def fail_at_length(state: Words) -> Words:
    raise ValueError("it does not work:\n  'here'\n  and there")


def burst() -> Any:
    """Fails, and has much to say about it."""
    graph = StateGraph(Words)
    graph.add_node("fail", fail_at_length)
    graph.add_edge(START, "fail")
    return graph.compile()


def circles() -> Any:
    """Never ends by itself."""
    graph = StateGraph(Words)
    graph.add_node("second", second)
    graph.add_edge(START, "second")
    graph.add_edge("second", "second")
    return graph.compile()


def ask_again(state: Words) -> Words:
    return {"words": [f"and {interrupt('really?')}"]}


def twice() -> Any:
    """Asks, and asks again."""
    graph = StateGraph(Words)
    graph.add_sequence([("ask", ask), ("ask_again", ask_again)])
    graph.add_edge(START, "ask")
    graph.add_edge("ask_again", END)
    return graph.compile()


async def wait_for_door(state: Words) -> Words:
    return await wait({**state, "words": state["words"][:1]})


def twice_slowly() -> Any:
    """Asks, waits, and asks again."""
    graph = StateGraph(Words)
    graph.add_sequence([("ask", ask), ("wait", wait_for_door), ("ask_again", ask_again)])
    graph.add_edge(START, "ask")
    return graph.compile()
