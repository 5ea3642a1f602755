"""Conversations: which thread each is led in, how far replies were sent, and which worker has the lease."""

from collections.abc import Collection
from datetime import timedelta

from clew.domain.errors import LostLease
from clew.domain.records import Conversation, Incoming
from clew.domain.thread import Json
from clew.stores.codec import MICROSECOND, dump, legible, load
from clew.stores.sql.process_leases import claimant
from clew.stores.sql.work import (
    FOR_KEY_SHARE,
    Database,
    Row,
    Rows,
    Statement,
    Tables,
    Texts,
    Work,
    among,
    glances,
    writes,
)

# A message came, or its thread went on; and neither runs nor is snoozed. A soft-deleted thread counts as none.
# Only active ones are scanned: their thread runs, or a message came. Of the others there may be very many, and
# by the name of its source SQLite would find them all; so it is no column there.
DUE = (
    "FROM conversations AS c LEFT JOIN threads AS t ON t.id = c.thread_id AND t.deleted_at IS NULL"
    " WHERE c.is_active = 1 AND (c.attempts = 0 OR c.due_at <= clew_now()) AND (c.lease_until IS NULL OR c.lease_until <= clew_now())"
    " AND (c.wakes > c.seen_wakes OR COALESCE(t.last_seq, 0) > c.seen_seq)"
    " AND COALESCE(t.status, '') NOT IN ('running', 'pending') AND " + among("c.source || ''", 1)
)
_ALIVE = among("COALESCE(c.lease_owner, '') || ' ' || c.source || ' ' || c.key", 5)
_HELD = (
    " WHERE source = $1 AND key = $2 AND lease_owner = $3 AND COALESCE(thread_id, '') = $4 RETURNING wakes"
)
# With their numbers, or SQLite would scan all that ever came from the source.
MOVE_WAITING = (
    "UPDATE inbox SET thread_id = $3"
    " WHERE source = $1 AND conversation = $2 AND status = 'queued' AND number > 0"
)
# The row of a bot whose updates are polled. No chat has this key: a chat's has a channel before its ":".
POLLED = "polled"
_FREE = "lease_owner = NULL, lease_until = NULL"


