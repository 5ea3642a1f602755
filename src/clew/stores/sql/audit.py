"""Model calls: what was sent, bounded by age and by rows a thread."""

from datetime import datetime

from clew.domain.records import ModelCall
from clew.stores.codec import dump, load, micros, moment
from clew.stores.sql.existence import hold
from clew.stores.sql.work import Row, Statement, Tables, Work, placeholders, reads, writes

COLUMNS = "id, thread_id, turn_ref, status, model, rendered_context, usage, latency_ms, summary_version, evictions, created_at"


class AuditRows(Tables):
    """The Audit port on a SQL database."""

    @writes
    def add(self, call: ModelCall, *, keep: int | None = None) -> Work[None]:
        yield from hold(call.thread_id)
        yield Statement(
            f"INSERT INTO model_calls ({COLUMNS}) VALUES ({placeholders(1, 11)})",
            (
                call.id,
                call.thread_id,
                call.turn_ref,
                call.status,
                call.model,
                dump(call.rendered_context),
                dump(call.usage),
                call.latency_ms,
                call.summary_version,
                dump(call.evictions),
                micros(call.created_at),
            ),
        )
        if keep is not None:
            yield Statement(
                "DELETE FROM model_calls WHERE thread_id = $1 AND id NOT IN"
                " (SELECT id FROM model_calls WHERE thread_id = $1 ORDER BY turn_ref DESC, id DESC LIMIT $2)",
                (call.thread_id, keep),
            )

    @reads
    def find(self, thread_id: str, *, limit: int = 100) -> Work[list[ModelCall]]:
        rows = yield Statement(
            f"SELECT {COLUMNS} FROM model_calls WHERE thread_id = $1"
            " ORDER BY turn_ref DESC, id DESC LIMIT $2",
            (thread_id, limit),
        )
        return [_call(row) for row in rows]

    @writes
    def trim(self, *, older_than: datetime, limit: int = 1000) -> Work[int]:
        rows = yield Statement(
            "DELETE FROM model_calls WHERE id IN"
            " (SELECT id FROM model_calls WHERE created_at < $1 ORDER BY created_at LIMIT $2) RETURNING 1",
            (micros(older_than), limit),
        )
        return len(rows)


def _call(row: Row) -> ModelCall:
    return ModelCall(
        id=row[0],
        thread_id=row[1],
        turn_ref=row[2],
        status=row[3],
        model=row[4],
        rendered_context=load(row[5]),
        usage=load(row[6]),
        latency_ms=row[7],
        summary_version=row[8],
        evictions=load(row[9]),
        created_at=moment(row[10]),
    )
