"""Purge: removes every row of tombstoned threads, in bounded batches."""

from collections.abc import Sequence

from clew.domain.runs import SOURCE
from clew.stores.sql.work import (
    FOR_UPDATE,
    SKIP_LOCKED,
    Statement,
    Texts,
    Work,
    among,
)

# So many events are read where the caller stands; more are worth a thread.
FEW = 100
# The tables with a deleted thread's rows. The thread itself went when it was buried.
USUAL = ("events", "checkpoint_writes", "checkpoint_blobs", "checkpoints")
UNUSUAL = (
    "tool_calls",
    "summaries",
    "model_calls",
    "contents",
    "documents",
    # Before what waits in it, as a message that is admitted takes them: in another order the two would wait for each other.
    "conversations",
    "inbox",
    "idempotency",
    "histories",
    "reservations",
    "labels",
    "chunks",
    "stream_readers",
    "crons",
    "run_hooks",
    "message_words",
    "search_positions",
)
PURGED = (*USUAL, *UNUSUAL)
THEIRS = among("thread_id", 1)
# Tables that may hold very many rows of one thread, with what names a row there.
LONG = {
    "events": "seq",
    "model_calls": "id",
    "contents": "document_id, sequence_nr",
    "checkpoint_writes": "checkpoint_id, ns, task_id",
    "checkpoint_blobs": "ns, channel, version",
    "checkpoints": "seq",
}
# So many rows of a table go in one transaction: others wait for it.
AT_ONCE = 10_000


def unpurged(limit: int, only: str | None) -> Work[list[str]]:
    # A purge of all skips rows that another process purges now; a purge of one thread waits for them.
    one, lock, args = ("", SKIP_LOCKED, ()) if only is None else (" AND thread_id = $2", FOR_UPDATE, (only,))
    rows = yield Statement(
        f"SELECT thread_id FROM tombstones WHERE purged_at IS NULL{one} ORDER BY deleted_at LIMIT $1 {lock}",
        (limit, *args),
    )
    return [thread_id for (thread_id,) in rows]


def purge(limit: int, only: str | None) -> Work[list[str]]:
    buried = yield from unpurged(limit, only)
    if buried and not (yield from _slice(buried)):
        yield from erase(buried)
        yield Statement(f"UPDATE tombstones SET purged_at = clew_now() WHERE {THEIRS}", (Texts(buried),))
    return buried


def erase(buried: Sequence[str]) -> Work[None]:
    """Remove every row of these threads but their tombstones."""
    ids = Texts(buried)
    # One look into all of them is cheaper than a deletion from each.
    (found,) = yield Statement(f"SELECT {_THERE}", (ids,))
    unusual = [table for table, is_there in zip(UNUSUAL, found, strict=True) if is_there]
    for table in (*USUAL, *unusual):
        yield from erase_from(table, ids)


def erase_from(table: str, ids: Texts) -> Work[None]:
    for sql in (*_BEFORE.get(table, ()), f"DELETE FROM {table} WHERE {THEIRS}"):
        yield Statement(sql, (ids,))


# Those that are not purged yet are not among them, however old.
FORGET_BURIED = (
    "DELETE FROM tombstones WHERE thread_id IN (SELECT thread_id FROM tombstones"
    f" WHERE purged_at < (SELECT clew_now()) - $1 ORDER BY purged_at LIMIT $2 {SKIP_LOCKED}) RETURNING 1"
)
_THERE = ", ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {THEIRS})" for table in UNUSUAL)
# What only the rows of a table lead to, and so goes before them.
_BEFORE = {
    "documents": (
        # A document that was made in the thread is its own file; what a user brought stays the user's.
        f"DELETE FROM files WHERE id IN (SELECT id FROM documents WHERE {THEIRS})",
        # Bytes that no other row refers to. Those uploaded again since may belong to an upload under way.
        "DELETE FROM blobs WHERE EXISTS (SELECT 1 FROM documents AS d WHERE d.sha256 = blobs.sha256"
        f" AND d.{THEIRS} AND d.created_at >= blobs.added_at)"
        f" AND sha256 IN (SELECT sha256 FROM documents WHERE {THEIRS})"
        " AND NOT EXISTS (SELECT 1 FROM files WHERE files.sha256 = blobs.sha256)"
        f" AND NOT EXISTS (SELECT 1 FROM documents AS d WHERE d.sha256 = blobs.sha256 AND NOT d.{THEIRS})",
    ),
    "inbox": (
        # A channel may deliver it once more, and a message that was deleted must not be answered again: that it was
        # here is remembered for as long as any, what it said is not.
        # A queued run is deleted with its thread: nothing starts under that id again.
        "UPDATE inbox SET thread_id = NULL, payload = 'null', conversation = NULL, status = 'done',"
        f" done_at = COALESCE(done_at, admitted_at) WHERE {THEIRS} AND source <> '{SOURCE}'",
    ),
    "histories": (
        f"DELETE FROM history_messages WHERE history_id IN (SELECT id FROM histories WHERE {THEIRS})",
    ),
}


def _slice(buried: Sequence[str]) -> Work[bool]:
    """Take a slice off the long tables of these threads; False if the whole rest is small."""
    args = (Texts(buried), AT_ONCE)
    long = False
    for table, key in LONG.items():
        rows = yield Statement(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {THEIRS} LIMIT $2) AS slice", args
        )
        if rows[0][0] == AT_ONCE:
            long = True
            yield Statement(
                f"DELETE FROM {table} WHERE (thread_id, {key}) IN"
                f" (SELECT thread_id, {key} FROM {table} WHERE {THEIRS} LIMIT $2)",
                args,
            )
    return long
