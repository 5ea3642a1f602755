"""Approval channel: where a breakpoint's decision is written, in graphs that have one, and how it is cleared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, CheckpointTuple, copy_checkpoint
from langgraph.checkpoint.base.id import uuid6
from pydantic import BaseModel

from clew.checkpointer.rows import FENCE

APPROVED = "human_approved"
# In the metadata of a checkpoint that is its parent once more, without the decision.
UNDECIDED = "clew_undecided"


@dataclass(frozen=True, slots=True)
class ApprovalChannel:
    """The channel in which a graph reads the decision."""

    # Whether None says that nothing was. A state that validates its values may refuse it, and a reducer may fail on it.
    takes_none: bool = True
    # Of channels that are neither plain nor have a reducer it is not known how they are emptied.
    can_be_unset: bool = True
    # What it shows before anything is written to it.
    nothing: Any = None

    @classmethod
    def of(cls, graph: Any) -> Self | None:
        match graph.channels.get(APPROVED):
            case None:
                return None
            case LastValue():
                return cls(takes_none=not _is_checked(graph))
            case BinaryOperatorAggregate() as channel:
                return cls(takes_none=False, nothing=channel.get() if channel.is_available() else None)
            case _:
                return cls(can_be_unset=False)

    def is_decided(self, values: Mapping[str, Any]) -> bool:
        return bool(values.get(APPROVED) != self.nothing)

    async def unset(self, saver: BaseCheckpointSaver[Any], saved: CheckpointTuple, *, fence: int) -> None:
        """Put the checkpoint once more, without a decision, and without what was to be written to it."""
        checkpoint = copy_checkpoint(saved.checkpoint)
        step = saved.metadata.get("step", 0) + 1
        checkpoint["id"] = str(uuid6(clock_seq=step))
        versions = checkpoint["channel_versions"]
        new_versions: ChannelVersions = {}
        if self.takes_none:
            new_versions[APPROVED] = saver.get_next_version(max(versions.values()), None)
            versions.update(new_versions)
            checkpoint["channel_values"][APPROVED] = None
        else:
            # Without a version too, or LangGraph would read its value from what was written before.
            versions.pop(APPROVED, None)
            checkpoint["channel_values"].pop(APPROVED, None)
        metadata: Any = {**saved.metadata, "source": "update", "step": step, UNDECIDED: True}
        config: RunnableConfig = {"configurable": {**saved.config["configurable"], FENCE: fence}}
        await saver.aput(config, checkpoint, metadata, new_versions)


def _is_checked(graph: Any) -> bool:
    schema = getattr(getattr(graph, "builder", None), "state_schema", None)
    return isinstance(schema, type) and issubclass(schema, BaseModel)