class ConversationRows(Tables):
    """The Conversations port on a SQL database."""

    def __init__(self, db: Database, process: str | None = None) -> None:
        """`process` is who claims: at its death its leases end."""
        super().__init__(db)
        self._process = process

    @glances
    def are_due(self, sources: Collection[str]) -> Work[bool]:
        return bool((yield Statement(f"SELECT 1 {DUE} LIMIT 1", (Texts(sources),))))

    @writes
    def claim(
        self,
        holder: str,
        sources: Collection[str],
        *,
        lease: timedelta,
        limit: int,
        alive: Collection[Conversation] = (),
    ) -> Work[list[Conversation]]:
        rows = yield Statement(
            "UPDATE conversations SET lease_owner = $2, lease_until = clew_now() + $3 WHERE (source, key) IN"
            f" (SELECT c.source, c.key {DUE} AND NOT ({_ALIVE})"
            " ORDER BY c.due_at LIMIT $4 /*+ FOR UPDATE OF c SKIP LOCKED */)"
            " RETURNING source, key, thread_id, cursor, lease_owner, wakes, attempts",
            (
                *(Texts(sources), claimant(self._process, holder), lease // MICROSECOND, limit),
                Texts(f"{one.holder} {one.source} {one.key}" for one in alive),
            ),
        )
        return legible(rows, _conversation, "conversations")

    @writes
    def save_cursor(self, held: Conversation, cursor: Json, *, lease: timedelta) -> Work[None]:
        rows = yield Statement(
            f"UPDATE conversations SET cursor = $5, attempts = $6, lease_until = clew_now() + $7{_HELD}",
            (*_names(held), dump(cursor), held.attempts, lease // MICROSECOND),
        )
        _held(rows, held)

    @writes
    def heartbeat(self, held: Conversation, *, lease: timedelta) -> Work[int]:
        rows = yield Statement(
            f"UPDATE conversations SET lease_until = clew_now() + $5{_HELD}",
            (*_names(held), lease // MICROSECOND),
        )
        return _held(rows, held)

    @writes
    def release(self, held: Conversation, *, seen_seq: int, is_idle: bool) -> Work[None]:
        # Of those that are due, the one that was worked on longest ago comes first.
        rows = yield Statement(
            f"UPDATE conversations SET {_FREE}, attempts = 0, due_at = clew_now(), seen_seq = $5, seen_wakes = $6,"
            f" is_active = CASE WHEN $7 = 1 AND wakes = $6 THEN 0 ELSE 1 END{_HELD}",
            (*_names(held), seen_seq, held.wakes, int(is_idle)),
        )
        _held(rows, held)

    @writes
    def snooze(self, held: Conversation, *, wait: timedelta) -> Work[None]:
        rows = yield Statement(
            f"UPDATE conversations SET {_FREE}, attempts = attempts + 1, due_at = clew_now() + $5{_HELD}",
            (*_names(held), wait // MICROSECOND),
        )
        _held(rows, held)

    @writes
    def move(self, held: Conversation, thread_id: str) -> Work[None]:
        rows = yield Statement(f"UPDATE conversations SET {_FREE}{_HELD}", _names(held))
        _held(rows, held)
        yield from _move(held.source, held.key, thread_id)

    @glances
    def are_quiet(self, sources: Collection[str]) -> Work[bool]:
        rows = yield Statement(
            "SELECT 1 FROM conversations AS c WHERE (c.is_active = 1 OR c.lease_owner IS NOT NULL) AND "
            + among("c.source || ''", 1)
            + " LIMIT 1",
            (Texts(sources),),
        )
        return not rows

    @glances
    def position(self, source: str) -> Work[Json]:
        rows = yield Statement(
            "SELECT cursor FROM conversations WHERE source = $1 AND key = $2", (source, POLLED)
        )
        return load(rows[0][0]) if rows else None

    @writes
    def set_position(self, source: str, position: Json) -> Work[None]:
        yield Statement(
            "INSERT INTO conversations (source, key, thread_id, cursor, wakes, seen_wakes, seen_seq, is_active,"
            " attempts, due_at) VALUES ($1, $2, NULL, $3, 0, 0, 0, 0, 0, 0)"
            " ON CONFLICT (source, key) DO UPDATE SET cursor = excluded.cursor",
            (source, POLLED, dump(position)),
        )

    @glances
    def first(self, held: Conversation, *, after: int = 0) -> Work[Incoming | None]:
        rows = yield Statement(
            "SELECT source_id, fingerprint, payload, thread_id, number FROM inbox"
            " WHERE source = $1 AND conversation = $2 AND status = 'queued' AND number > $3 ORDER BY number LIMIT 1",
            (held.source, held.key, after),
        )
        for source_id, fingerprint, payload, thread_id, number in rows:
            return Incoming(
                source=held.source,
                source_id=source_id,
                fingerprint=fingerprint,
                payload=load(payload),
                conversation=held.key,
                number=number,
                thread_id=thread_id,
            )
        return None


def wake(source: str, key: str, thread_id: str | None) -> Work[tuple[str | None, int]]:
    """A message came in this conversation: the thread it is for, and its number there.

    It is led in `thread_id` if it is new, or if the thread it was led in is gone.
    """
    ((known, number),) = yield Statement(
        "INSERT INTO conversations (source, key, thread_id, cursor, wakes, seen_wakes, seen_seq, is_active, attempts,"
        " due_at) VALUES ($1, $2, $3, 'null', 1, 0, 0, 1, 0, 0) ON CONFLICT (source, key)"
        " DO UPDATE SET wakes = conversations.wakes + 1, is_active = 1 RETURNING thread_id, wakes",
        (source, key, thread_id),
    )
    if known != thread_id and known is not None and thread_id is not None and (yield from _is_gone(known)):
        yield from _move(source, key, thread_id)
        known = thread_id
    return known, number


def wake_of_thread(thread_id: str) -> Work[None]:
    """The thread goes on that a conversation may have waited for: that is followed to its end.

    Counted like a message, so that a worker that releases it at this moment leaves it due.
    """
    yield Statement(
        "UPDATE conversations SET wakes = wakes + 1, is_active = 1 WHERE thread_id = $1", (thread_id,)
    )


def _is_gone(thread_id: str) -> Work[bool]:
    """Whether the thread was deleted, soft or for good. One that is there stays until this transaction has ended:
    a purge that did not see what is admitted now would leave it behind, and no worker would be woken for it."""
    alive = yield Statement(
        f"SELECT 1 FROM threads WHERE id = $1 AND deleted_at IS NULL {FOR_KEY_SHARE}", (thread_id,)
    )
    if alive:
        return False
    # Statements of their own: they see a tombstone whose transaction the one before had to wait for.
    buried = yield Statement("SELECT 1 FROM tombstones WHERE thread_id = $1", (thread_id,))
    binned = yield Statement("SELECT 1 FROM threads WHERE id = $1", (thread_id,))
    return bool(buried or binned)


def _move(source: str, key: str, thread_id: str) -> Work[None]:
    """Lead it in another thread from now on. Nothing was said to it yet there, and what waits goes along."""
    yield Statement(
        "UPDATE conversations SET thread_id = $3, cursor = 'null', seen_seq = 0 WHERE source = $1 AND key = $2",
        (source, key, thread_id),
    )
    yield Statement(MOVE_WAITING, (source, key, thread_id))


def _names(held: Conversation) -> tuple[str, str, str, str]:
    return held.source, held.key, held.holder, held.thread_id or ""


def _held(rows: Rows, held: Conversation) -> int:
    if not rows:
        raise LostLease(f"a conversation of {held.source} is held by another worker now")
    wakes: int = rows[0][0]
    return wakes


def _conversation(row: Row) -> Conversation:
    source, key, thread_id, cursor, holder, wakes, attempts = row
    return Conversation(
        source=source,
        key=key,
        thread_id=thread_id,
        cursor=load(cursor),
        holder=holder,
        wakes=wakes,
        attempts=attempts,
    )
