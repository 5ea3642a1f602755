"""Guards of a commit: what must hold for a change to be saved, and what is written in the same transaction."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from clew.domain.profile import Price, SpendingLimits
from clew.domain.records import FIRST_FENCE, Incoming, RunHook
from clew.domain.thread import Json


@dataclass(frozen=True, slots=True)
class Fence:
    """The thread's fence is still this one. Otherwise LostLease."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A request that must happen once: its key, what it asked for, and the answer to give when it comes again.

    AlreadyDone with the stored answer if the key was used, Duplicate if it was used for another request.
    """

    tenant: str
    key: str
    fingerprint: str
    response: Json


@dataclass(frozen=True, slots=True)
class Admits:
    """The delivery that this change works off. AlreadyDone if an earlier change did, Duplicate if its content differs."""

    incoming: Incoming


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A key that a thread holds while it is active: one thread a key, and at most `limit` keys of one kind.

    AlreadyReserved if another active thread has it, AtCapacity if too many are taken.
    """

    kind: str
    key: str
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who takes the lease of a thread that rested and runs with this change, for how long, and under which fence: the
    next one of the thread as it was read. Conflict if another lease came in between."""

    runner: str
    lease: timedelta
    fence: int = FIRST_FENCE


@dataclass(frozen=True, slots=True)
class Overdue:
    """The call's deadline has passed. Conflict if the call was given more time since that was decided."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Unseen:
    """The thread was not accessed after this. Otherwise Conflict; and the change is no access either."""

    since: datetime


@dataclass(frozen=True, slots=True)
class Labels:
    """The metadata of a thread that is being opened."""

    metadata: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Relabels:
    """Metadata that the thread has from now on, over what it had under the same names."""

    metadata: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How many threads of one tenant, of one user and of one graph; 0 is any number."""

    tenant: int = 0
    user: int = 0
    graph: int = 0


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """Not more runs than these caps say wait after this change. Otherwise AtCapacity. One that is claimed waits for nothing."""

    caps: Caps


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRoom:
    """The owner and the graph of a thread that begins to run have some of their budgets left. Otherwise BudgetSpent."""

    limits: SpendingLimits
    prices: Mapping[str, Price]


@dataclass(frozen=True, slots=True)
class Imported:
    """The change is the log of a thread that was exported: what its models used was counted before."""


# The hook of a run is written with the change that starts the run.
Guard: TypeAlias = (
    Fence
    | Once
    | Admits
    | Reservation
    | Claim
    | Overdue
    | Unseen
    | Labels
    | Relabels
    | QueueRoom
    | SpendingRoom
    | Imported
    | RunHook
)
