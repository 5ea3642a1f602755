"""Inbox: deliveries of channels, and requests with an idempotency key, each accepted once."""

from dataclasses import replace
from datetime import datetime

from clew.domain.errors import AlreadyDone, Duplicate
from clew.domain.records import Incoming, RunHook
from clew.domain.thread import Json, Thread
from clew.ports.guards import Once, QueueRoom
from clew.stores.codec import dump, legible, load, maybe_moment, micros
from clew.stores.sql.caps import require_room_behind
from clew.stores.sql.conversations import wake
from clew.stores.sql.existence import hold, hold_unless_new
from clew.stores.sql.run_hooks import add_hook
from clew.stores.sql.work import Row, Statement, Tables, Work, glances, reads, writes

FORGET = tuple(
    f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {age} LIMIT $2) RETURNING 1"
    for table, key, age in (
        ("idempotency", "tenant, key", "created_at < $1"),
        ("inbox", "source, source_id", "status = 'done' AND done_at < $1"),
    )
)


class InboxRows(Tables):
    """The Inbox port on a SQL database."""

    @writes
    def admit(
        self,
        incoming: Incoming,
        *,
        now: datetime,
        is_opened: bool = False,
        hook: RunHook | None = None,
        room: QueueRoom | None = None,
    ) -> Work[bool]:
        if incoming.thread_id is not None and is_opened:
            yield from hold(incoming.thread_id)
        elif incoming.thread_id is not None and incoming.conversation is None:
            yield from hold_unless_new(incoming.thread_id)
        rows = yield Statement(
            "INSERT INTO inbox (source, source_id, fingerprint, thread_id, payload, status, admitted_at)"
            " VALUES ($1, $2, $3, $4, $5, 'queued', $6) ON CONFLICT (source, source_id) DO NOTHING RETURNING 1",
            (
                incoming.source,
                incoming.source_id,
                incoming.fingerprint,
                incoming.thread_id,
                dump(incoming.payload),
                micros(now),
            ),
        )
        if not rows:
            yield from _same_content(incoming)
            return False
        if hook is not None:
            yield from add_hook(hook)
        if room is not None and incoming.thread_id is not None:
            yield from require_room_behind(incoming.thread_id, room.caps)
        if incoming.conversation is not None:
            thread_id, number = yield from wake(incoming.source, incoming.conversation, incoming.thread_id)
            yield Statement(
                "UPDATE inbox SET conversation = $3, thread_id = $4, number = $5 WHERE source = $1 AND source_id = $2",
                (incoming.source, incoming.source_id, incoming.conversation, thread_id, number),
            )
        return True

    @writes
    def discard(self, incoming: Incoming, *, now: datetime) -> Work[None]:
        yield Statement(
            "UPDATE inbox SET status = 'done', payload = 'null', done_at = $3 WHERE source = $1 AND source_id = $2",
            (incoming.source, incoming.source_id, micros(now)),
        )

    @writes
    def withdraw(self, incoming: Incoming, *, now: datetime) -> Work[bool]:
        rows = yield Statement(
            "UPDATE inbox SET status = 'done', done_at = $3"
            " WHERE source = $1 AND source_id = $2 AND status = 'queued' RETURNING 1",
            (incoming.source, incoming.source_id, micros(now)),
        )
        return bool(rows)

    @reads
    def queued(self, *, limit: int = 100) -> Work[list[Incoming]]:
        rows = yield Statement(
            "SELECT source, source_id, fingerprint, payload, conversation, thread_id FROM inbox WHERE status = 'queued'"
            " ORDER BY admitted_at, source, source_id LIMIT $1",
            (limit,),
        )
        return legible(rows, _incoming, "inbox")

    @reads
    def waiting(self, source: str, thread_id: str) -> Work[list[Incoming]]:
        # Of rows that are done, only withdrawn ones keep their payload.
        rows = yield Statement(
            "SELECT source, source_id, fingerprint, payload, conversation, thread_id, done_at FROM inbox"
            " WHERE thread_id = $2 AND source = $1 AND (status = 'queued' OR payload <> 'null')"
            " ORDER BY admitted_at, number",
            (source, thread_id),
        )
        return legible(rows, _withdrawn, "inbox")

    @glances
    def is_awaited(self, source: str, conversation: str) -> Work[bool]:
        rows = yield Statement(
            "SELECT 1 FROM inbox WHERE source = $1 AND conversation = $2 AND status = 'queued' LIMIT 1",
            (source, conversation),
        )
        return bool(rows)

    @reads
    def answered(self, tenant: str, key: str, fingerprint: str) -> Work[Json]:
        return (yield from _stored_answer(tenant, key, fingerprint))

    @writes
    def forget(self, *, older_than: datetime, limit: int = 1000) -> Work[int]:
        forgotten = 0
        for sql in FORGET:
            forgotten += len((yield Statement(sql, (micros(older_than), limit))))
        return forgotten


