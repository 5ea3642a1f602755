"""States of a thread's graph as LangGraph's clients see them: now, before, and changed by hand."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.types import Interrupt, PregelTask, StateSnapshot, StateUpdate
from pydantic import ValidationError

from clew.checkpointer.saver import Checkpointer
from clew.domain.errors import ClewError, Corrupt, Invalid, NotFound, Permanent, SchemaMismatch
from clew.domain.thread import Json
from clew.domain.views import EMPTY_STATE, SuperstepUpdate
from clew.graph.position import Graph
from clew.graph.run_config import to_command
from clew.graph.stream import as_json
from clew.graph.stream_encoder import asked, place_of, without_ours

# So many fields that do not fit are named.
MISMATCHES = 10


async def snapshot(
    graph: Graph, thread_id: str, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
) -> Json:
    """The newest state, or the one at `place`. Raises NotFound when there is no such place."""
    return shown(thread_id, await _state(graph, thread_id, place, subgraphs=subgraphs))


async def current(graph: Graph, thread_id: str) -> StateSnapshot:
    """The newest state as LangGraph hands it out. Raises SchemaMismatch."""
    return await _state(graph, thread_id, None)


async def output(graph: Graph, thread_id: str) -> tuple[Json, Json]:
    """The newest values of its output channels, and the open interrupts."""
    state = await _state(graph, thread_id, None)
    values, names = state.values, graph.output_channels
    if isinstance(values, dict) and not isinstance(names, str):
        values = {name: value for name, value in values.items() if name in names}
    values, interrupts = _as_json(thread_id, [values, [_interrupt(one) for one in state.interrupts]])
    return values, interrupts


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
    wanted = _Wanted(
        config=_config(thread_id, place),
        filter=dict(metadata) if metadata else None,
        before=_config(thread_id, before) if before else None,
        limit=limit,
    )
    try:
        with _fits(thread_id, place):
            return [shown(thread_id, state) async for state in graph.aget_state_history(**wanted)]
    except (Corrupt, SchemaMismatch):
        if not isinstance(graph.checkpointer, Checkpointer):
            raise
        places = await graph.checkpointer.places(**wanted)
    return [await _shown_or_why_not(graph, thread_id, one) for one in places]


class _Wanted(TypedDict):
    config: RunnableConfig
    filter: dict[str, Any] | None
    before: RunnableConfig | None
    limit: int


async def _shown_or_why_not(graph: Graph, thread_id: str, config: RunnableConfig) -> Json:
    """One state of many: where it cannot be read, its place and the reason."""
    place = place_of(config)
    try:
        return await snapshot(graph, thread_id, place)
    except (Corrupt, SchemaMismatch, Permanent) as exc:
        return {
            **EMPTY_STATE,
            "checkpoint": place,
            "checkpoint_id": place and place["checkpoint_id"],
            "error": str(exc),
        }


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
    try:
        written = await graph.aupdate_state(_with_place(config, thread_id, place), values, as_node=as_node)
    except ClewError:
        raise
    except Exception as exc:
        # Whatever the graph's own reducers make of values that they were not made for.
        raise Invalid(f"{type(exc).__name__}: {exc}", field="values") from exc
    return place_of(written)


async def write_supersteps(
    graph: Graph,
    thread_id: str,
    supersteps: Sequence[Sequence[SuperstepUpdate]],
    *,
    config: RunnableConfig,
) -> None:
    """Write each superstep as if its nodes had returned these updates. Raises Invalid."""
    steps = [[_update(one) for one in step] for step in supersteps]
    try:
        await graph.abulk_update_state(_with_place(config, thread_id, None), steps)
    except ClewError:
        raise
    except Exception as exc:
        raise Invalid(f"{type(exc).__name__}: {exc}", field="supersteps") from exc


def _update(given: SuperstepUpdate) -> StateUpdate:
    values: Any = given.values if given.command is None else to_command(given.command)
    return StateUpdate(values, given.as_node)


def _with_place(config: RunnableConfig, thread_id: str, place: Mapping[str, str] | None) -> RunnableConfig:
    at = _config(thread_id, place)["configurable"]
    return {**config, "configurable": {**at, **config.get("configurable", {})}}


async def _state(
    graph: Graph, thread_id: str, place: Mapping[str, str] | None, *, subgraphs: bool = False
) -> StateSnapshot:
    with _fits(thread_id, place):
        state = await graph.aget_state(_config(thread_id, place), subgraphs=subgraphs)
    if place is not None and place.get("checkpoint_id") and state.created_at is None:
        raise NotFound(f"thread {thread_id!r} has no checkpoint {place['checkpoint_id']!r}")
    return state


@contextmanager
def _fits(thread_id: str, place: Mapping[str, str] | None = None) -> Generator[None]:
    """Raises NotFound for a place in a graph that is not there, SchemaMismatch for a state that the graph cannot build."""
    try:
        yield
    except ClewError:
        raise
    except Exception as exc:
        if place is not None and place.get("checkpoint_ns") and type(exc) is ValueError:
            raise NotFound(f"thread {thread_id!r} has no graph at {place['checkpoint_ns']!r}") from exc
        # Classes of the graph's own check what they are built of: who changed them meets states of before.
        raise SchemaMismatch(
            f"the state of thread {thread_id!r} does not fit its graph: {_mismatch(exc)}"
        ) from exc


def _mismatch(exc: Exception) -> str:
    """Which fields are wrong and how, without what is in them: it is private, and this is logged."""
    if not isinstance(exc, ValidationError):
        return type(exc).__name__
    wrong = exc.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or exc.title}: {one['msg']}" for one in wrong[:MISMATCHES]
    )


def shown(thread_id: str, state: StateSnapshot) -> Json:
    return _as_json(thread_id, _shown(state))


def _as_json(thread_id: str, values: Any) -> Any:
    try:
        return as_json(values)
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
    error: Any = task.error  # read from a checkpoint it is the text of an exception already
    return {
        "id": task.id,
        "name": task.name,
        "path": list(task.path),
        "error": error if error is None or isinstance(error, str) else repr(error),
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
