"""LangGraph's checkpoints as they are kept: each value apart and by version, growing lists as what they gained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clew.domain.errors import Conflict

# A version is the graph's own: text that sorts by age when it is ours, a number when it came from elsewhere.
Version = str | int | float


class ParentGone(Conflict):
    """The checkpoint that a new one builds on was removed meanwhile; store all of the new one."""

    code = "PARENT_GONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """One checkpoint without the values that are kept apart. `body` and `metadata` are JSON."""

    thread_id: str
    ns: str
    id: str
    parent_id: str | None
    body: str
    metadata: str
    apart: Mapping[str, Version]  # the channels whose value is a ChannelValue, at which version
    run_id: str | None = None
    seq: int = 0  # the order of checkpoints in the database; given when it is stored


class ChannelValue(NamedTuple):
    """The value of a channel at a version: whole, or a list as a change to the one at `base`.

    A list has a `root`: the version that was stored whole and that all changes up to this one build on. A tuple,
    because a long list is read as thousands of them.
    """

    channel: str
    version: str
    kind: str
    data: bytes
    base: str | None = None
    root: str | None = None
    splice: str | None = None  # how base and data make the list; nothing: data comes after all of base


@dataclass(frozen=True, slots=True, kw_only=True)
class Superstep:
    """A checkpoint to store, with the values it adds; what it leaves out its parent has, if it builds on that."""

    checkpoint: StoredCheckpoint
    values: Sequence[ChannelValue] = ()
    builds_on_parent: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a task. An `idx` below zero stands for a special channel, which is overwritten, not kept."""

    idx: int
    channel: str
    kind: str
    data: bytes
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWrites:
    """What one task wrote on top of a checkpoint, before the step that takes it over was stored."""

    checkpoint_id: str
    task_id: str
    writes: Sequence[Write]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint and what tasks wrote on top of it."""

    checkpoint: StoredCheckpoint
    writes: Sequence[TaskWrites] = ()
