"""Answers from notes: finds the nearest ones in the semantic store and says where it read them.

Without a model it quotes. With MODEL=openai:gpt-5-mini in .env the model answers from what was found.
"""

import os
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore

NOTES = ("notes",)
LEAST_SCORE = 0.2


class Found(TypedDict):
    source: str
    text: str


class Question(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    found: list[Found]


async def find(state: Question, *, store: BaseStore) -> Question:
    items = await store.asearch(NOTES, query=state["messages"][-1].text, limit=3)
    near = [item for item in items if (item.score or 0) >= LEAST_SCORE]
    return {"found": [Found(source=item.key, text=item.value["text"]) for item in near]}


async def answer(state: Question) -> Question:
    found = state["found"]
    if not found:
        return {"messages": [AIMessage("The notes say nothing about that.")]}
    name = os.environ.get("MODEL")
    if name is None:
        return {"messages": [AIMessage(f"{found[0]['text']} [{found[0]['source']}]")]}
    from langchain.chat_models import init_chat_model

    notes = "\n".join(f"[{one['source']}] {one['text']}" for one in found)
    system = f"Answer from these notes only, and name the source in brackets.\n{notes}"
    said = await init_chat_model(name).ainvoke([("system", system), *state["messages"]])
    return {"messages": [said]}


graph = StateGraph(Question)
graph.add_node("find", find)
graph.add_node("answer", answer)
graph.add_edge(START, "find")
graph.add_edge("find", "answer")
graph.add_edge("answer", END)
