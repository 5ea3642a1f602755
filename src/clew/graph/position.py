"""Where a graph stands: what of its step is done, what it asks, and the gate it must not pass without a yes.

A state that is written by hand loses what its graph asked: LangGraph prepares the same nodes anew, under new ids. So
the checkpoint that is written so says which questions were open, and they stay open.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.types import Interrupt, PregelTask, StateSnapshot

from clew.domain.ledger import GATE
from clew.graph.approval import APPROVED, UNDECIDED, ApprovalChannel

Graph = CompiledStateGraph[Any, Any, Any, Any]
RESUME = "__resume__"
# In the metadata of a checkpoint that was written by hand: the questions that were open then, and that nothing runs
# from here without a yes.
OPEN = "clew_open"
BY_HAND = "clew_by_hand"
# Between the name of a node and that of one in the graph inside of it.
_INSIDE = "|"
# The task under which LangGraph keeps what a command wrote until the next checkpoint holds it.
NULL_TASK = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class OpenInterrupt:
    """An open interrupt, and how many of its node's questions were answered before it."""

    id: str
    value: Any
    index: int
    # The node that asks, after those of the graphs around it.
    node: str = ""
    # Under which ids it was asked before its state was written by hand.
    formerly: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reopened:
    """Questions of a node that were open when its state was written by hand. It asks them again when it runs."""

    node: str
    ids: tuple[str, ...]
    # Under which id it will ask; None as long as nobody knows.
    next_id: str | None


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A stop that was declared when the graph was compiled. It has no id of its own; the checkpoint it is at has."""

    id: str
    before: tuple[str, ...]
    # Where the graph is that it belongs to: the whole one, or one inside of it.
    config: RunnableConfig
    # How that graph is told what was decided, and whether it says so already.
    word: ApprovalChannel | None = None
    is_decided: bool = False
    # Whether a command wrote a decision that no checkpoint holds yet: written again it would be written twice.
    is_commanded: bool = False
    is_nested: bool = False


@dataclass(frozen=True, slots=True)
class GraphPosition:
    state: StateSnapshot
    questions: Sequence[OpenInterrupt]
    gate: Breakpoint | None
    reopened: Sequence[Reopened] = field(default=())

    @property
    def has_ended(self) -> bool:
        return not self.state.next and not self.state.tasks

    @property
    def done(self) -> frozenset[str]:
        """Tasks of this step that need not run again."""
        return frozenset(task.id for task in self.state.tasks if task.result is not None)

    @property
    def is_cut_short(self) -> bool:
        """Whether a task neither ended nor asks: it was killed, or never begun."""
        return any(task.result is None and not task.interrupts for task in self.state.tasks)


async def read_position(graph: Graph, saver: BaseCheckpointSaver[Any], config: Any) -> GraphPosition:
    state = await graph.aget_state(config, subgraphs=True)
    formerly = {
        node: ids
        for node, ids in _formerly(state).items()
        if _open_task(state, node.split(_INSIDE)) is not None
    }
    questions = [
        replace(question, formerly=formerly.get(question.node, ()))
        for question in await _questions(saver, state)
    ]
    asking = {question.node for question in questions}
    reopened = [
        Reopened(node, ids, _next_id(state, node.split(_INSIDE)))
        for node, ids in formerly.items()
        if node not in asking
    ]
    gate = await _gate(saver, graph, state)
    if gate is None and state.tasks and not questions and not reopened:
        gate = await _gate_by_hand(saver, state)
    return GraphPosition(state, questions, gate, reopened)


def some_gate(state: StateSnapshot) -> Breakpoint:
    """For a graph that stopped where no gate of it is known to us."""
    return Breakpoint(_id(state.config), state.next, state.config, is_nested=True)


def left_open(standing: GraphPosition, pending: Sequence[str], call_of: Mapping[str, str]) -> str:
    """For the metadata of a state that is written by hand: by node, what of `pending` it asks.

    `call_of` names the tool calls behind interrupts. LangGraph stops at the first of several that ask; the others
    belong to the same node.
    """
    by_node: dict[str, list[str]] = {}
    for one in standing.reopened:
        by_node.setdefault(one.node, []).extend(one.ids)
    for question in standing.questions:
        by_node.setdefault(question.node, []).append(call_of.get(question.id, question.id))
    known = {one for ids in by_node.values() for one in ids}
    beside = next((each.node for each in standing.questions if each.id in call_of), None)
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


async def _questions(
    saver: BaseCheckpointSaver[Any], state: StateSnapshot, around: str = ""
) -> list[OpenInterrupt]:
    found: list[OpenInterrupt] = []
    for name, task in _named(state):
        node = f"{around}{name}"
        if isinstance(task.state, StateSnapshot) and task.state.interrupts:
            found += await _questions(saver, task.state, f"{node}{_INSIDE}")
        elif isinstance(task.state, StateSnapshot) and _is_by_hand(task.state):
            pass  # the graph around it still has what was asked before
        elif task.interrupts and task.result is None:
            index = await _answered(saver, state, task)
            found += [
                OpenInterrupt(interrupt.id, interrupt.value, index, node) for interrupt in task.interrupts
            ]
    return found


async def _answered(saver: BaseCheckpointSaver[Any], state: StateSnapshot, task: PregelTask) -> int:
    """How many answers the task was given so far."""
    saved = await saver.aget_tuple(state.config)
    writes = saved.pending_writes or [] if saved else []
    answers = [value for task_id, channel, value in writes if (task_id, channel) == (task.id, RESUME)]
    return len(answers[0]) if answers and isinstance(answers[0], list) else len(answers)


async def _gate(saver: BaseCheckpointSaver[Any], graph: Any, state: StateSnapshot) -> Breakpoint | None:
    """LangGraph looks at gates only in passing. After a crash it takes any continuation for the word to pass."""
    inner = dict(graph.get_subgraphs())
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot) and isinstance(inner.get(task.name), Pregel):
            gate = await _gate(saver, inner[task.name], task.state)
            if gate is not None:
                return replace(gate, is_nested=True)
    if not state.tasks or any(task.interrupts or task.result is not None for task in state.tasks):
        return None  # the step has begun, so its gate is behind it
    if not any_of(graph.interrupt_before_nodes, state.next):
        ran = await _just_ran(saver, state) if graph.interrupt_after_nodes else ()
        if not any_of(graph.interrupt_after_nodes, ran):
            return None
    word = ApprovalChannel.of(graph)
    return Breakpoint(
        await _gate_id(saver, state),
        state.next,
        state.config,
        word,
        is_decided=word is not None and word.is_decided(state.values),
        is_commanded=await _is_commanded(saver, state),
    )


async def _gate_by_hand(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> Breakpoint | None:
    """What is written over a gate, or over a question, is no approval: the graph goes on when somebody says so."""
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot) and (gate := await _gate_by_hand(saver, task.state)):
            return replace(gate, before=state.next, is_nested=True)
    if not _is_by_hand(state):
        return None
    return Breakpoint(await _gate_id(saver, state), state.next, state.config)


def _is_by_hand(state: StateSnapshot) -> bool:
    return bool((state.metadata or {}).get(BY_HAND))


async def forget(saver: BaseCheckpointSaver[Any], gate: Breakpoint, *, fence: int) -> bool:
    """Unset the decision where a graph waits at a gate, which is the same gate then. False if it cannot be."""
    saved = await saver.aget_tuple(gate.config)
    if saved is None or gate.word is None or not gate.word.can_be_unset:
        return False
    if not all(_can_be_dropped(task_id, channel) for task_id, channel, _ in saved.pending_writes or ()):
        return False
    await gate.word.unset(saver, saved, fence=fence)
    return True


def _can_be_dropped(task_id: str, channel: str) -> bool:
    """Whether it is a decision on its way, or how a task failed that will be begun anew."""
    return (task_id, channel) == (NULL_TASK, APPROVED) or channel == ERROR


async def _is_commanded(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> bool:
    saved = await saver.aget_tuple(state.config)
    writes = saved.pending_writes or () if saved else ()
    return any((task_id, channel) == (NULL_TASK, APPROVED) for task_id, channel, _ in writes)


async def _just_ran(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> list[str]:
    """The nodes whose step this checkpoint ended: those that have seen more than at the checkpoint before."""
    saved = await saver.aget_tuple(state.config)
    while saved is not None and saved.metadata.get(UNDECIDED):
        saved = await _parent(saver, saved)
    if saved is None:
        return []
    before = await _parent(saver, saved)
    seen = before.checkpoint["versions_seen"] if before else {}
    return [
        node for node, versions in saved.checkpoint["versions_seen"].items() if versions != seen.get(node)
    ]


async def _parent(saver: BaseCheckpointSaver[Any], saved: CheckpointTuple) -> CheckpointTuple | None:
    return await saver.aget_tuple(saved.parent_config) if saved.parent_config else None


def any_of(declared: Any, nodes: Sequence[str]) -> bool:
    return any(declared == "*" or node in declared for node in nodes if not node.startswith("__"))


async def _gate_id(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> str:
    """The same gate without its decision is the same gate. With a state that was changed by hand it is another one:
    who is shown the first has not seen what is there now."""
    config = state.config
    saved = await saver.aget_tuple(state.config)
    while saved is not None and saved.metadata.get(UNDECIDED) and saved.parent_config:
        config = saved.parent_config
        saved = await saver.aget_tuple(config)
    return _id(config)


def _id(config: RunnableConfig) -> str:
    return f"{GATE}{config['configurable'].get('checkpoint_id', '')}"
