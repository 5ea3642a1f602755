"""Graph position: reads from LangGraph which tasks are done, which interrupts are open and at which breakpoint it stopped.

A state that is written by hand (`update_state`) loses the interrupts of its graph: LangGraph prepares the same nodes
again, under new ids. So the checkpoint written that way names the questions that were open, and they stay open.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.types import Interrupt, PregelTask, StateSnapshot

from clew.domain.recovery import Breakpoint, OpenInterrupt, Position, Reopened
from clew.domain.tool_calls import GATE
from clew.graph.approval import APPROVED, UNDECIDED, ApprovalChannel
from clew.graph.tools import CALL

Graph = CompiledStateGraph[Any, Any, Any, Any]
RESUME = "__resume__"
# In the metadata of a checkpoint: the round it belongs to.
ROUND = "clew_round"
# In the metadata of a checkpoint that was written by hand: the questions that were open then, and that nothing runs
# from here without a yes.
OPEN = "clew_open"
BY_HAND = "clew_by_hand"
# Between the name of a node and that of one in the graph inside of it.
_INSIDE = "|"
# The task under which LangGraph keeps what a command wrote until the next checkpoint holds it.
NULL_TASK = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Stop:
    """The breakpoint a graph stopped at, and where its decision is written."""

    at: Breakpoint
    # The checkpoint of the graph that declares it: the whole graph, or a subgraph.
    config: RunnableConfig
    channel: ApprovalChannel | None = None
    is_nested: bool = False


@dataclass(frozen=True, slots=True)
class GraphPosition:
    """What LangGraph says; `position` is the part that decides what the run does next."""

    position: Position
    # None before the graph has taken the input of the round.
    state: StateSnapshot | None = None
    stop: Stop | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        return self.state.values if self.state is not None else {}

    @property
    def done(self) -> frozenset[str]:
        """Tasks of this step that need not run again."""
        tasks = self.state.tasks if self.state is not None else ()
        return frozenset(task.id for task in tasks if task.result is not None)


class _Checkpoints:
    """The checkpoints that one reading of a position needs. Each is read once."""

    def __init__(self, saver: BaseCheckpointSaver[Any], known: CheckpointTuple | None) -> None:
        self._saver = saver
        self._read: dict[tuple[str, str], CheckpointTuple | None] = {}
        if known is not None:
            self._read[_key(known.config)] = known

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        key = _key(config)
        if key not in self._read:
            self._read[key] = await self._saver.aget_tuple(config)
        return self._read[key]

    async def parent(self, saved: CheckpointTuple) -> CheckpointTuple | None:
        return await self.get(saved.parent_config) if saved.parent_config else None

    async def writes(self, state: StateSnapshot) -> Sequence[tuple[str, str, Any]]:
        """What is stored beside the checkpoint of a state, and is not in it yet."""
        saved = await self.get(state.config)
        return saved.pending_writes or () if saved is not None else ()


def _key(config: RunnableConfig) -> tuple[str, str]:
    place = config["configurable"]
    return place.get("checkpoint_ns", ""), place.get("checkpoint_id", "")


async def read_position(
    graph: Graph,
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    *,
    newest: CheckpointTuple | None = None,
    has_stopped: bool = False,
) -> GraphPosition:
    """`newest` is the checkpoint at `config`, if it was read already.

    `has_stopped` says that the graph has just stopped: without an interrupt or a breakpoint that is known here, it
    waits at the checkpoint it stopped at.
    """
    checkpoints = _Checkpoints(saver, newest)
    state = await graph.aget_state(config, subgraphs=True)
    formerly = {
        node: ids
        for node, ids in _formerly(state).items()
        if _open_task(state, node.split(_INSIDE)) is not None
    }
    interrupts = tuple(
        replace(one, formerly=formerly.get(one.node, ())) for one in await _interrupts(checkpoints, state)
    )
    asking = {one.node for one in interrupts}
    reopened = tuple(
        Reopened(node, ids, _next_id(state, node.split(_INSIDE)))
        for node, ids in formerly.items()
        if node not in asking
    )
    stop = await _stop(checkpoints, graph, state)
    if stop is None and state.tasks and not interrupts and not reopened:
        stop = await _stop_by_hand(checkpoints, state)
    if stop is None and has_stopped and not interrupts:
        stop = Stop(Breakpoint(id=_id(state.config), before=state.next), state.config, is_nested=True)
    position = Position(
        interrupts=interrupts,
        reopened=reopened,
        stopped_at=stop.at if stop is not None else None,
        has_ended=not state.next and not state.tasks,
        is_cut_short=any(task.result is None and not task.interrupts for task in state.tasks),
    )
    return GraphPosition(position, state, stop)


def left_open(position: Position, pending: Sequence[str]) -> str:
    """For the metadata of a state that is written by hand: by node, what of `pending` it asks.

    LangGraph stops at the first of several tools that ask; the others belong to the same node.
    """
    by_node: dict[str, list[str]] = {}
    for reopened in position.reopened:
        by_node.setdefault(reopened.node, []).extend(reopened.ids)
    for one in position.interrupts:
        by_node.setdefault(one.node, []).append(one.answered_as)
    known = {one for ids in by_node.values() for one in ids}
    beside = next((one.node for one in position.interrupts if one.call_id is not None), None)
    if beside is not None:
        by_node[beside] += [one for one in pending if one not in known]
    kept = {node: [one for one in ids if one in pending] for node, ids in by_node.items()}
    return json.dumps({node: ids for node, ids in kept.items() if ids})


def _formerly(state: StateSnapshot) -> dict[str, tuple[str, ...]]:
    """By node, the questions that were open when this state, or one inside of it, was written by hand."""
    found: dict[str, tuple[str, ...]] = {}
    if written := (state.metadata or {}).get(OPEN):
        found = {node: tuple(ids) for node, ids in json.loads(str(written)).items()}
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot):
            found |= _formerly(task.state)
    return found


def _open_task(state: StateSnapshot, names: Sequence[str]) -> tuple[StateSnapshot, PregelTask, bool] | None:
    """The task that is still to be done at this node, with the state it is of; whether that is the node itself or,
    where the graph inside is not begun, one around it."""
    task = next((task for name, task in _named(state) if name == names[0] and task.result is None), None)
    if task is None:
        return None
    if len(names) == 1:
        return state, task, True
    if not isinstance(task.state, StateSnapshot) or task.state.created_at is None:
        return state, task, False
    return _open_task(task.state, names[1:])


def _next_id(state: StateSnapshot, names: Sequence[str]) -> str | None:
    found = _open_task(state, names)
    if found is None or not found[2]:
        return None
    inside, task, _ = found
    around = inside.config["configurable"].get("checkpoint_ns", "")
    name = f"{task.name}:{task.id}"
    return Interrupt.from_ns(None, f"{around}{_INSIDE}{name}" if around else name).id


def _named(state: StateSnapshot) -> Iterator[tuple[str, PregelTask]]:
    """Tasks by the name of their node; of several of one node, the later ones with a number."""
    seen: dict[str, int] = {}
    for task in state.tasks:
        number = seen[task.name] = seen.get(task.name, -1) + 1
        yield f"{task.name}:{number}" if number else task.name, task


async def _interrupts(
    checkpoints: _Checkpoints, state: StateSnapshot, around: str = ""
) -> list[OpenInterrupt]:
    found: list[OpenInterrupt] = []
    for name, task in _named(state):
        node = f"{around}{name}"
        if isinstance(task.state, StateSnapshot) and task.state.interrupts:
            found += await _interrupts(checkpoints, task.state, f"{node}{_INSIDE}")
        elif isinstance(task.state, StateSnapshot) and _is_by_hand(task.state):
            pass  # the graph around it still has what was asked before
        elif task.interrupts and task.result is None:
            index = _answered(await checkpoints.writes(state), task)
            found += [
                OpenInterrupt(
                    id=one.id, value=one.value, index=index, node=node, call_id=_tool_call(one.value)
                )
                for one in task.interrupts
            ]
    return found


def _tool_call(value: Any) -> str | None:
    return str(value[CALL]) if isinstance(value, dict) and CALL in value else None


def _answered(writes: Sequence[tuple[str, str, Any]], task: PregelTask) -> int:
    """How many answers the task was given so far."""
    answers = [value for task_id, channel, value in writes if (task_id, channel) == (task.id, RESUME)]
    return len(answers[0]) if answers and isinstance(answers[0], list) else len(answers)


async def _stop(checkpoints: _Checkpoints, graph: Any, state: StateSnapshot) -> Stop | None:
    """LangGraph checks breakpoints only in passing. After a crash it takes any continuation for an approval."""
    inner = dict(graph.get_subgraphs())
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot) and isinstance(inner.get(task.name), Pregel):
            stop = await _stop(checkpoints, inner[task.name], task.state)
            if stop is not None:
                return replace(stop, is_nested=True)
    if not state.tasks or any(task.interrupts or task.result is not None for task in state.tasks):
        return None  # the step has begun, so its breakpoint is behind it
    if not any_of(graph.interrupt_before_nodes, state.next):
        ran = await _just_ran(checkpoints, state) if graph.interrupt_after_nodes else ()
        if not any_of(graph.interrupt_after_nodes, ran):
            return None
    channel = ApprovalChannel.of(graph)
    at = Breakpoint(
        id=await _stop_id(checkpoints, state),
        before=state.next,
        has_channel=channel is not None,
        is_decided=channel is not None and channel.is_decided(state.values),
        is_commanded=any(
            (task_id, name) == (NULL_TASK, APPROVED) for task_id, name, _ in await checkpoints.writes(state)
        ),
    )
    return Stop(at, state.config, channel)


async def _stop_by_hand(checkpoints: _Checkpoints, state: StateSnapshot) -> Stop | None:
    """Writing over a breakpoint, or over a question, approves nothing: the graph goes on after an explicit yes."""
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot) and (stop := await _stop_by_hand(checkpoints, task.state)):
            return replace(stop, at=replace(stop.at, before=state.next), is_nested=True)
    if not _is_by_hand(state):
        return None
    return Stop(Breakpoint(id=await _stop_id(checkpoints, state), before=state.next), state.config)


def _is_by_hand(state: StateSnapshot) -> bool:
    return bool((state.metadata or {}).get(BY_HAND))


async def clear_decision(saver: BaseCheckpointSaver[Any], stop: Stop, *, fence: int) -> bool:
    """Unset the decision at a breakpoint, which stays the same breakpoint. False if there is none, or it stays set."""
    if not (stop.at.is_decided or stop.at.is_commanded):
        return False
    saved = await saver.aget_tuple(stop.config)
    if saved is None or stop.channel is None or not stop.channel.can_be_unset:
        return False
    if not all(_can_be_dropped(task_id, channel) for task_id, channel, _ in saved.pending_writes or ()):
        return False
    await stop.channel.unset(saver, saved, fence=fence)
    return True


def _can_be_dropped(task_id: str, channel: str) -> bool:
    """Whether it is a decision on its way, or the error of a task that will be begun anew."""
    return (task_id, channel) == (NULL_TASK, APPROVED) or channel == ERROR


async def _just_ran(checkpoints: _Checkpoints, state: StateSnapshot) -> list[str]:
    """The nodes whose step this checkpoint ended: those that have seen more than at the checkpoint before."""
    saved = await checkpoints.get(state.config)
    while saved is not None and saved.metadata.get(UNDECIDED):
        saved = await checkpoints.parent(saved)
    if saved is None:
        return []
    before = await checkpoints.parent(saved)
    seen = before.checkpoint["versions_seen"] if before else {}
    return [
        node for node, versions in saved.checkpoint["versions_seen"].items() if versions != seen.get(node)
    ]


def any_of(declared: Any, nodes: Sequence[str]) -> bool:
    return any(declared == "*" or node in declared for node in nodes if not node.startswith("__"))


async def _stop_id(checkpoints: _Checkpoints, state: StateSnapshot) -> str:
    """A checkpoint that only cleared the decision is the same breakpoint. One whose state was changed by hand is
    another: the person who was shown the first has not seen what is there now."""
    config = state.config
    saved = await checkpoints.get(config)
    while saved is not None and saved.metadata.get(UNDECIDED) and saved.parent_config:
        config = saved.parent_config
        saved = await checkpoints.get(config)
    return _id(config)


def _id(config: RunnableConfig) -> str:
    return f"{GATE}{config['configurable'].get('checkpoint_id', '')}"
