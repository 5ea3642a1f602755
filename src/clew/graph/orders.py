"""An order as LangGraph takes it: the config of its run, the stops it asks for, the command it gives."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Send

from clew.domain.events import Event, Order, Resolution, RoundStarted
from clew.graph.standing import Graph

# Nobody's graph needs more, and one in circles should end some day.
MOST_STEPS = 10_000
# What a caller may not say: where in whose thread it is, under whose fence, and what LangGraph tells itself.
_RESERVED = ("clew_", "__", "checkpoint_", "thread_id")


def newest_order(log: Sequence[Event]) -> Order | None:
    """What was last ordered of the round; a round that nobody ordered so has none."""
    for event in reversed(log):
        match event.body:
            case RoundStarted(order=Order() as order) | Resolution(order=Order() as order):
                return order
            case _:
                pass
    return None


def ordered_config(config: RunnableConfig, order: Order) -> RunnableConfig:
    """`config` with what the order adds; what is ours stays ours."""
    wanted = order.config
    names = {"run_id": order.run_id, "assistant_id": order.assistant_id, "graph_id": order.graph}
    given = {key: value for key, value in _mapping(wanted, "configurable").items() if is_free(key)}
    described = _mapping(wanted, "metadata") | dict(order.metadata)
    described = {key: value for key, value in described.items() if is_free(key)}
    limit = wanted.get("recursion_limit")
    merged: RunnableConfig = {
        **config,
        "configurable": {**given, **names, **config["configurable"]},
        "metadata": {**described, **names, **config["metadata"]},
    }
    if isinstance(limit, int):
        merged["recursion_limit"] = max(1, min(limit, MOST_STEPS))
    if isinstance(wanted.get("tags"), list):
        merged["tags"] = [str(tag) for tag in wanted["tags"]]
    return merged


def with_stops(graph: Graph, order: Order | None) -> Graph:
    """The graph with the stops of this run in place of its own, so that they are found after a crash as well."""
    if order is None or not (order.stops_before or order.stops_after):
        return graph
    stops = {
        name: "*" if nodes == ("*",) else list(nodes)
        for name, nodes in (
            ("interrupt_before_nodes", order.stops_before),
            ("interrupt_after_nodes", order.stops_after),
        )
        if nodes
    }
    return graph.copy(update=stops)


def command_of(order: Order, resume: Mapping[str, Any] | None = None) -> Command[Any] | None:
    """What the order tells the graph besides its input, with the answers it is given; None if there is neither."""
    told = order.command or {}
    update, goto = told.get("update"), told.get("goto")
    if update is None and not goto and not resume:
        return None
    if isinstance(update, list) and all(_is_pair(item) for item in update):
        update = [tuple(item) for item in update]
    targets = goto if isinstance(goto, list) else [goto] if goto else []
    sends = [to if isinstance(to, str) else Send(to["node"], to.get("input")) for to in targets]
    return Command(update=update, goto=sends, resume=resume)


def is_free(name: str) -> bool:
    return not name.startswith(_RESERVED)


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)


def _mapping(wanted: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = wanted.get(name)
    return dict(value) if isinstance(value, Mapping) else {}
