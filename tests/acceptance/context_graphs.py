"""Graphs that say which context, config and tags reached them, as the official templates are made: a context with
defaults, which a node reads without asking whether it is there."""

import asyncio
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from langgraph.config import get_config
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph_sdk import get_client
from langgraph_sdk.errors import NotFoundError
from pydantic import BaseModel, Field

NAMES = (
    *("template", "around_template", "modelled", "typed", "plain", "strict", "bound", "circling"),
    *("delegating", "delegating_blocking", "looking"),
)


class Said(TypedDict, total=False):
    said: Annotated[list[Any], operator.add]


@dataclass(kw_only=True)
class Context:
    system_prompt: str = "You are helpful."
    model: str = "default-model"
    max_results: int = 10
    tags: list[str] = field(default_factory=list)


class Modelled(BaseModel):
    model: str = "default-model"
    limit: int = Field(default=3, alias="maxResults")


class Typed(TypedDict, total=False):
    model: str


@dataclass
class Strict:
    model: str


def call_model(state: Said, runtime: Runtime[Context]) -> Any:
    return {"said": [runtime.context.model, runtime.context.max_results, _configurable()]}


def tell(state: Said, runtime: Runtime[Any]) -> Any:
    return {"said": [repr(runtime.context), _configurable()]}


def tell_config(state: Said) -> Any:
    config = get_config()
    names = ("color", "size")
    return {
        "said": [
            sorted(config.get("tags") or ()),
            {name: config["metadata"][name] for name in names if name in config["metadata"]},
            {name: config["configurable"][name] for name in names if name in config["configurable"]},
            config.get("recursion_limit"),
        ]
    }


def _configurable() -> dict[str, Any]:
    given = get_config()["configurable"]
    return {name: given[name] for name in ("model", "other", "langgraph_auth_user_id") if name in given}


def graph_of(node: Any, context: Any = None, **options: Any) -> Any:
    graph = StateGraph(Said, context_schema=context)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph.compile(**options)


template = graph_of(call_model, Context)
around_template = graph_of(template, Context)
modelled = graph_of(tell, Modelled)
typed = graph_of(tell, Typed)
plain = graph_of(tell)
strict = graph_of(tell, Strict)
bound = graph_of(tell_config).with_config(
    {
        "tags": ["bound"],
        "metadata": {"color": "red"},
        "configurable": {"color": "red", "thread_id": "not-this-one"},
        "recursion_limit": 1234,
    }
)


def circles() -> Any:
    graph = StateGraph(Said)
    graph.add_node("again", lambda _: {"said": ["again"]})
    graph.add_edge(START, "again")
    graph.add_edge("again", "again")
    return graph.compile().with_config({"recursion_limit": 7})


circling = circles()


# Made before there is a server.
early = get_client()


async def delegate(state: Said) -> Any:
    """Have another graph do it, and look at its thread: with a client made here, and with one made before."""
    client = get_client()
    thread = await client.threads.create(metadata={"made": "inside"})
    values: Any = await client.runs.wait(thread["thread_id"], "plain", input={"said": []})
    parts = [part.event async for part in client.runs.stream(None, "plain", input={"said": []})]
    found = await early.threads.get(thread["thread_id"])
    return {"said": [thread["thread_id"], values["said"], parts[-1], found["values"], get_config()["tags"]]}


def delegate_blocking(state: Said) -> Any:
    async def create() -> str:
        async with get_client() as client:
            return str((await client.threads.create(metadata={"made": "in a thread"}))["thread_id"])

    return {"said": [asyncio.run(create())]}


async def look_around(state: Said) -> Any:
    """What can be seen of a thread that may be somebody else's."""
    try:
        await get_client().threads.get(state["said"][0])
    except NotFoundError:
        return {"said": ["nothing"]}
    return {"said": ["something"]}


delegating = graph_of(delegate)
delegating_blocking = graph_of(delegate_blocking)
looking = graph_of(look_around)
