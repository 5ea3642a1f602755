"""Thread rows: a thread and its events as columns, and columns as a thread."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from zlib import crc32

from clew.domain.errors import Corrupt
from clew.domain.events import Event
from clew.domain.thread import Executor, Json, Owner, Pending, Stats, Status, SuspensionKind, Thread
from clew.stores.codec import (
    MICROSECOND,
    UNREADABLE,
    bounded_moment,
    dump,
    dump_body,
    load,
    maybe_micros,
    maybe_moment,
    micros,
    moment,
)
from clew.stores.sql.work import (
    Row,
    Value,
)

COLUMNS = (
    "id, tenant, user_id, graph, name, status, stage, round, round_seq, settings, fsm_state, stats, redacted, last_seq,"
    " failure_reason, ttl, created_at, round_started_at, last_active_at,"
    " prune_after, priority, seal, last_accessed_at, expires_at"
)
# What is read of a thread.
SHOWN = f"{COLUMNS}, fence"
SEAL = COLUMNS.split(", ").index("seal")
INSERT_EVENT = "INSERT INTO events (thread_id, seq, id, round, type, version, content, at) VALUES ($1, $2, $3, $4, $5, 1, $6, $7)"


def event_row(event: Event) -> tuple[Value, ...]:
    return (
        event.thread_id,
        event.seq,
        event.id,
        event.round,
        event.type,
        dump_body(event.body),
        micros(event.at),
    )


def thread_row(thread: Thread) -> tuple[Value, ...]:
    """The columns that come from the log, in the order of COLUMNS, and the seal on them."""
    folded = (
        thread.id,
        thread.owner.tenant,
        thread.owner.user_id,
        thread.graph,
        thread.name,
        thread.status,
        thread.stage,
        thread.round,
        thread.round_seq,
        dump(thread.settings),
        dump(thread.fsm_state),
        dump(thread.stats),
        dump(sorted(thread.redacted)),
        thread.last_seq,
        thread.failure_reason,
        None if thread.ttl is None else thread.ttl // MICROSECOND,
        micros(thread.created_at),
        maybe_micros(thread.round_started_at),
        micros(thread.last_active_at),
        None if thread.prune_after is None else thread.prune_after // MICROSECOND,
        thread.priority,
    )
    return (*folded, _seal(folded))


def _seal(folded: Sequence[Value]) -> int:
    """Tells a row that we wrote from one that was changed by other hands."""
    return crc32("\0".join(map(str, folded)).encode(errors="surrogatepass"))


def to_thread(row: Row) -> Thread:
    """Raises Corrupt where the row cannot be read, or says two things at once."""
    try:
        thread, fsm_state = _read_row(row)
        agrees = fsm_state["last_seq"] == thread.last_seq
        # Rows of before there were seals have none.
        sealed = row[SEAL] is None or row[SEAL] == _seal(row[:SEAL])
    except UNREADABLE as exc:
        raise Corrupt(f"thread {row[0]!r}: its row cannot be read back") from exc
    if not sealed:
        raise Corrupt(f"thread {row[0]!r}: its row was changed by other hands")
    if not agrees or (thread.status is Status.BLOCKED) != bool(thread.pending):
        raise Corrupt(f"thread {row[0]!r}: its row contradicts itself")
    return thread


def _read_row(row: Row) -> tuple[Thread, Json]:
    (
        thread_id,
        tenant,
        user_id,
        graph,
        name,
        status,
        stage,
        round_,
        round_seq,
        settings,
        fsm_state,
        stats,
        redacted,
        last_seq,
        failure_reason,
        ttl,
        created_at,
        round_started_at,
        last_active_at,
        prune_after,
        priority,
        _,
        last_accessed_at,
        expires_at,
        fence,
    ) = row
    fsm = load(fsm_state)
    thread = Thread(
        id=thread_id,
        owner=Owner(tenant=tenant, user_id=user_id),
        graph=graph,
        name=name,
        status=Status(status),
        stage=stage,
        round=round_,
        round_seq=round_seq,
        settings=load(settings),
        pending={call_id: _pending(call) for call_id, call in fsm["pending"].items()},
        stats=Stats(**load(stats)),
        redacted=frozenset(load(redacted)),
        last_seq=last_seq,
        failure_reason=failure_reason,
        ttl=None if ttl is None else timedelta(microseconds=ttl),
        created_at=moment(created_at),
        round_started_at=maybe_moment(round_started_at),
        last_active_at=moment(last_active_at),
        prune_after=None if prune_after is None else timedelta(microseconds=prune_after),
        priority=priority,
        last_accessed_at=bounded_moment(last_accessed_at),
        expires_at=None if expires_at is None else bounded_moment(expires_at),
        fence=fence,
    )
    return thread, fsm


def _pending(call: dict[str, Any]) -> Pending:
    return Pending(
        executor=Executor(call["executor"]), kind=SuspensionKind(call["kind"]), prompt=call["prompt"]
    )
