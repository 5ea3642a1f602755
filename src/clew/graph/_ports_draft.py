"""The Checkpoints port, until it moves to ports."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from clew.domain.checkpoints import ChannelValue, Found, StoredCheckpoint, TaskWrites


class Checkpoints(Protocol):
    """Keeps LangGraph's checkpoints by thread and namespace, in the order they were stored.

    Writing under a buried thread raises NotFound; with a `fence` that is no longer the thread's, LostLease.
    Threads that are nobody's (a graph used without our engine) have neither.
    """

    async def put(
        self,
        checkpoint: StoredCheckpoint,
        values: Sequence[ChannelValue],
        *,
        builds_on_parent: bool = False,
        fence: int | None = None,
    ) -> None:
        """Store a checkpoint and its new values in one transaction; a value that is there already stays.

        What `builds_on_parent` leaves out what its parent has: raises ParentGone if that is no longer there.
        """
        ...

    async def put_writes(
        self, thread_id: str, ns: str, writes: TaskWrites, *, fence: int | None = None
    ) -> None:
        """Add what a task wrote. Of two writes with one index the first stays, but of special ones the last."""
        ...

    async def get(
        self,
        thread_id: str,
        ns: str,
        checkpoint_id: str | None = None,
        *,
        held: Mapping[str, str] | None = None,
    ) -> Found | None:
        """The checkpoint, or the newest one, with its writes and values.

        `held` names versions the caller has: they are left out, and so is what a newer version was built of up to
        them. A caller that cannot build on what it holds asks again without.
        """
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
        self, thread_id: str, ns: str, versions: Mapping[str, Collection[str]]
    ) -> Sequence[ChannelValue]:
        """The channels' values at these versions, and all that they are built of."""
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints, values and writes; what the target has already stays."""
        ...

    async def delete(self, thread_id: str) -> None: ...

    async def delete_runs(self, run_ids: Collection[str]) -> None:
        """Delete the checkpoints these runs made. Values that others build on stay."""
        ...

    async def prune(self, thread_id: str) -> None:
        """Delete all but the newest checkpoint of each namespace.

        Checkpoints whose writes a channel of the newest one is rebuilt from stay as well.
        """
        ...
