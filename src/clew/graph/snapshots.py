"""States of a thread's graph as LangGraph's clients see them: now, before, and changed by hand."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Interrupt, PregelTask, StateSnapshot

from clew.domain.errors import ClewError, Corrupt, Invalid, NotFound
from clew.domain.thread import Json
from clew.graph.parts import asked, place_of, without_ours
from clew.graph.standing import Graph
from clew.graph.stream import as_json


async def snapshot(
    graph: Graph, thread_id: str, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
) -> Json:
    """The newest state, or the one at `place`. Raises NotFound when there is no such place."""
    return shown(thread_id, await _state(graph, thread_id, place, subgraphs=subgraphs))


async def history(
    graph: Graph,
    thread_id: str,
    *,
    limit: int,
    before: Mapping[str, str] | None = None,
    place: Mapping[str, str] | None = None,
    metadata: Mapping[str, Json] | None = None,
) -> list[Json]:
    """The states, newest first. Raises NotFound when there is no such place."""
    states = graph.aget_state_history(
        _config(thread_id, place),
        filter=dict(metadata) if metadata else None,
        before=_config(thread_id, before) if before else None,
        limit=limit,
    )
    with _of_a_graph_inside(thread_id, place):
        return [shown(thread_id, state) async for state in states]


async def change(
    graph: Graph,
    thread_id: str,
    values: Json,
    *,
    as_node: str | None = None,
    place: Mapping[str, str] | None = None,
    config: RunnableConfig,
) -> Json:
    """Write values as if a node had returned them; the place that leads to. Raises Invalid, NotFound."""
    if place is not None:
        await _state(graph, thread_id, place)
    merged: RunnableConfig = {
        **config,
        "configurable": {**_config(thread_id, place)["configurable"], **config.get("configurable", {})},
    }
    try:
        written = await graph.aupdate_state(merged, values, as_node=as_node)
    except ClewError:
        raise
    except Exception as exc:
        # Whatever the graph's own reducers make of values that they were not made for.
        raise Invalid(f"{type(exc).__name__}: {exc}", field="values") from exc
    return place_of(written)


async def _state(
    graph: Graph, thread_id: str, place: Mapping[str, str] | None, *, subgraphs: bool = False
) -> StateSnapshot:
    with _of_a_graph_inside(thread_id, place):
        state = await graph.aget_state(_config(thread_id, place), subgraphs=subgraphs)
    if place is not None and place.get("checkpoint_id") and state.created_at is None:
        raise NotFound(f"thread {thread_id!r} has no checkpoint {place['checkpoint_id']!r}")
    return state


@contextmanager
def _of_a_graph_inside(thread_id: str, place: Mapping[str, str] | None) -> Generator[None]:
    """A place in a graph that is not there is no place."""
    try:
        yield
    except ValueError as exc:
        if place is None or not place.get("checkpoint_ns"):
            raise
        raise NotFound(f"thread {thread_id!r} has no graph at {place['checkpoint_ns']!r}") from exc


def shown(thread_id: str, state: StateSnapshot) -> Json:
    try:
        return as_json(_shown(state))
    except ValueError as exc:
        raise Corrupt(f"the state of thread {thread_id!r} cannot be shown as JSON") from exc


def _shown(state: StateSnapshot) -> dict[str, Any]:
    place, parent = place_of(state.config), place_of(state.parent_config)
    return {
        "values": state.values,
        "next": list(state.next),
        "tasks": [_task(task) for task in state.tasks],
        "metadata": without_ours(state.metadata or {}),
        "created_at": state.created_at,
        "checkpoint": place,
        "parent_checkpoint": parent,
        "interrupts": [_interrupt(one) for one in state.interrupts],
        "checkpoint_id": place and place["checkpoint_id"],
        "parent_checkpoint_id": parent and parent["checkpoint_id"],
    }


def _task(task: PregelTask) -> dict[str, Any]:
    inner = task.state
    return {
        "id": task.id,
        "name": task.name,
        "path": list(task.path),
        "error": None if task.error is None else repr(task.error),
        "interrupts": [_interrupt(one) for one in task.interrupts],
        "checkpoint": None if inner is None or isinstance(inner, StateSnapshot) else _inner_place(inner),
        "state": _shown(inner) if isinstance(inner, StateSnapshot) else None,
        "result": task.result,
    }


def _inner_place(config: RunnableConfig) -> dict[str, Any]:
    return without_ours(config["configurable"])


def _interrupt(one: Interrupt) -> dict[str, Any]:
    shown = asked(one)
    return {"id": shown.id, "value": shown.value}


def _config(thread_id: str, place: Mapping[str, str] | None) -> RunnableConfig:
    named = {
        name: value
        for name, value in (place or {}).items()
        if name in ("checkpoint_ns", "checkpoint_id", "checkpoint_map") and value
    }
    return {"configurable": {"checkpoint_ns": "", **named, "thread_id": thread_id}}
