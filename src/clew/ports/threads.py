"""Thread store: threads, their event log and their leases."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from clew.domain.events import Event
from clew.domain.lifecycle import Change
from clew.domain.records import Lease
from clew.domain.thread import Owner, Status, Thread
from clew.ports.guards import Guard


class Store(Protocol):
    """Keeps threads and their events. Knows no rules: it saves what the domain decided, or refuses.

    Where an `owner` is asked for, another owner's thread does not exist; `None` is the system, which sees all.
    """

    async def commit(self, change: Change, *guards: Guard) -> None:
        """Save the thread, append its events and update its calls, in one transaction with what the guards say.

        The thread expires later, unless a guard says otherwise. One that waited and goes on, or ends, wakes the
        conversation that is led in it (Conversations). A message that is redacted is removed from the model calls that
        held it (ModelCalls). A thread that leaves `running` gives up its lease.

        Raises Conflict if the stored log no longer ends at `change.read_at`, NotFound if the thread was deleted, and
        what a guard raises. Then nothing was saved.
        """
        ...

    async def get(self, thread_id: str, owner: Owner | None = None) -> Thread:
        """Raises NotFound."""
        ...

    async def find(
        self,
        owner: Owner | None = None,
        *,
        status: Collection[Status] = (),
        graph: str | None = None,
        active_since: datetime | None = None,
        active_until: datetime | None = None,
        by_activity: bool = False,
        before: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Thread]:
        """Threads, newest first; `before` is the creation time and id of the last one already seen.
        `by_activity`: those that were active last come first, and `before` has that time.

        One that cannot be read back comes as `get_listed` gives it, unless only some `status` is wanted.
        """
        ...

    async def tenant_of(self, thread_id: str) -> str | None:
        """Whose thread has this id, or had it and is remembered; None if it is free."""
        ...

    async def get_listed(self, thread_id: str, owner: Owner | None = None) -> Thread:
        """The same as `get`; but one that cannot be read back comes as a thread that failed, for that reason."""
        ...

    async def read(
        self,
        thread_id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
        types: Collection[str] = (),
    ) -> Sequence[Event]:
        """Events with `after < seq < before`, in order; of more than `limit` the newest.
        With `after` they are the oldest, so that a reader goes on from there, unless it asks for the `newest`.

        Raises Corrupt when a row cannot be read back.
        """
        ...

    async def message_ids(self, thread_id: str, *, before: int) -> Sequence[str]:
        """The ids of all messages with a smaller seq, in order: what they say is not read."""
        ...

    async def seq_of(self, thread_id: str, event_id: str) -> int:
        """Where in the log a message or a log line stands. Raises NotFound."""
        ...

    async def fence(self, thread_id: str) -> int:
        """The thread's current fence: writes under it are refused once a runner claims the thread. Raises NotFound."""
        ...

    async def has_work(self, graphs: Collection[str] = ()) -> bool:
        """Whether `claim` would find anything. A read, so that idle runners cost nothing."""
        ...

    async def claim(
        self,
        runner: str,
        *,
        lease: timedelta,
        limit: int,
        graphs: Collection[str] = (),
        alive: Collection[str] = (),
        recovered: tuple[int, int] | None = None,
    ) -> Sequence[Lease]:
        """Lease up to `limit` running threads that no live runner holds. Time is the database's.

        Those of a process that died come first. Others follow by priority, and within one fairly between tenants.
        Of these `graphs`, if any are named. Of those that were then `recovered` from at least to at most so many times.
        Threads that are `alive` here and still this runner's are left alone, however old their lease is.
        """
        ...

    async def claim_one(
        self, runner: str, thread_id: str, *, lease: timedelta, recovered: tuple[int, int]
    ) -> Lease | None:
        """The same for one thread. A lease that this runner holds is claimed again, and no recovery is counted."""
        ...

    async def move_to_front(self, thread_id: str, owner: Owner | None = None) -> None:
        """Claim this thread next, before all priorities. Raises NotFound, InvalidState if it does not wait."""
        ...

    async def renew(self, runner: str, leases: Iterable[Lease], *, lease: timedelta) -> Collection[str]:
        """Prolong the leases; returns the ids of the threads whose lease is no longer this runner's."""
        ...

    async def release(self, runner: str, lease: Lease) -> None:
        """Give a lease back before its time. One that was lost is left alone."""
        ...

    async def release_all(self, runner: str, *, but: Collection[str]) -> None:
        """Give back every lease of the runner but those of these threads.

        A claim whose answer was lost has taken effect without the runner's knowledge."""
        ...

    async def lease_owners(self) -> Collection[str]:
        """The processes that hold leases: of threads, chats, run hooks or crons."""
        ...

    async def end_leases(self, runner: str) -> int:
        """Let all leases of a process that died run out now, those of chats, run hooks and crons among them; returns how
        many there were. The next claim of a thread counts a recovery."""
        ...

    async def touch(self, thread_ids: Sequence[str], *, now: datetime, grain: timedelta) -> Collection[str]:
        """Record an access to these threads: they expire later. Returns those that were written.

        Not written are those that were accessed within the `grain` before, and those that another transaction holds
        at this moment.
        """
        ...

    async def tombstone(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> None:
        """Delete the thread for good: from now on it is not found, and nothing can be written under its id.

        Its rows are purged next. Raises NotFound.
        """
        ...

    async def purge(self, *, limit: int = 100, only: str | None = None) -> Sequence[str]:
        """Remove rows of up to `limit` threads with a tombstone, or of that one; returns their ids.

        A bounded number of rows a call: empty when nothing is left to do.
        """
        ...

    async def forget_tombstones(self, *, older: timedelta, limit: int = 1000) -> int:
        """Forget up to `limit` threads that were purged longer ago than this; returns how many. Time is the database's.

        From then on nothing guards their ids: one that is used again is a new thread.
        """
        ...
