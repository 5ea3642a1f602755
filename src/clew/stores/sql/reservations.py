"""Reservations: one active thread per key, and a limit on the active threads of one kind."""

from clew.domain.errors import AlreadyReserved, AtCapacity
from clew.domain.thread import ACTIVE
from clew.ports.guards import Reservation
from clew.stores.sql.work import Statement, Work

_ACTIVE = ", ".join(f"'{status}'" for status in ACTIVE)
# A thread that has ended or is deleted holds nothing: no row has to be written for that.
_HELD = (
    "SELECT reservations.key FROM reservations JOIN threads ON threads.id = reservations.thread_id"
    f" WHERE reservations.kind = $2 AND threads.status IN ({_ACTIVE}) AND threads.deleted_at IS NULL"
    " AND threads.id <> $1"
)

# The row that serializes reservations of one kind.
_LOCK = (
    "INSERT INTO duties (name, owner, lease_until) VALUES ($1, '', 0)"
    " ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner"
)


def reserve(thread_id: str, reservation: Reservation) -> Work[None]:
    """Raises AlreadyReserved or AtCapacity. Part of the transaction that makes the thread active."""
    # Starts wait for each other here. The next statement sees what the one before has committed.
    yield Statement(_LOCK, (f"reservations:{reservation.kind}",))
    held = {key for (key,) in (yield Statement(_HELD, (thread_id, reservation.kind)))}
    if reservation.key in held:
        raise AlreadyReserved(f"another workflow is active in {reservation.key}")
    if reservation.limit is not None and len(held) >= reservation.limit:
        raise AtCapacity(
            f"{len(held)} workflows with a {reservation.kind} are active, and no more may be at once"
        )
    yield Statement(
        "INSERT INTO reservations (kind, key, thread_id) VALUES ($1, $2, $3)"
        " ON CONFLICT (kind, key) DO UPDATE SET thread_id = EXCLUDED.thread_id",
        (reservation.kind, reservation.key, thread_id),
    )
