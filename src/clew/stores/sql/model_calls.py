"""Model calls: what was sent, bounded by age and by rows a thread, and emptied where a message was redacted."""

from datetime import datetime

from clew.domain.records import ModelCall
from clew.domain.thread import Json
from clew.stores.codec import dump, legible, load, micros, moment
from clew.stores.sql.existence import hold_still
from clew.stores.sql.work import Row, Statement, Tables, Work, placeholders, reads, writes

COLUMNS = "id, thread_id, turn_ref, status, model, rendered_context, usage, latency_ms, summary_version, evictions, created_at"
EMPTY = dump(None)
_CONTEXT, _ERROR = "clew_context", "clew_error"
# The types are those of the index by id.
EMPTY_SINCE = (
    "UPDATE model_calls SET rendered_context = $3 WHERE thread_id = $1 AND turn_ref >="
    " (SELECT min(seq) FROM events WHERE thread_id = $1 AND round ="
    " (SELECT round FROM events WHERE id = $2 AND thread_id = $1 AND type IN ('user_msg', 'assistant_msg', 'log')))"
)


class ModelCallRows(Tables):
    """The ModelCalls port on a SQL database."""

    @writes
    def add(self, call: ModelCall, *, keep: int | None = None) -> Work[None]:
        # A stopped run records its last call late: perhaps after the message it was sent was redacted.
        yield from hold_still(call.thread_id)
        rows = yield Statement(
            "SELECT 1 FROM events WHERE thread_id = $1 AND seq > $2 AND type = 'redacted' LIMIT 1",
            (call.thread_id, call.turn_ref),
        )
        yield Statement(
            f"INSERT INTO model_calls ({COLUMNS}) VALUES ({placeholders(1, 11)})",
            (
                call.id,
                call.thread_id,
                call.turn_ref,
                call.status,
                call.model,
                EMPTY if rows else dump(_kept(call)),
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
        return legible(rows, _call, "model_calls")

    @writes
    def trim(self, *, older_than: datetime, limit: int = 1000) -> Work[int]:
        rows = yield Statement(
            "DELETE FROM model_calls WHERE id IN"
            " (SELECT id FROM model_calls WHERE created_at < $1 ORDER BY created_at LIMIT $2) RETURNING 1",
            (micros(older_than), limit),
        )
        return len(rows)


def empty(thread_id: str, message_id: str) -> Work[None]:
    """Empty the contexts that may hold this message or what came with it: of its round, and of all later ones.

    Of the whole round, since a graph may send a model what the log records a moment later.
    """
    yield Statement(EMPTY_SINCE, (thread_id, message_id, EMPTY))


def _kept(call: ModelCall) -> Json:
    """What was sent; of a failed call with the answer, which may quote it and so is emptied together with it."""
    return {_CONTEXT: call.rendered_context, _ERROR: call.error} if call.error else call.rendered_context


def _call(row: Row) -> ModelCall:
    context, error = load(row[5]), ""
    if isinstance(context, dict) and context.keys() == {_CONTEXT, _ERROR}:
        context, error = context[_CONTEXT], context[_ERROR]
    return ModelCall(
        id=row[0],
        thread_id=row[1],
        turn_ref=row[2],
        status=row[3],
        model=row[4],
        rendered_context=context,
        usage=load(row[6]),
        latency_ms=row[7],
        summary_version=row[8],
        evictions=load(row[9]),
        created_at=moment(row[10]),
        error=error,
    )
