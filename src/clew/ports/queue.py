"""Queue: the runs that wait for a runner, and the processes that run them, for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from clew.domain.thread import Owner

# So long after its last beat a process counts as alive.
ALIVE = timedelta(seconds=20)
BEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """What one tenant has of one graph. `behind` are runs that wait for another run of their own thread."""

    graph: str
    tenant: str
    waiting: int
    running: int
    behind: int
    oldest_wait: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingThread:
    thread_id: str
    owner: Owner
    graph: str
    priority: int
    is_first: bool  # an operator moved it to the front
    waited: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on this database. `slots` is 0 where it runs no threads; `graphs` are those it can run."""

    name: str
    host: str
    version: str
    role: str
    slots: int
    graphs: Sequence[str]
    started_at: datetime
    running: int = 0
    silent: timedelta = timedelta()  # since its last beat


class QueueState(Protocol):
    """Where an `owner` is asked for, `None` is the system, which sees all tenants; a `user_id` narrows it."""

    async def loads(self, owner: Owner | None = None) -> Sequence[QueueLoad]:
        """By graph and tenant."""
        ...

    async def waiting(self, owner: Owner | None = None, *, limit: int = 100) -> Sequence[WaitingThread]:
        """In the order in which they are claimed, as far as caps let them."""
        ...

    async def require_waiting(self, thread_id: str, owner: Owner | None = None) -> None:
        """Raises NotFound, and InvalidState for a thread that does not wait for a runner."""
        ...

    async def forget_turns(self) -> None:
        """Where no thread waits, forget which turns the tenants had."""
        ...

    async def beat(self, process: Process) -> None:
        """The process is alive now. Forgets those that were silent for an hour."""
        ...

    async def leave(self, name: str) -> None:
        """The process ends."""
        ...

    async def processes(self) -> Sequence[Process]:
        """Oldest first, those that are silent included."""
        ...
