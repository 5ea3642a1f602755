"""Where a graph stands: what of its step is done, what it asks, and the gate it must not pass without a yes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.types import PregelTask, StateSnapshot

from clew.domain.ledger import GATE
from clew.graph.decision import APPROVED, UNDECIDED, Word

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
    # How that graph is told what was decided, and whether it says so already.
    word: Word | None = None
    is_decided: bool = False
    # Whether a command wrote a decision that no checkpoint holds yet: written again it would be written twice.
    is_commanded: bool = False
    is_nested: bool = False


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
    return Gate(_id(state.config), state.next, state.config, is_nested=True)


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
    if not _any_of(graph.interrupt_before_nodes, state.next):
        ran = await _just_ran(saver, state) if graph.interrupt_after_nodes else ()
        if not _any_of(graph.interrupt_after_nodes, ran):
            return None
    word = Word.of(graph)
    return Gate(
        await _gate_id(saver, state),
        state.next,
        state.config,
        word,
        is_decided=word is not None and word.is_decided(state.values),
        is_commanded=await _is_commanded(saver, state),
    )


async def forget(saver: BaseCheckpointSaver[Any], gate: Gate, *, fence: int) -> bool:
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


def _any_of(declared: Any, nodes: Sequence[str]) -> bool:
    return any(declared == "*" or node in declared for node in nodes if not node.startswith("__"))


async def _gate_id(saver: BaseCheckpointSaver[Any], state: StateSnapshot) -> str:
    """A state that was changed by hand at a gate is at the same gate."""
    config = state.config
    saved = await saver.aget_tuple(state.config)
    while saved is not None and saved.metadata.get("source") == "update" and saved.parent_config:
        config = saved.parent_config
        saved = await saver.aget_tuple(config)
    return _id(config)


def _id(config: RunnableConfig) -> str:
    return f"{GATE}{config['configurable'].get('checkpoint_id', '')}"
