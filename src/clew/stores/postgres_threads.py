"""Thread writes on Postgres: all changes that wait at a moment go in one statement, one round trip and one fsync."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

import asyncpg

from clew.domain.errors import ClewError, Unavailable
from clew.domain.lifecycle import Change
from clew.domain.tool_calls import Call
from clew.failpoints import failpoint
from clew.ports.cipher import Cipher
from clew.ports.guards import Guard
from clew.stores.codec import MICROSECOND, micros
from clew.stores.postgres import PostgresDatabase, beside_loop
from clew.stores.postgres_errors import Met
from clew.stores.sql.guards import work_of
from clew.stores.sql.job_queue import enqueue, replace_jobs
from clew.stores.sql.private import sealed_row
from clew.stores.sql.thread_rows import COLUMNS, SEAL, event_row, thread_row
from clew.stores.sql.thread_writes import ACCESS_GRAIN, refuse
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Value, Work

BATCH = 256

_TYPES = [
    "text[]",
    "text[]",
    "text[]",
    "text[]",
    "text[]",
    "text[]",
    "text[]",
    "bigint[]",
    "bigint[]",
    "text[]",
    "text[]",
    "text[]",
    "text[]",
    "bigint[]",
    "text[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "boolean[]",
    "boolean[]",
]
_GIVEN = ", ".join(f"${n}::{type_}" for n, type_ in enumerate(_TYPES, 1))
EVENT = ("thread_id", "seq", "id", "round", "type", "content", "at")
_EVENT_TYPES = ("text[]", "bigint[]", "text[]", "bigint[]", "text[]", "text[]", "bigint[]")
_EVENTS = ", ".join(f"${n}::{type_}" for n, type_ in enumerate(_EVENT_TYPES, len(_TYPES) + 1))
# Of `thread_row`: the columns that come from the log, and the seal on them.
FOLDED = COLUMNS.split(", ")[: SEAL + 1]
_FOLDED = [
    "graph",
    "name",
    "status",
    "stage",
    "round",
    "round_seq",
    "settings",
    "fsm_state",
    "stats",
    "redacted",
    "last_seq",
    "failure_reason",
    "ttl",
    "round_started_at",
    "last_active_at",
    "prune_after",
    "priority",
    "seal",
]

# The same rules as the statements in sql/threads.py, for many changes at once. A change whose thread moved on, or that
# ends a round with open calls, matches no row, so its thread is missing from the answer and its events are not inserted.
STATEMENT = f"""
WITH given AS (
    SELECT * FROM unnest({_GIVEN}) AS g ({COLUMNS}, read_at, fence, completes_stage, ends_calls)
), moved AS (
    UPDATE threads AS t SET {", ".join(f"{column} = g.{column}" for column in _FOLDED)},
        last_accessed_at = CASE WHEN t.last_accessed_at < g.last_active_at - {ACCESS_GRAIN // MICROSECOND}
            THEN g.last_active_at ELSE t.last_accessed_at END,
        expires_at = CASE WHEN t.last_accessed_at < g.last_active_at - {ACCESS_GRAIN // MICROSECOND}
            THEN g.last_active_at + t.ttl ELSE t.expires_at END,
        lease_owner = CASE WHEN g.status = 'running' THEN t.lease_owner END,
        lease_until = CASE WHEN g.status = 'running' THEN t.lease_until END,
        recoveries = CASE WHEN g.status = 'running' AND NOT g.completes_stage THEN t.recoveries ELSE 0 END,
        fence = t.fence + CASE WHEN g.status = 'running' THEN 0 ELSE 1 END
    FROM given AS g
    WHERE t.id = g.id AND t.tenant = g.tenant AND t.user_id = g.user_id
        AND t.created_at = g.created_at AND t.last_seq = g.read_at AND t.deleted_at IS NULL
        AND (g.fence IS NULL OR t.fence = g.fence)
        AND NOT (g.ends_calls AND EXISTS (SELECT 1 FROM tool_calls AS c
            WHERE c.thread_id = t.id AND c.status IN ('pending', 'started', 'in_doubt')))
    RETURNING t.id, g.status = 'running' AND g.fence IS NULL AS is_begun
), appended AS (
    INSERT INTO events (thread_id, seq, id, round, type, version, content, at)
    SELECT e.thread_id, e.seq, e.id, e.round, e.type, 1, e.content, e.at
    FROM unnest({_EVENTS}) AS e ({", ".join(EVENT)})
    WHERE e.thread_id IN (SELECT id FROM moved)
)
SELECT id FROM moved
"""  # noqa: S608 - constants and placeholders
# A thread that begins to run, or runs on, is one job.
ENQUEUING = STATEMENT.replace(
    "SELECT id FROM moved\n", "SELECT id, CASE WHEN is_begun THEN clew_enqueue(id) END FROM moved\n"
)


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    change: Change
    guards: tuple[Guard, ...]
    thread: tuple[Value, ...]
    events: list[tuple[Value, ...]]
    done: "asyncio.Future[bool]"


class PostgresThreads(ThreadRows):
    """Threads on Postgres, with group commit for the plain changes that make up nearly all of the traffic."""

    def __init__(self, db: PostgresDatabase) -> None:
        super().__init__(db)
        self._postgres = db
        self._statement = STATEMENT
        self._waiting: list[PendingCommit] = []
        self._flushing: asyncio.Task[None] | None = None
        # Called with how many changes shared a transaction.
        self.on_batch: Callable[[int], None] = lambda size: None  # noqa: ARG005 - not measured

    async def commit_calls(self, change: Change, *guards: Guard) -> list[Call]:
        guarded = work_of(change, guards)
        may_end_calls = change.touches_calls and change.only_ends_calls
        touches_calls = change.touches_calls and not may_end_calls
        special = touches_calls or change.takes_back or change.changes_ttl or change.starts_a_run
        is_plain = not (special or change.uses_tokens or change.read_at == 0)
        if not (is_plain and guarded.is_only_fenced):
            ended = await super().commit_calls(change, *guards)
            self.on_batch(1)
            return ended
        fence = guarded.fence
        given, events = await beside_loop(self._db.cipher, _rows, change, fence, self._db.cipher)
        waiting = PendingCommit(change, guards, given, events, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        # The future may be cancelled with its caller; the batch it rides in is not.
        if await waiting.done:
            return []
        if may_end_calls:  # there are open ones, or it is refused as any other change
            return await super().commit_calls(change, *guards)
        await self._db.read(lambda: refuse(change, fence))
        return []

    async def _flush(self) -> None:
        """Send batch after batch until no change waits. While one is on its way the next one gathers."""
        try:
            while self._waiting:
                batch = self._next_batch()
                try:
                    saved = await self._send(batch)
                except Unavailable as exc:
                    for waiting in batch:
                        _answer(waiting, exc)
                except (ClewError, Met, asyncpg.PostgresError):
                    await self._one_by_one(batch)
                except Exception as exc:  # noqa: BLE001 - whatever it is, it belongs to the waiting callers
                    for waiting in batch:
                        _answer(waiting, exc)
                except asyncio.CancelledError:
                    for waiting in (*batch, *self._waiting):
                        _answer(waiting, Unavailable("the database is being closed"))
                    raise
                else:
                    for waiting in batch:
                        _answer(waiting, waiting.change.thread.id in saved)
        finally:
            self._flushing = None

    async def _one_by_one(self, batch: list[PendingCommit]) -> None:
        """One caller's values broke the statement: run each change alone, so that only that caller fails."""
        for waiting in batch:
            try:
                await super().commit_calls(waiting.change, *waiting.guards)
            except Exception as exc:  # noqa: BLE001 - the caller gets it
                _answer(waiting, exc)
            else:
                _answer(waiting, True)

    def _next_batch(self) -> list[PendingCommit]:
        """At most one change a thread: a second one was decided on the outcome of the first or is stale anyway."""
        batch: dict[str, PendingCommit] = {}
        left: list[PendingCommit] = []
        for waiting in self._waiting:
            if waiting.done.cancelled():
                continue
            if waiting.change.thread.id in batch or len(batch) == BATCH:
                left.append(waiting)
            else:
                batch[waiting.change.thread.id] = waiting
        self._waiting = left
        return sorted(batch.values(), key=lambda waiting: waiting.change.thread.id)

    async def _send(self, batch: list[PendingCommit]) -> set[str]:
        if not batch:
            return set()
        threads = zip(*(waiting.thread for waiting in batch), strict=True)
        events = zip(*(row for waiting in batch for row in waiting.events), strict=True)
        failpoint("commit_begun")
        rows = await self._postgres.fetch(self._statement, *threads, *events)
        failpoint("commit_done")
        self.on_batch(len(batch))
        return {row[0] for row in rows}


class EnqueuingThreads(PostgresThreads):
    """The same with a job queue: a thread that can be claimed is a job from the same commit on."""

    def __init__(self, db: PostgresDatabase) -> None:
        super().__init__(db)
        self._statement = ENQUEUING

    def enqueued(self, thread_ids: Collection[str]) -> Work[None]:
        yield from enqueue(thread_ids)

    def taken_back(self, thread_ids: Collection[str]) -> Work[None]:
        yield from replace_jobs(thread_ids)


def _answer(waiting: PendingCommit, outcome: bool | Exception) -> None:
    if waiting.done.done():
        return  # its caller was cancelled
    if isinstance(outcome, Exception):
        waiting.done.set_exception(outcome)
    else:
        waiting.done.set_result(outcome)


def _rows(
    change: Change, fence: int | None, cipher: Cipher
) -> tuple[tuple[Value, ...], list[tuple[Value, ...]]]:
    """What is sent of the thread, and of its events."""
    return _given(change, fence, cipher), [
        sealed_row("events", EVENT, event_row(event), cipher) for event in change.events
    ]


def _given(change: Change, fence: int | None, cipher: Cipher) -> tuple[Value, ...]:
    now = micros(change.thread.last_active_at)
    ttl = change.thread.ttl
    expires = None if ttl is None else now + ttl // MICROSECOND
    row = sealed_row("threads", FOLDED, thread_row(change.thread), cipher)
    return (*row, now, expires, change.read_at, fence, change.completes_stage, change.touches_calls)