def _incoming(row: Row) -> Incoming:
    source, source_id, fingerprint, payload, conversation, thread_id = row
    return Incoming(
        source=source,
        source_id=source_id,
        fingerprint=fingerprint,
        payload=load(payload),
        conversation=conversation,
        thread_id=thread_id,
    )


def _withdrawn(row: Row) -> Incoming:
    *said, done_at = row
    return replace(_incoming(said), withdrawn_at=maybe_moment(done_at))


def use_key(once: Once, thread: Thread, now: datetime) -> Work[None]:
    """Take the key with the change it belongs to. Raises AlreadyDone or Duplicate if it was taken."""
    rows = yield Statement(
        "INSERT INTO idempotency (tenant, key, fingerprint, thread_id, response, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, key) DO NOTHING RETURNING 1",
        (once.tenant, once.key, once.fingerprint, thread.id, dump(once.response), micros(now)),
    )
    if not rows:
        raise AlreadyDone((yield from _stored_answer(once.tenant, once.key, once.fingerprint)))


def mark_done(incoming: Incoming, thread_id: str, now: datetime) -> Work[None]:
    """Take it off the queue with the change it led to. What was never queued is admitted here.

    Its id is kept; its payload is in the log now, and nowhere else.
    """
    rows = yield Statement(
        "INSERT INTO inbox (source, source_id, fingerprint, thread_id, payload, status, admitted_at, done_at)"
        " VALUES ($1, $2, $3, $4, 'null', 'done', $5, $5) ON CONFLICT (source, source_id) DO UPDATE"
        " SET status = 'done', payload = 'null', thread_id = excluded.thread_id, done_at = excluded.done_at"
        " WHERE inbox.status = 'queued' AND inbox.fingerprint = excluded.fingerprint RETURNING 1",
        (
            incoming.source,
            incoming.source_id,
            incoming.fingerprint,
            thread_id,
            micros(now),
        ),
    )
    if not rows:
        raise AlreadyDone({"thread_id": (yield from _same_content(incoming))})


def _same_content(incoming: Incoming) -> Work[str | None]:
    """The thread an earlier delivery went to. Raises Duplicate if that one had another content."""
    rows = yield Statement(
        "SELECT fingerprint, thread_id FROM inbox WHERE source = $1 AND source_id = $2",
        (incoming.source, incoming.source_id),
    )
    if rows[0][0] != incoming.fingerprint:
        raise Duplicate(f"{incoming.source} delivered {incoming.source_id!r} before, with another content")
    thread_id: str | None = rows[0][1]
    return thread_id


def _stored_answer(tenant: str, key: str, fingerprint: str) -> Work[Json]:
    rows = yield Statement(
        "SELECT fingerprint, response FROM idempotency WHERE tenant = $1 AND key = $2", (tenant, key)
    )
    if not rows:
        return None
    if rows[0][0] != fingerprint:
        raise Duplicate("this idempotency key was used for a different request")
    return load(rows[0][1])
