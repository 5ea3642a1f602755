"""What is to be done when runs are over."""

from datetime import timedelta
from typing import Final

from clew.domain.records import RunHook
from clew.stores.codec import MICROSECOND, legible, micros, moment
from clew.stores.sql.work import SKIP_LOCKED, Row, Statement, Tables, Work, glances, writes

# While its thread runs there is nothing to do for it.
_DUE: Final = (
    "FROM errands AS e WHERE e.due_at <= clew_now() AND NOT EXISTS"
    " (SELECT 1 FROM threads AS t WHERE t.id = e.thread_id AND t.status = 'running' AND t.deleted_at IS NULL)"
)


class RunHookRows(Tables):
    """The Errands port on a SQL database. Whoever claims one moves it into the future: that is the lease."""

    @writes
    def add(self, errand: RunHook, *, wait: timedelta) -> Work[None]:
        yield Statement(
            "INSERT INTO errands (run_id, thread_id, webhook, is_temporary, begins_at, due_at, attempts)"
            " VALUES ($1, $2, $3, $4, $5, clew_now() + $6, 0) ON CONFLICT (run_id) DO NOTHING",
            (
                errand.run_id,
                errand.thread_id,
                errand.webhook,
                int(errand.is_temporary),
                micros(errand.begins_at),
                wait // MICROSECOND,
            ),
        )

    @glances
    def are_due(self) -> Work[bool]:
        return bool((yield Statement(f"SELECT 1 {_DUE} LIMIT 1")))

    @writes
    def claim(self, *, lease: timedelta, limit: int) -> Work[list[RunHook]]:
        rows = yield Statement(
            "UPDATE errands SET due_at = clew_now() + $1 WHERE run_id IN"
            f" (SELECT e.run_id {_DUE} ORDER BY e.due_at LIMIT $2 {SKIP_LOCKED})"
            " RETURNING run_id, thread_id, webhook, is_temporary, begins_at, attempts",
            (lease // MICROSECOND, limit),
        )
        return legible(rows, _errand, "errands")

    @writes
    def put_off(self, errand: RunHook, *, wait: timedelta) -> Work[None]:
        yield Statement(
            "UPDATE errands SET webhook = $2, attempts = $3, due_at = clew_now() + $4 WHERE run_id = $1",
            (errand.run_id, errand.webhook, errand.attempts, wait // MICROSECOND),
        )

    @writes
    def done(self, run_id: str) -> Work[None]:
        yield Statement("DELETE FROM errands WHERE run_id = $1", (run_id,))


def _errand(row: Row) -> RunHook:
    run_id, thread_id, webhook, is_temporary, begins_at, attempts = row
    return RunHook(
        run_id=run_id,
        thread_id=thread_id,
        webhook=webhook,
        is_temporary=bool(is_temporary),
        begins_at=moment(begins_at),
        attempts=attempts,
    )
