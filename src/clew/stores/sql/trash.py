"""Trash: soft-deleted threads, hidden from clients, which can be restored for a while."""

from collections.abc import Sequence
from datetime import datetime

from clew.domain.errors import NotFound
from clew.domain.lifecycle import RESERVED
from clew.domain.retention import GRACE, Binned
from clew.domain.thread import ACTIVE, Owner
from clew.ports.guards import Reservation
from clew.stores.codec import bounded_moment, load, micros
from clew.stores.sql.ownership import owned_threads
from clew.stores.sql.reservations import reserve
from clew.stores.sql.work import Statement, Tables, Work, reads, writes


class TrashRows(Tables):
    """The Trash port on a SQL database."""

    @writes
    def put(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> Work[None]:
        mine, args = owned_threads(owner, 3, is_one=True)
        # A new fence refuses the writes of its current runner; once restored, the thread continues where it stood.
        rows = yield Statement(
            "UPDATE threads SET deleted_at = $2, fence = fence + 1, lease_owner = NULL, lease_until = NULL"
            f" WHERE id = $1 AND deleted_at IS NULL{mine} RETURNING 1",
            (thread_id, micros(now), *args),
        )
        if not rows:
            raise NotFound(f"no thread {thread_id!r}")

    @writes
    def restore(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> Work[None]:
        mine, args = owned_threads(owner, 4, is_one=True)
        rows = yield Statement(
            "UPDATE threads SET deleted_at = NULL, last_accessed_at = $2, expires_at = CAST($2 AS BIGINT) + ttl"
            # The row may be there for longer, until the trash is emptied.
            f" WHERE id = $1 AND deleted_at > $3{mine} RETURNING status, settings",
            (thread_id, micros(now), micros(now - GRACE), *args),
        )
        if not rows:
            raise NotFound(f"no deleted thread {thread_id!r}")
        status, settings = rows[0]
        if status in ACTIVE:
            # Another thread may have reserved the same key meanwhile.
            reserved = load(settings).get(RESERVED, {})
            for kind, key in sorted(reserved.items()):
                yield from reserve(thread_id, Reservation(kind=kind, key=key))

    @reads
    def find(self, owner: Owner | None = None, *, limit: int = 100) -> Work[Sequence[Binned]]:
        mine, args = owned_threads(owner, 2)
        rows = yield Statement(
            "SELECT id, tenant, user_id, graph, name, deleted_at FROM threads"
            f" WHERE deleted_at IS NOT NULL{mine} ORDER BY deleted_at DESC, id LIMIT $1",
            (limit, *args),
        )
        return [
            Binned(
                id=row[0],
                owner=Owner(tenant=str(row[1]), user_id=str(row[2])),
                graph=str(row[3]),
                name=str(row[4]),
                deleted_at=bounded_moment(row[5]),
            )
            for row in rows
        ]
