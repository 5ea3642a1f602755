"""Graph factories of every kind. Each writes down why it was called and what it was given."""

import json
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import StateGraph
from langgraph_sdk.runtime import ServerRuntime


class State(TypedDict, total=False):
    said: str
    made_for: str


@dataclass
class Context:
    tone: str = "plain"


def note(**what: Any) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:  # noqa: TID251 - as code of a user
        notes.write(json.dumps(what) + "\n")


def built(made_for: str) -> StateGraph[State, Context, State, State]:
    graph = StateGraph(State, context_schema=Context)
    graph.add_node("say", lambda _: {"said": "done", "made_for": made_for})
    graph.set_entry_point("say")
    graph.set_finish_point("say")
    return graph


def nothing() -> Any:
    note(factory="nothing")
    return built("everyone")


def config(config: RunnableConfig) -> Any:
    given = config["configurable"]
    note(factory="config", thread=given.get("thread_id"), run=given.get("run_id"))
    return built(given.get("tone", ""))


@asynccontextmanager
async def runtime(runtime: ServerRuntime[Context]) -> AsyncGenerator[Any]:
    running = runtime.execution_runtime
    given: Any = running.context if running else None
    note(factory="runtime", access=runtime.access_context, context=given)
    await runtime.store.aput(("made",), "last", {"by": "runtime"})
    yield built(given["tone"] if given else "").compile()
    note(factory="runtime", left=runtime.access_context)


async def both(runtime: "ServerRuntime[None]", config: RunnableConfig) -> Any:
    note(factory="both", access=runtime.access_context, user=repr(runtime.user))
    return built(config["configurable"].get("tone", ""))


@contextmanager
def manager(config: RunnableConfig) -> Generator[Any]:
    try:
        yield built(config["configurable"].get("tone", ""))
    finally:
        note(factory="manager", left=True)


async def generator(config: RunnableConfig) -> AsyncGenerator[Any]:
    try:
        yield built(config["configurable"].get("tone", ""))
    finally:
        note(factory="generator", left=True)


def raising(config: RunnableConfig) -> Any:
    if "tone" not in config["configurable"] or config["configurable"]["tone"] == "sour":
        raise LookupError("no tools today")
    return built("sweet")


def greedy(config: RunnableConfig, database: str, cache: str) -> Any:
    raise AssertionError((config, database, cache))
