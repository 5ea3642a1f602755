"""Usage: counts of threads by column, and the disk space of their tables."""

from collections.abc import Mapping
from datetime import UTC, datetime

from clew.domain.retention import Selection, Usage
from clew.domain.thread import Owner
from clew.stores.codec import maybe_moment, micros
from clew.stores.sql.cleanup import condition
from clew.stores.sql.ownership import owned_threads
from clew.stores.sql.work import Statement, Tables, Value, Work, reads

# What is less than nothing, or beyond the calendar, is damage, and nothing to count with.
MOST = micros(datetime(9999, 1, 1, tzinfo=UTC))


class UsageRows(Tables):
    """Counts. Logs are dense, so the last number of each is how many events there are."""

    @reads
    def by_status(self, owner: Owner | None = None) -> Work[Mapping[str, int]]:
        mine, args = owned_threads(owner, 1)
        return (yield from _by("status", mine, args))

    @reads
    def usage(self, wanted: Selection) -> Work[Usage]:
        mine, args = owned_threads(wanted.owner, 1)
        rows = yield Statement(
            f"SELECT count(*), COALESCE(sum({_sound('last_seq')}), 0), min({_sound('created_at')})"
            f" FROM threads WHERE deleted_at IS NULL{mine}",
            args,
        )
        threads, events, oldest = rows[0]
        where, due_args = condition(wanted, 1)
        due = yield Statement(f"SELECT count(*) FROM threads WHERE {where}", due_args)
        deleted = yield Statement(f"SELECT count(*) FROM threads WHERE deleted_at IS NOT NULL{mine}", args)
        return Usage(
            threads=int(threads),
            by_status=(yield from _by("status", mine, args)),
            by_graph=(yield from _by("graph", mine, args)),
            events=int(events),
            oldest=maybe_moment(oldest),
            due=int(due[0][0]),
            deleted=int(deleted[0][0]),
        )


def _sound(column: str) -> str:
    return f"CASE WHEN {column} BETWEEN 0 AND {MOST} THEN {column} END"


def _by(column: str, mine: str, args: tuple[Value, ...]) -> Work[Mapping[str, int]]:
    rows = yield Statement(
        f"SELECT {column}, count(*) FROM threads WHERE deleted_at IS NULL{mine} GROUP BY {column} ORDER BY {column}",
        args,
    )
    return {str(name): int(count) for name, count in rows}
