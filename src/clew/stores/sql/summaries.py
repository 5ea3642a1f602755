"""Summaries of the beginning of a log."""

from clew.domain.events import Event
from clew.domain.records import Summary
from clew.stores.codec import dump, load, micros, moment
from clew.stores.sql.existence import hold
from clew.stores.sql.threads import events
from clew.stores.sql.work import Statement, Tables, Work, reads, writes


class SummaryRows(Tables):
    """The Summaries port on a SQL database."""

    @writes
    def add(self, thread_id: str, summary: Summary) -> Work[None]:
        yield from hold(thread_id)
        yield Statement(
            "INSERT INTO summaries (thread_id, from_seq, to_seq, version, content, created_at)"
            " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (thread_id, to_seq, version) DO UPDATE"
            " SET from_seq = excluded.from_seq, content = excluded.content, created_at = excluded.created_at",
            (
                thread_id,
                summary.from_seq,
                summary.to_seq,
                summary.version,
                dump(summary.content),
                micros(summary.created_at),
            ),
        )

    @reads
    def load_since(self, thread_id: str) -> Work[tuple[Summary | None, list[Event]]]:
        rows = yield Statement(
            "SELECT from_seq, to_seq, content, version, created_at FROM summaries WHERE thread_id = $1"
            " ORDER BY to_seq DESC, created_at DESC LIMIT 1",
            (thread_id,),
        )
        if not rows:
            return None, (yield from events(thread_id))
        from_seq, to_seq, content, version, created_at = rows[0]
        summary = Summary(
            from_seq=from_seq,
            to_seq=to_seq,
            content=load(content),
            version=version,
            created_at=moment(created_at),
        )
        return summary, (yield from events(thread_id, after=to_seq))

    @writes
    def drop(self, thread_id: str) -> Work[int]:
        rows = yield Statement("DELETE FROM summaries WHERE thread_id = $1 RETURNING 1", (thread_id,))
        return len(rows)
