"""Guards in SQL: the statements of each guard, around the write of the thread's row."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from clew.domain.lifecycle import Change
from clew.domain.records import RunHook
from clew.domain.thread import Status
from clew.ports.guards import (
    Admits,
    Claim,
    Fence,
    Guard,
    Imported,
    Labels,
    Once,
    Overdue,
    QueueRoom,
    Relabels,
    Reservation,
    SpendingRoom,
    Unseen,
)
from clew.stores.sql import inbox, tool_calls
from clew.stores.sql.caps import require_room
from clew.stores.sql.labels import label, relabel
from clew.stores.sql.reservations import reserve
from clew.stores.sql.run_hooks import add_hook
from clew.stores.sql.spending import require_budget
from clew.stores.sql.thread_writes import require_unseen
from clew.stores.sql.work import Work

# Every commit locks rows in this order, however its guards were given: two commits never wait for each other.
_ORDER = {
    kind: n
    for n, kind in enumerate(
        (
            Fence,
            Claim,
            Once,
            Admits,
            Reservation,
            Overdue,
            Unseen,
            Labels,
            Relabels,
            RunHook,
            SpendingRoom,
            QueueRoom,
            Imported,
        )
    )
}


@dataclass(slots=True)
class GuardWork:
    """What the guards of one commit come to."""

    fence: int | None = None
    claim: Claim | None = None
    counts: bool = True  # whether the tokens that it names were used now
    is_access: bool = True  # whether the thread expires later because of this change
    before: list[Work[None]] = field(default_factory=list)
    after: list[Work[None]] = field(default_factory=list)

    @property
    def is_only_fenced(self) -> bool:
        return self.is_access and not (self.before or self.after)


def work_of(change: Change, guards: Iterable[Guard]) -> GuardWork:
    work = GuardWork()
    thread, now = change.thread, change.events[-1].at
    for guard in sorted(guards, key=_rank):
        match guard:
            case Fence(number):
                work.fence = number
            case Claim():
                work.claim = guard
            case Once():
                work.before.append(inbox.use_key(guard, thread, now))
            case Admits(incoming):
                work.before.append(inbox.mark_done(incoming, thread.id, now))
            case Reservation():
                work.before.append(reserve(thread.id, guard))
            case Overdue(call_id):
                work.after.append(tool_calls.require_due(thread.id, call_id, now))
            case Unseen(since):
                work.is_access = False
                work.after.append(require_unseen(thread.id, since))
            case Labels(metadata):
                work.after.append(label(thread.id, metadata))
            case Relabels(metadata):
                work.after.append(relabel(thread.id, metadata))
            case QueueRoom(caps):
                # After the locks of the row and of the turn.
                if work.claim is None and thread.status is Status.RUNNING:
                    work.after.append(require_room(thread.owner, thread.graph, caps))
            case SpendingRoom(limits=limits):
                if thread.status is Status.RUNNING:
                    days = limits.period.begin(now), limits.period.end(now)
                    work.after.append(require_budget(thread, guard, *days))
            case Imported():
                work.counts = False
            case RunHook():
                work.after.append(add_hook(guard))
    return work


def _rank(guard: Guard) -> tuple[int, str]:
    return _ORDER[type(guard)], guard.kind if isinstance(guard, Reservation) else ""
