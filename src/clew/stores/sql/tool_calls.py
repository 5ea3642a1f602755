"""Tool calls: rows that follow the log, and the one mark it does not hold."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from clew.domain.errors import Conflict, Corrupt, LostLease, NotFound
from clew.domain.events import CALLS, Event, RoundFinished, RoundStarted, Suspension, ToolCall
from clew.domain.thread import Executor, SuspensionKind
from clew.domain.tool_calls import Call, CallStatus, fold_calls, rebuild_calls
from clew.ports.cipher import Cipher
from clew.stores.codec import (
    EVENT_COLUMNS,
    dump,
    load,
    load_event,
    maybe_micros,
    maybe_moment,
    micros,
    moment,
)
from clew.stores.sql.work import (
    FOR_UPDATE,
    Many,
    Row,
    Rows,
    Statement,
    Tables,
    Value,
    Work,
    placeholders,
    reads,
    writes,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

COLUMNS = (
    "thread_id, tool_call_id, round, executor, kind, name, status, idempotent, prompt, args, result, deadline,"
    " created_at, started_at, resolved_at"
)
_UPSERT = (
    f"INSERT INTO tool_calls ({COLUMNS}) VALUES ({placeholders(1, 15)}) ON CONFLICT (thread_id, tool_call_id)"
    # All of them: an id that comes again in a later round is another call.
    f" DO UPDATE SET {', '.join(f'{column} = excluded.{column}' for column in COLUMNS.split(', ')[2:])}"
)


class CallRows(Tables):
    """The Calls port on a SQL database."""

    async def find(self, thread_id: str, *, status: Collection[CallStatus] = ()) -> list[Call]:
        try:
            found, is_whole = await self._db.read(lambda: _find(thread_id, status))
        except Corrupt:
            found, is_whole = [], False
        if not is_whole:
            await self.rebuild(thread_id)
            found, _ = await self._db.read(lambda: _find(thread_id, status))
        return found

    async def get(self, thread_id: str, call_id: str) -> Call:
        try:
            return await self._db.glance(lambda: _get(thread_id, call_id))
        except (NotFound, Corrupt) as exc:
            if not await self._db.read(lambda: _is_logged(thread_id, call_id, self._db.cipher)):
                raise
            logger.warning("%s; it is rebuilt from the log", exc, extra={"thread_id": thread_id})
        await self.rebuild(thread_id)
        return await self._db.glance(lambda: _get(thread_id, call_id))

    @writes
    def rebuild(self, thread_id: str) -> Work[None]:
        # A transaction that commits to the thread meanwhile waits, and finds the rows.
        yield Statement(f"SELECT 1 FROM threads WHERE id = $1 {FOR_UPDATE}", (thread_id,))
        told = rebuild_calls((yield from _log(thread_id)))
        rows = yield Statement(f"SELECT {COLUMNS} FROM tool_calls WHERE thread_id = $1", (thread_id,))
        legible = {row[1] for row in rows if _is_legible(row)}
        if missing := [call for call in told.values() if call.id not in legible]:
            yield Many(_UPSERT, [_row(call) for call in missing])

    @reads
    def lost(self, *, after: str = "", limit: int) -> Work[list[str]]:
        rows = yield Statement(
            "SELECT id FROM threads WHERE status = 'blocked' AND deleted_at IS NULL AND id > $1 AND NOT EXISTS"
            " (SELECT 1 FROM tool_calls AS c WHERE c.thread_id = threads.id AND c.status IN ('pending', 'in_doubt'))"
            " ORDER BY id LIMIT $2",
            (after, limit),
        )
        return [thread_id for (thread_id,) in rows]

    @writes
    def start(
        self, thread_id: str, call_id: str, *, idempotent: bool = True, fence: int, now: datetime
    ) -> Work[bool]:
        rows = yield Statement("SELECT 1 FROM threads WHERE id = $1 AND fence = $2", (thread_id, fence))
        if not rows:
            raise LostLease(f"thread {thread_id!r} is run by another runner now")
        rows = yield Statement(
            "UPDATE tool_calls SET status = 'started', started_at = $3, idempotent = idempotent * $4"
            " WHERE thread_id = $1 AND tool_call_id = $2 AND status = 'pending' RETURNING 1",
            (thread_id, call_id, micros(now), int(idempotent)),
        )
        return bool(rows)

    @writes
    def pause(self, thread_id: str, call_id: str, *, fence: int) -> Work[None]:
        yield Statement(
            "UPDATE tool_calls SET status = 'pending', started_at = NULL WHERE thread_id = $1 AND tool_call_id = $2"
            " AND status = 'started' AND EXISTS (SELECT 1 FROM threads WHERE id = $1 AND fence = $3)",
            (thread_id, call_id, fence),
        )

    @writes
    def reschedule(self, thread_id: str, call_id: str, deadline: datetime | None) -> Work[bool]:
        rows = yield Statement(
            "UPDATE tool_calls SET deadline = $3"
            " WHERE thread_id = $1 AND tool_call_id = $2 AND status = 'pending' RETURNING 1",
            (thread_id, call_id, maybe_micros(deadline)),
        )
        return bool(rows)

    async def due(self, *, now: datetime, limit: int) -> list[Call]:
        try:
            return await self._db.read(lambda: _due(COLUMNS, now, limit, to_call))
        except Corrupt:
            return await self._legible(
                await self._db.read(lambda: _due("thread_id, tool_call_id", now, limit, tuple))
            )

    async def _legible(self, names: Iterable[tuple[str, str]]) -> list[Call]:
        """One by one, so that a damaged call affects its own thread only: the deadlines of the others are kept."""
        calls: list[Call] = []
        for thread_id, call_id in names:
            try:
                calls.append(await self.get(thread_id, call_id))
            except Corrupt:
                logger.exception("a call cannot be read back", extra={"thread_id": thread_id})
            except NotFound:
                continue  # deleted meanwhile
        return calls


def _find(thread_id: str, status: Collection[CallStatus]) -> Work[tuple[list[Call], bool]]:
    """The calls, and whether there is a row of every one that the thread waits for."""
    where = f" AND status IN ({placeholders(2, len(status))})" if status else ""
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM tool_calls WHERE thread_id = $1{where} ORDER BY created_at, tool_call_id",
        (thread_id, *status),
    )
    found = [to_call(row) for row in rows]
    waiting = yield from _waiting(thread_id)
    if waiting.issubset(call.id for call in found):
        return found, True
    rows = yield Statement("SELECT tool_call_id FROM tool_calls WHERE thread_id = $1", (thread_id,))
    return found, waiting.issubset(call_id for (call_id,) in rows)


def _waiting(thread_id: str) -> Work[set[str]]:
    """The calls that the thread waits for, as far as its row shows. One that cannot be read is rebuilt."""
    rows = yield Statement("SELECT fsm_state FROM threads WHERE id = $1", (thread_id,))
    try:
        return {str(call_id) for row in rows for call_id in load(row[0])["pending"]}
    except (Corrupt, KeyError, TypeError):
        return set()


def _get(thread_id: str, call_id: str) -> Work[Call]:
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM tool_calls WHERE thread_id = $1 AND tool_call_id = $2",
        (thread_id, call_id),
    )
    if not rows:
        raise NotFound(f"no call {call_id!r} in thread {thread_id!r}")
    return to_call(rows[0])


def _is_logged(thread_id: str, call_id: str, cipher: Cipher) -> Work[bool]:
    """Whether an event may be about this call: only then the log is worth reading whole."""
    which, args = "thread_id = $1 AND type IN ($2, $3)", (thread_id, ToolCall.type, Suspension.type)
    if cipher.is_active:  # the database cannot look into them
        rows = yield Statement(f"SELECT seq, content FROM events WHERE {which}", args)
        return any(dump(call_id) in content for _, content in rows)
    rows = yield Statement(
        f"SELECT 1 FROM events WHERE {which} AND replace(content, $4, '') <> content LIMIT 1",
        (*args, dump(call_id)),
    )
    return bool(rows)


def _log(thread_id: str) -> Work[list[Event]]:
    types = sorted({*CALLS, RoundStarted.type})
    rows = yield Statement(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE thread_id = $1 AND type IN ({placeholders(2, len(types))})"
        " ORDER BY seq",
        (thread_id, *types),
    )
    return [load_event(thread_id, row) for row in rows]


def _is_legible(row: Row) -> bool:
    try:
        to_call(row)
    except Corrupt:
        return False
    return True


def follow(thread_id: str, events: Sequence[Event]) -> Work[list[Call]]:
    """Bring the rows to where these events lead; the calls that ended with them.

    The rule is the domain's; here the rows it needs are read and kept.
    """
    before = {call.id: call for call in map(to_call, (yield from _concerned(thread_id, events)))}
    after = fold_calls(before, events)
    if changed := [call for call_id, call in after.items() if before.get(call_id) != call]:
        yield Many(_UPSERT, [_row(call) for call in changed])
    return [call for call in changed if not call.status.is_open]


def require_due(thread_id: str, call_id: str, now: datetime) -> Work[None]:
    """Refuse where the deadline was moved or lifted meanwhile: it is no event, so the log does not show it."""
    rows = yield Statement(
        "SELECT 1 FROM tool_calls WHERE thread_id = $1 AND tool_call_id = $2 AND deadline <= $3"
        f" {FOR_UPDATE}",
        (thread_id, call_id, micros(now)),
    )
    if not rows:
        raise Conflict(f"call {call_id!r} of thread {thread_id!r} was given more time")


def _due(columns: str, now: datetime, limit: int, read: Callable[[Row], T]) -> Work[list[T]]:
    rows = yield Statement(
        f"SELECT {columns} FROM tool_calls"
        " WHERE status = 'pending' AND deadline IS NOT NULL AND deadline <= $1"
        # A soft-deleted thread does not go on; once restored, it is found here.
        " AND EXISTS (SELECT 1 FROM threads WHERE id = tool_calls.thread_id AND deleted_at IS NULL)"
        " ORDER BY deadline LIMIT $2",
        (micros(now), limit),
    )
    return [read(row) for row in rows]


def _concerned(thread_id: str, events: Sequence[Event]) -> Work[Rows]:
    """Every call the events name, every open one if they end the round, every cut off one if they take it up."""
    named = sorted({call_id for event in events if (call_id := getattr(event.body, "call_id", None))})
    conditions = [f"tool_call_id IN ({placeholders(2, len(named))})"] if named else []
    if any(isinstance(event.body, RoundFinished) for event in events):
        conditions.append("status IN ('pending', 'started', 'in_doubt')")
    if any(isinstance(event.body, RoundStarted) for event in events):
        conditions.append("(status = 'errored' AND result IS NULL)")
    return (
        yield Statement(
            f"SELECT {COLUMNS} FROM tool_calls WHERE thread_id = $1 AND ({' OR '.join(conditions)})",
            (thread_id, *named),
        )
    )


def _row(call: Call) -> tuple[Value, ...]:
    return (
        call.thread_id,
        call.id,
        call.round,
        call.executor,
        call.kind,
        call.name,
        call.status,
        int(call.idempotent),
        dump(call.prompt),
        dump(call.args),
        None if call.result is None else dump(call.result),
        maybe_micros(call.deadline),
        micros(call.created_at),
        maybe_micros(call.started_at),
        maybe_micros(call.resolved_at),
    )


def to_call(row: Row) -> Call:
    try:
        return _call(row)
    except (ArithmeticError, TypeError, ValueError) as exc:
        raise Corrupt(f"thread {row[0]!r}: call {row[1]!r} cannot be read back") from exc


def _call(row: Row) -> Call:
    return Call(
        thread_id=row[0],
        id=row[1],
        round=row[2],
        executor=Executor(row[3]),
        kind=SuspensionKind(row[4]),
        name=row[5],
        status=CallStatus(row[6]),
        idempotent=bool(row[7]),
        prompt=load(row[8]),
        args=load(row[9]),
        result=None if row[10] is None else load(row[10]),
        deadline=maybe_moment(row[11]),
        created_at=moment(row[12]),
        started_at=maybe_moment(row[13]),
        resolved_at=maybe_moment(row[14]),
    )
