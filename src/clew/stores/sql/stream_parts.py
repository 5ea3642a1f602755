"""Stream parts of runs, kept for a while: for clients that were cut off or follow from another process."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from clew.domain.records import StreamPart
from clew.stores.codec import MICROSECOND, micros
from clew.stores.sql.existence import hold
from clew.stores.sql.work import Many, Statement, Tables, Work, glances, reads, writes

# A reader that is behind gets so many at a time.
PAGE = 500


class StreamPartRows(Tables):
    """The StreamPartStore port on a SQL database."""

    @writes
    def add(self, thread_id: str, run_id: str, some: Sequence[StreamPart], *, now: datetime) -> Work[None]:
        yield from hold(thread_id)
        yield Many(
            "INSERT INTO chunks (thread_id, run_id, number, name, data, at) VALUES ($1, $2, $3, $4, $5, $6)"
            " ON CONFLICT DO NOTHING",
            [(thread_id, run_id, one.number, one.name, one.data, micros(now)) for one in some],
        )

    @reads
    def after(self, thread_id: str, run_id: str, number: int) -> Work[list[StreamPart]]:
        rows = yield Statement(
            "SELECT number, name, data FROM chunks WHERE thread_id = $1 AND run_id = $2 AND number > $3"
            " ORDER BY number LIMIT $4",
            (thread_id, run_id, number, PAGE),
        )
        return [StreamPart(number, name, bytes(data)) for number, name, data in rows]

    @reads
    def of_thread(self, thread_id: str, number: int) -> Work[list[StreamPart]]:
        rows = yield Statement(
            "SELECT number, name, data, run_id FROM chunks WHERE thread_id = $1 AND number > $2"
            " ORDER BY number LIMIT $3",
            (thread_id, number, PAGE),
        )
        return [StreamPart(number, name, bytes(data), run_id) for number, name, data, run_id in rows]

    @reads
    def newest(self, thread_id: str, up_to: int) -> Work[StreamPart | None]:
        rows = yield Statement(
            "SELECT number, name, data, run_id FROM chunks WHERE thread_id = $1 AND number <= $2"
            " ORDER BY number DESC LIMIT 1",
            (thread_id, up_to),
        )
        return next(
            (StreamPart(number, name, bytes(data), run_id) for number, name, data, run_id in rows), None
        )

    @reads
    def first(self, thread_id: str, run_id: str | None = None) -> Work[int | None]:
        of_run = "" if run_id is None else " AND run_id = $2"
        ((number,),) = yield Statement(
            f"SELECT MIN(number) FROM chunks WHERE thread_id = $1{of_run}",
            (thread_id,) if run_id is None else (thread_id, run_id),
        )
        return None if number is None else int(number)

    @writes
    def announce(self, process: str, threads: Sequence[str], *, until: timedelta) -> Work[None]:
        yield Statement("DELETE FROM stream_readers WHERE until_at < clew_now()")
        yield Many(
            "INSERT INTO stream_readers (thread_id, process, until_at) VALUES ($1, $2, clew_now() + $3)"
            " ON CONFLICT (thread_id, process) DO UPDATE SET until_at = excluded.until_at",
            [(one, process, until // MICROSECOND) for one in sorted(threads)],
        )

    @glances
    def read_elsewhere(self, process: str) -> Work[list[str]]:
        rows = yield Statement(
            "SELECT DISTINCT thread_id FROM stream_readers WHERE process <> $1 AND until_at > (SELECT clew_now())",
            (process,),
        )
        return [thread_id for (thread_id,) in rows]

    @writes
    def forget(self, *, older_than: datetime, limit: int = 1000) -> Work[int]:
        rows = yield Statement(
            "DELETE FROM chunks WHERE (thread_id, number) IN"
            " (SELECT thread_id, number FROM chunks WHERE at < $1 LIMIT $2) RETURNING 1",
            (micros(older_than), limit),
        )
        return len(rows)
