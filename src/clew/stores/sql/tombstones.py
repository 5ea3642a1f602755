"""Tombstones of deleted threads, carried from one database to another that holds their memory."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from clew.ports.retention import DeletedThread
from clew.stores.codec import MICROSECOND, micros, moment
from clew.stores.sql.purge import FORGET_BURIED, erase_from
from clew.stores.sql.work import Many, Statement, Tables, Texts, Work, reads, writes


class TombstoneRows(Tables):
    """The Tombstones port on a SQL database."""

    @reads
    def purged(self, *, after: tuple[datetime, str], limit: int) -> Work[list[DeletedThread]]:
        rows = yield Statement(
            "SELECT thread_id, tenant, purged_at FROM tombstones WHERE purged_at IS NOT NULL"
            " AND (purged_at, thread_id) > ($1, $2) ORDER BY purged_at, thread_id LIMIT $3",
            (micros(after[0]), after[1], limit),
        )
        return [DeletedThread(id=row[0], tenant=row[1], purged_at=moment(row[2])) for row in rows]

    @writes
    def forget_threads(self, threads: Sequence[DeletedThread]) -> Work[None]:
        # The tombstone comes first: a run that goes on after the deletion can then append nothing here either.
        yield Many(
            "INSERT INTO tombstones (thread_id, tenant, deleted_at, purged_at) VALUES ($1, $2, $3, clew_now())"
            " ON CONFLICT (thread_id) DO NOTHING",
            [(one.id, one.tenant, micros(one.purged_at)) for one in threads],
        )
        yield from erase_from("histories", Texts([one.id for one in threads]))

    @writes
    def forget_old(self, *, older: timedelta, limit: int) -> Work[int]:
        return len((yield Statement(FORGET_BURIED, (older // MICROSECOND, limit))))
