"""Run config: a run of LangGraph's API as LangGraph takes it, with its config, breakpoints and command."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import PendingWrite
from langgraph.checkpoint.serde.types import TASKS
from langgraph.constants import START
from langgraph.types import Command, Send

from clew.domain.events import Event, Resolution, RoundStarted, RunSpec
from clew.domain.runs import is_free
from clew.domain.thread import Json
from clew.graph.position import NULL_TASK, Graph
from clew.ports.users import AuthUser

# No graph needs more, and one that loops must end.
MOST_STEPS = 10_000


def newest_spec(log: Sequence[Event]) -> RunSpec | None:
    """The newest RunSpec of the round; None for a round that was not started as a run."""
    for event in reversed(log):
        match event.body:
            case RoundStarted(spec=RunSpec() as spec) | Resolution(spec=RunSpec() as spec):
                return spec
            case _:
                pass
    return None


def caller_config(log: Sequence[Event]) -> dict[str, Any]:
    """What a node reads of the callers of the round: the headers of all who started it natively, the newest one's where
    they differ, and the user of the newest start or answer. The headers of a run are in its config."""
    headers: dict[str, str] = {}
    user: Mapping[str, Json] | None = None
    for event in log:
        match event.body:
            case RoundStarted(spec=RunSpec() as spec) | Resolution(spec=RunSpec() as spec):
                user = spec.user
            case RoundStarted():
                user = event.body.user
                headers |= event.body.headers
            case _:
                pass
    return {**headers, **user_config(user)}


def user_config(user: Mapping[str, Json] | None) -> dict[str, Any]:
    """What a node reads of the user, under LangGraph's names. Only the server writes them."""
    if user is None:
        return {}
    known = AuthUser(user)
    return {
        "langgraph_auth_user": known,
        "langgraph_auth_user_id": known.identity,
        "langgraph_auth_permissions": known.permissions,
    }


def spec_config(
    config: RunnableConfig, spec: RunSpec, context: Mapping[str, Any] | None = None
) -> RunnableConfig:
    """`config` with what the spec adds, and its context, which is configurable too; what is ours stays ours."""
    names = {"run_id": spec.run_id, "assistant_id": spec.assistant_id, "graph_id": spec.graph}
    named: RunnableConfig = {
        **config,
        "configurable": {**names, **config["configurable"], **user_config(spec.user)},
        "metadata": {**names, **config["metadata"]},
    }
    return free_config(named, spec.config, context, spec.metadata)


def free_config(
    config: RunnableConfig,
    wanted: Mapping[str, Json],
    context: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Json] = MappingProxyType({}),
) -> RunnableConfig:
    """`config` with what a caller wants; the names that are reserved are left out, and those of `config` stay."""
    given = _mapping(wanted, "configurable") | dict(context or {})
    given = {key: value for key, value in given.items() if is_free(key)}
    described = _mapping(wanted, "metadata") | dict(metadata)
    described = {key: value for key, value in described.items() if is_free(key)}
    limit = wanted.get("recursion_limit")
    merged: RunnableConfig = {
        **config,
        "configurable": {**given, **config["configurable"]},
        "metadata": {**described, **config["metadata"]},
    }
    if isinstance(limit, int):
        merged["recursion_limit"] = max(1, min(limit, MOST_STEPS))
    if isinstance(wanted.get("tags"), list):
        merged["tags"] = [str(tag) for tag in wanted["tags"]]
    return merged


def with_stops(graph: Graph, spec: RunSpec | None) -> Graph:
    """The graph with the stops of this run in place of its own, so that they are found after a crash as well.

    A stop at a node that the graph does not have is none: the graph's own stay.
    """
    if spec is None:
        return graph
    stops = {
        "interrupt_before_nodes": _stops(graph, spec.stops_before),
        "interrupt_after_nodes": _stops(graph, spec.stops_after),
    }
    found = {name: nodes for name, nodes in stops.items() if nodes}
    return graph.copy(update=found) if found else graph


def _stops(graph: Graph, nodes: Sequence[str]) -> str | list[str]:
    return "*" if nodes == ("*",) else [node for node in nodes if node in graph.nodes]


def command_of(spec: RunSpec, resume: Mapping[str, Any] | None = None) -> Command[Any] | None:
    """The command of the spec besides its input, with the answers it is given; None if there is neither."""
    told = spec.command or {}
    if told.get("update") is None and not told.get("goto") and not resume:
        return None
    return to_command(told, resume)


def to_command(told: Mapping[str, Any], resume: Mapping[str, Any] | None = None) -> Command[Any]:
    """LangGraph's command out of its JSON."""
    update, goto = told.get("update"), told.get("goto")
    if isinstance(update, list) and all(_is_pair(item) for item in update):
        update = [tuple(item) for item in update]
    targets = goto if isinstance(goto, list) else [goto] if goto else []
    sends = [to if isinstance(to, str) else Send(to["node"], to.get("input")) for to in targets]
    return Command(update=update, goto=sends, resume=resume)


def is_written(command: Command[Any], writes: Collection[PendingWrite]) -> bool:
    """Whether all that a command writes is beside the checkpoint already: an attempt before this one gave it."""
    written = [(channel, value) for task_id, channel, value in writes if task_id == NULL_TASK]
    return all(each in written for each in _writes(command))


def _writes(command: Command[Any]) -> list[tuple[str, Any]]:
    """As LangGraph keeps them until the next checkpoint."""
    match command.update:
        case None:
            updates: list[tuple[str, Any]] = []
        case dict() as by_name:
            updates = [*by_name.items()]
        case list() as pairs if all(isinstance(pair, tuple) for pair in pairs):
            updates = pairs
        case value:
            updates = [("__root__", value)]
    targets = command.goto if isinstance(command.goto, list) else [command.goto] if command.goto else []
    gotos: list[tuple[str, Any]] = [
        (TASKS, to) if isinstance(to, Send) else (f"branch:to:{to}", START) for to in targets
    ]
    return updates + gotos


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)


def _mapping(wanted: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = wanted.get(name)
    return dict(value) if isinstance(value, Mapping) else {}
