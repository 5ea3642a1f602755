"""A graph of three slow steps, so that a worker can be killed in the middle of a run."""

import asyncio
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class Report(TypedDict, total=False):
    topic: str
    seconds: float
    sections: list[str]


class Step:
    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, state: Report) -> Report:
        await asyncio.sleep(state.get("seconds", 1.0))
        return {"sections": [*state.get("sections", []), f"{self.name} of {state['topic']}"]}


graph = StateGraph(Report)
names = ["summary", "figures", "outlook"]
for name in names:
    graph.add_node(name, Step(name))
for before, after in zip([START, *names], [*names, END], strict=True):
    graph.add_edge(before, after)
