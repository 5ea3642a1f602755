"""Checkpoints: the rows behind LangGraph's checkpointer."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSizes:
    """How much the checkpoints of a thread take: rows and bytes of each table, and of each channel's values."""

    checkpoints: tuple[int, int]
    writes: tuple[int, int]
    channels: Mapping[str, tuple[int, int]]


class Checkpoints(Protocol):
    """Keeps LangGraph's checkpoints by thread and namespace, in the order they were stored.

    Writing under a deleted thread raises NotFound; with a `fence` that is no longer the thread's, LostLease.
    Threads without an owner (a graph used without our engine) have neither.
    """

    async def put(
        self, steps: Sequence[Superstep], *, writes: Sequence[TaskWrites] = (), fence: int | None = None
    ) -> None:
        """Store steps of one thread and namespace, oldest first, in one transaction; a value that is there already stays.

        `writes` are what tasks wrote that these steps take over. Raises ParentGone if a parent that a step builds on is no longer there.
        """
        ...

    async def put_writes(
        self, thread_id: str, ns: str, writes: TaskWrites, *, fence: int | None = None
    ) -> None:
        """Add what a task wrote. Of two writes with one index the first stays, but of special ones the last."""
        ...

    async def get(self, thread_id: str, ns: str, checkpoint_id: str | None = None) -> Found | None:
        """The checkpoint, or the newest one."""
        ...

    async def find(
        self,
        thread_id: str | None = None,
        ns: str | None = None,
        *,
        checkpoint_id: str | None = None,
        before: str | None = None,
        below: int | None = None,
        limit: int,
    ) -> Sequence[StoredCheckpoint]:
        """Checkpoints, newest first. `before` is the id of a checkpoint in any namespace of the thread.

        `below` goes on after the `seq` of the last one seen.
        """
        ...

    async def writes_of(
        self, thread_id: str, ns: str, checkpoint_ids: Collection[str]
    ) -> Sequence[TaskWrites]: ...

    async def values_of(
        self,
        thread_id: str,
        ns: str,
        versions: Mapping[str, Collection[str]],
        *,
        held: Mapping[str, str] | None = None,
    ) -> Sequence[ChannelValue]:
        """The channels' values at these versions, and all that they are built of.

        `held` names older versions the caller has: what those are built of is left out. A caller that cannot build
        on what it holds, because its version is of another branch, asks again without.
        """
        ...

    async def sizes(self, thread_id: str) -> CheckpointSizes:
        """The rows and bytes of all that is stored of a thread's checkpoints."""
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints, values and writes; what the target has already stays.

        The source may be written to meanwhile: the copy is a state it was in. Raises NotFound if one of them was deleted.
        """
        ...

    async def delete(self, thread_id: str) -> None: ...

    async def delete_runs(self, run_ids: Collection[str]) -> None:
        """Delete the checkpoints these runs made. Values that others build on stay."""
        ...

    async def prune(self, thread_id: str) -> None:
        """Delete all but the newest checkpoint of each namespace.

        Checkpoints whose writes a channel of the newest one is rebuilt from stay as well. Raises InvalidState if the thread
        is running.
        """
        ...
