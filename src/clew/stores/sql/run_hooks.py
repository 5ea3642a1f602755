"""Run hooks: what happens when runs end."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from clew.domain.records import RunHook
from clew.stores.codec import MICROSECOND, legible
from clew.stores.sql.work import SKIP_LOCKED, Row, Statement, Tables, Texts, Work, among, glances, writes

# While its thread runs there is nothing to do for a hook.
_DUE: Final = (
    "FROM run_hooks AS h WHERE h.due_at <= clew_now() AND NOT EXISTS"
    " (SELECT 1 FROM threads AS t WHERE t.id = h.thread_id AND t.status = 'running' AND t.deleted_at IS NULL)"
)


class RunHookRows(Tables):
    """The RunHookStore port on a SQL database. A claim moves `due_at` into the future: that is the lease."""

    @glances
    def are_due(self) -> Work[bool]:
        return bool((yield Statement(f"SELECT 1 {_DUE} LIMIT 1")))

    @writes
    def claim(self, *, lease: timedelta, limit: int, alive: Collection[RunHook] = ()) -> Work[list[RunHook]]:
        rows = yield Statement(
            "UPDATE run_hooks SET due_at = clew_now() + $2 WHERE run_id IN"
            f" (SELECT h.run_id {_DUE} AND NOT ({among('h.run_id', 1)}) ORDER BY h.due_at LIMIT $3 {SKIP_LOCKED})"
            " RETURNING run_id, thread_id, webhook, is_temporary, attempts",
            (Texts(hook.run_id for hook in alive), lease // MICROSECOND, limit),
        )
        return legible(rows, _hook, "run_hooks")

    @writes
    def heartbeat(self, hook: RunHook, *, lease: timedelta) -> Work[None]:
        yield Statement(
            "UPDATE run_hooks SET due_at = clew_now() + $2 WHERE run_id = $1",
            (hook.run_id, lease // MICROSECOND),
        )

    @writes
    def snooze(self, hook: RunHook, *, wait: timedelta) -> Work[None]:
        yield Statement(
            "UPDATE run_hooks SET webhook = $2, attempts = $3, due_at = clew_now() + $4 WHERE run_id = $1",
            (hook.run_id, hook.webhook, hook.attempts, wait // MICROSECOND),
        )

    @writes
    def discard(self, hook: RunHook) -> Work[None]:
        yield Statement("DELETE FROM run_hooks WHERE run_id = $1", (hook.run_id,))


def add_hook(hook: RunHook) -> Work[None]:
    """Write the hook of a run that is started or queued in this transaction. One that is there only waits anew."""
    yield Statement(
        "INSERT INTO run_hooks (run_id, thread_id, webhook, is_temporary, due_at, attempts)"
        " VALUES ($1, $2, $3, $4, clew_now() + $5, 0)"
        " ON CONFLICT (run_id) DO UPDATE SET due_at = excluded.due_at",
        (hook.run_id, hook.thread_id, hook.webhook, int(hook.is_temporary), hook.wait // MICROSECOND),
    )


def _hook(row: Row) -> RunHook:
    run_id, thread_id, webhook, is_temporary, attempts = row
    return RunHook(
        run_id=run_id,
        thread_id=thread_id,
        webhook=webhook,
        is_temporary=bool(is_temporary),
        attempts=attempts,
    )
