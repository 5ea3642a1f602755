"""Run hooks: what happens when runs end."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from clew.domain.errors import NotFound
from clew.domain.records import FailedWebhook, RunHook
from clew.domain.thread import Owner
from clew.ports.run_hooks import PER_TENANT
from clew.stores.codec import MICROSECOND, legible, moment
from clew.stores.sql.ownership import owned_threads
from clew.stores.sql.work import (
    SKIP_LOCKED,
    Database,
    Row,
    Statement,
    Tables,
    Texts,
    Value,
    Work,
    among,
    glances,
    reads,
    writes,
)

# When a webhook is due that was given up.
_NEVER: Final = 2**62
# While its thread runs there is nothing to do for a hook.
_DUE: Final = (
    "FROM run_hooks AS h WHERE h.due_at <= clew_now() AND NOT EXISTS"
    " (SELECT 1 FROM threads AS t WHERE t.id = h.thread_id AND t.status = 'running' AND t.deleted_at IS NULL)"
)
_TENANT: Final = "(SELECT tenant FROM threads WHERE threads.id = {}.thread_id)"
# Of the hooks that are due, those whose turn it is: tenants in turn, and not too many of one with those that are alive.
_IN_TURN: Final = (
    "SELECT run_id FROM (SELECT run_id, due_at, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY due_at)"
    " + (SELECT COUNT(*) FROM run_hooks AS b"
    f" WHERE {among('b.run_id', 1)} AND COALESCE({_TENANT.format('b')}, '') = due.tenant) AS turn"
    f" FROM (SELECT h.run_id, h.due_at, COALESCE({_TENANT.format('h')}, '') AS tenant {_DUE}"
    f" AND NOT ({among('h.run_id', 1)})) AS due) AS numbered WHERE turn <= $4 ORDER BY turn, due_at LIMIT $3"
)


class RunHookRows(Tables):
    """The RunHookStore port on a SQL database. A claim moves `due_at` into the future: that is the lease."""

    def __init__(self, db: Database, process: str | None = None) -> None:
        """`process` is who claims: at its death its leases end."""
        super().__init__(db)
        self._process = process

    @glances
    def are_due(self) -> Work[bool]:
        return bool((yield Statement(f"SELECT 1 {_DUE} LIMIT 1")))

    @writes
    def claim(self, *, lease: timedelta, limit: int, alive: Collection[RunHook] = ()) -> Work[list[RunHook]]:
        rows = yield Statement(
            "UPDATE run_hooks SET due_at = clew_now() + $2, claimed_by = $5 WHERE run_id IN"
            f" (SELECT run_id FROM run_hooks WHERE due_at <= clew_now() AND run_id IN ({_IN_TURN}) {SKIP_LOCKED})"
            " RETURNING run_id, thread_id, webhook, is_temporary, attempts",
            (Texts(hook.run_id for hook in alive), lease // MICROSECOND, limit, PER_TENANT, self._process),
        )
        return legible(rows, _hook, "run_hooks")

    @writes
    def heartbeat(self, hook: RunHook, *, lease: timedelta) -> Work[None]:
        yield Statement(
            "UPDATE run_hooks SET due_at = clew_now() + $2 WHERE run_id = $1 AND failed_at IS NULL",
            (hook.run_id, lease // MICROSECOND),
        )

    @writes
    def snooze(self, hook: RunHook, *, wait: timedelta) -> Work[None]:
        yield Statement(
            "UPDATE run_hooks SET webhook = $2, attempts = $3, due_at = clew_now() + $4, claimed_by = NULL WHERE run_id = $1",
            (hook.run_id, hook.webhook, hook.attempts, wait // MICROSECOND),
        )

    @writes
    def discard(self, hook: RunHook) -> Work[None]:
        yield Statement("DELETE FROM run_hooks WHERE run_id = $1", (hook.run_id,))

    @writes
    def give_up(self, hook: RunHook, *, reason: str) -> Work[None]:
        yield Statement(
            "UPDATE run_hooks SET attempts = $2, reason = $3, failed_at = clew_now(), due_at = $4, claimed_by = NULL"
            " WHERE run_id = $1",
            (hook.run_id, hook.attempts, reason, _NEVER),
        )

    @reads
    def failed(self, owner: Owner | None = None, *, limit: int = 100) -> Work[list[FailedWebhook]]:
        where, args = owned_threads(owner, 2)
        rows = yield Statement(
            "SELECT run_id, thread_id, tenant, user_id, webhook, attempts, reason, failed_at FROM run_hooks"
            " JOIN threads ON threads.id = run_hooks.thread_id"
            f" WHERE failed_at IS NOT NULL AND deleted_at IS NULL{where} ORDER BY failed_at DESC, run_id LIMIT $1",
            (limit, *args),
        )
        return legible(rows, _failed, "run_hooks")

    @writes
    def call_again(self, run_id: str, owner: Owner | None = None) -> Work[None]:
        where, args = _failed_of(owner)
        rows = yield Statement(
            f"UPDATE run_hooks SET attempts = 0, failed_at = NULL, due_at = clew_now(){where}",
            (run_id, *args),
        )
        _require(rows, run_id)

    @writes
    def dismiss(self, run_id: str, owner: Owner | None = None) -> Work[None]:
        where, args = _failed_of(owner)
        rows = yield Statement(f"DELETE FROM run_hooks{where}", (run_id, *args))
        _require(rows, run_id)


def add_hook(hook: RunHook) -> Work[None]:
    """Write the hook of a run that is started or queued in this transaction. One that is there only waits anew."""
    yield Statement(
        "INSERT INTO run_hooks (run_id, thread_id, webhook, is_temporary, due_at, attempts)"
        " VALUES ($1, $2, $3, $4, clew_now() + $5, 0)"
        " ON CONFLICT (run_id) DO UPDATE SET due_at = excluded.due_at, failed_at = NULL",
        (hook.run_id, hook.thread_id, hook.webhook, int(hook.is_temporary), hook.wait // MICROSECOND),
    )


def _failed_of(owner: Owner | None) -> tuple[str, tuple[Value, ...]]:
    """The failed webhook of the run $1, if it is the owner's."""
    mine, args = owned_threads(owner, 2)
    theirs = f"SELECT id FROM threads WHERE deleted_at IS NULL{mine}"
    where = f" WHERE run_id = $1 AND failed_at IS NOT NULL AND thread_id IN ({theirs}) RETURNING run_id"
    return where, args


def _require(rows: Sequence[Row], run_id: str) -> None:
    if not rows:
        raise NotFound(f"no webhook of the run {run_id!r} was given up")


def _failed(row: Row) -> FailedWebhook:
    run_id, thread_id, tenant, user_id, webhook, attempts, reason, failed_at = row
    return FailedWebhook(
        run_id=run_id,
        thread_id=thread_id,
        owner=Owner(tenant=tenant, user_id=user_id),
        url=webhook,
        attempts=attempts,
        reason=reason,
        failed_at=moment(failed_at),
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
