"""Where a graph stands: what of its step is done, what it asks, and the gate it must not pass without a yes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, copy_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.types import PregelTask, StateSnapshot

from clew.domain.ledger import GATE
from clew.graph.bodies import FENCE

Graph = CompiledStateGraph[Any, Any, Any, Any]
RESUME = "__resume__"
# The task under which LangGraph keeps what a command wrote until the next checkpoint holds it.
NULL_TASK = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Question:
    """An open interrupt, and how many of its node's questions were answered before it."""

    id: str
    value: Any
    index: int


@dataclass(frozen=True, slots=True)
class Gate:
    """A stop that was declared when the graph was compiled. It has no id of its own; the checkpoint it is at has."""

    id: str
    before: tuple[str, ...]
    # Where the graph is that it belongs to: the whole one, or one inside of it.
    config: RunnableConfig
    channels: frozenset[str] = frozenset()
    # Channels a command wrote to that no checkpoint holds yet: written again they would be written twice.
    commanded: frozenset[str] = frozenset()
    is_nested: bool = False
    # Whether it is behind the nodes it was declared for, which are known by what they did in the step before.
    is_after: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    state: StateSnapshot
    questions: Sequence[Question]
    gate: Gate | None

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


async def find_standing(graph: Graph, saver: BaseCheckpointSaver[Any], config: Any) -> Standing:
    state = await graph.aget_state(config, subgraphs=True)
    return Standing(state, await _questions(saver, state), await _gate(saver, graph, state))


def some_gate(state: StateSnapshot) -> Gate:
    """For a graph that stopped where no gate of it is known to us."""
    return Gate(_id(state), state.next, state.config, is_nested=True)


async def _questions(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> list[Question]:
    found: list[Question] = []
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot) and task.state.interrupts:
            found += await _questions(saver, task.state)
        elif task.interrupts and task.result is None:
            index = await _answered(saver, state, task)
            found += [Question(interrupt.id, interrupt.value, index) for interrupt in task.interrupts]
    return found


async def _answered(saver: BaseCheckpointSaver[Any], state: StateSnapshot, task: PregelTask) -> int:
    """How many answers the task was given so far."""
    saved = await saver.aget_tuple(state.config)
    writes = saved.pending_writes or [] if saved else []
    answers = [value for task_id, channel, value in writes if (task_id, channel) == (task.id, RESUME)]
    return len(answers[0]) if answers and isinstance(answers[0], list) else len(answers)


async def _gate(saver: BaseCheckpointSaver[Any], graph: Any, state: StateSnapshot) -> Gate | None:
    """LangGraph looks at gates only in passing. After a crash it takes any continuation for the word to pass."""
    inner = dict(graph.get_subgraphs())
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot) and isinstance(inner.get(task.name), Pregel):
            gate = await _gate(saver, inner[task.name], task.state)
            if gate is not None:
                return replace(gate, is_nested=True)
    if not state.tasks or any(task.interrupts or task.result is not None for task in state.tasks):
        return None  # the step has begun, so its gate is behind it
    is_before = _any_of(graph.interrupt_before_nodes, state.next)
    is_after = not is_before and bool(graph.interrupt_after_nodes)
    if is_after:
        is_after = _any_of(graph.interrupt_after_nodes, await _just_ran(saver, state))
    if not is_before and not is_after:
        return None
    return Gate(
        _id(state),
        state.next,
        state.config,
        frozenset(graph.channels),
        await _commanded(saver, state),
        is_after=is_after,
    )


async def forget(saver: BaseCheckpointSaver[Any], gate: Gate, channel: str, *, fence: int) -> bool:
    """Empty a channel where a graph waits before its next step, which is the same then. False if it cannot be."""
    saved = await saver.aget_tuple(gate.config)
    # What runs next is told by the checkpoint alone, and only where no part of the step is done.
    if saved is None or saved.pending_writes or gate.is_nested or gate.is_after:
        return False
    step = saved.metadata.get("step", 0) + 1
    checkpoint = copy_checkpoint(saved.checkpoint)
    checkpoint["id"] = str(uuid6(clock_seq=step))
    checkpoint["channel_values"][channel] = None
    version = saver.get_next_version(max(checkpoint["channel_versions"].values()), None)
    checkpoint["channel_versions"][channel] = version
    metadata: CheckpointMetadata = {**saved.metadata, "source": "update", "step": step}
    config: RunnableConfig = {"configurable": {**saved.config["configurable"], FENCE: fence}}
    await saver.aput(config, checkpoint, metadata, {channel: version})
    return True


async def _commanded(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> frozenset[str]:
    saved = await saver.aget_tuple(state.config)
    writes = saved.pending_writes or () if saved else ()
    return frozenset(channel for task_id, channel, _ in writes if task_id == NULL_TASK)


async def _just_ran(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> list[str]:
    """The nodes whose step this checkpoint ended: those that have seen more than at the checkpoint before."""
    saved = await saver.aget_tuple(state.config)
    if saved is None:
        return []
    before = await saver.aget_tuple(saved.parent_config) if saved.parent_config else None
    seen = before.checkpoint["versions_seen"] if before else {}
    return [
        node for node, versions in saved.checkpoint["versions_seen"].items() if versions != seen.get(node)
    ]


def _any_of(declared: Any, nodes: Sequence[str]) -> bool:
    return any(declared == "*" or node in declared for node in nodes if not node.startswith("__"))


def _id(state: StateSnapshot) -> str:
    return f"{GATE}{state.config['configurable'].get('checkpoint_id', '')}"
