"""Threads, their events and their leases: the one write path and the reads beside it."""

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from clew.domain.errors import ClewError, Conflict, Corrupt, LostLease, NotFound
from clew.domain.events import Event
from clew.domain.fold import rebuild
from clew.domain.lifecycle import Change
from clew.domain.records import FIRST_FENCE, Claim, Incoming, Lease, Once, Reservation, RunHook
from clew.domain.runs import SOURCE
from clew.domain.thread import Executor, Json, Owner, Pending, Stats, Status, SuspensionKind, Thread
from clew.domain.tool_calls import Call
from clew.stores.codec import (
    EVENT_COLUMNS,
    LAST_MOMENT,
    MICROSECOND,
    UNREADABLE,
    bounded_moment,
    dump,
    dump_body,
    load,
    load_event,
    maybe_micros,
    maybe_moment,
    micros,
    moment,
)
from clew.stores.sql import conversations, inbox, model_calls, tool_calls
from clew.stores.sql.existence import refuse_buried
from clew.stores.sql.reservations import reserve
from clew.stores.sql.run_hooks import add_hook
from clew.stores.sql.work import (
    FOR_UPDATE,
    SKIP_CHANGING,
    SKIP_LOCKED,
    Many,
    Row,
    Statement,
    Tables,
    Texts,
    Update,
    Value,
    Work,
    among,
    glances,
    placeholders,
    reads,
    writes,
)

logger = logging.getLogger(__name__)

# What happens in a thread is written down as an access once a minute.
ACCESS_GRAIN = timedelta(minutes=1)

# So many events are read where the caller stands; more are worth a thread.
FEW = 100

COLUMNS = (
    "id, tenant, user_id, graph, name, status, stage, round, round_seq, settings, fsm_state, stats, redacted, last_seq,"
    " failure_reason, ttl, created_at, round_started_at, last_active_at, seal, last_accessed_at, expires_at"
)
SEAL = COLUMNS.split(", ").index("seal")

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
    "crons",
    "run_hooks",
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


class ThreadRows(Tables):
    """The Store port on a SQL database."""

    async def commit(self, change: Change, **more: Any) -> None:
        await self.commit_calls(change, **more)

    @writes
    def commit_calls(
        self,
        change: Change,
        *,
        fence: int | None = None,
        once: Once | None = None,
        admits: Incoming | None = None,
        hook: RunHook | None = None,
        claim: Claim | None = None,
        reservations: Collection[Reservation] = (),
        overdue: str | None = None,
        unseen_since: datetime | None = None,
    ) -> Work[list[Call]]:
        """The same as `commit`; the tool calls that ended with it."""
        thread = change.thread
        if once is not None:
            yield from inbox.use_key(once, thread, change.events[-1].at)
        if admits is not None:
            yield from inbox.mark_done(admits, thread.id, change.events[-1].at)
        if reservations:
            yield from reserve(thread.id, reservations)
        ((saved,),) = yield (_insert(thread, claim) if change.read_at == 0 else _update(change, fence))
        if not saved:
            yield from refuse(change, fence)
        if overdue is not None:
            yield from tool_calls.require_due(thread.id, overdue, change.events[-1].at)
        if unseen_since is not None:
            yield from _require_unseen(thread.id, unseen_since)
        if change.read_at == 0:
            # After the insert, which waits for a burial under way and then would not know of it.
            yield from refuse_buried(thread.id)
        elif unseen_since is None and _is_long_ago(thread):
            yield _accessed(thread.id, thread.last_active_at)
        yield Many(INSERT_EVENT, [event_row(event) for event in change.events])
        ended = (yield from tool_calls.follow(thread.id, change.events)) if change.touches_calls else []
        if change.wakes_conversation:
            yield from conversations.wake_of_thread(thread.id)
        if hook is not None:
            yield from add_hook(hook)
        for message_id in change.takes_back:
            yield from model_calls.empty(thread.id, message_id)
        return ended

    async def get(self, thread_id: str, owner: Owner | None = None) -> Thread:
        try:
            return await self._db.glance(lambda: _cached(thread_id, owner))
        except Corrupt as exc:
            # The row is a cache of the log: where it is not what we wrote, the log's word stands.
            logger.warning("%s; the log is asked", exc, extra={"thread_id": thread_id})
            thread = await self._db.write(lambda: _mended(thread_id))
        if owner is not None and owner not in (thread.owner, Owner(tenant=thread.owner.tenant)):
            raise NotFound(f"no thread {thread_id!r}")
        return thread

    async def find(
        self,
        owner: Owner | None = None,
        *,
        status: Collection[Status] = (),
        graph: str | None = None,
        active_since: datetime | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[Thread]:
        wanted = _wanted(owner, status, graph, active_since, before, limit)
        try:
            return await self._db.read(lambda: _find(*wanted))
        except Corrupt:
            ids = await self._db.read(lambda: _find_ids(*wanted))
            return await self._legible(ids, owner, is_any=not status)

    async def _legible(self, ids: Iterable[str], owner: Owner | None, *, is_any: bool) -> list[Thread]:
        """One by one, since a damaged thread is its own trouble: a list of all shows that there is one, and why it has
        failed; what its status was, nobody knows."""
        threads: list[Thread] = []
        for thread_id in ids:
            with suppress(NotFound):  # deleted meanwhile
                thread = await self.get_listed(thread_id, owner)
                if is_any or thread.is_readable:
                    threads.append(thread)
        return threads

    @glances
    def tenant_of(self, thread_id: str) -> Work[str | None]:
        rows = yield Statement(
            "SELECT tenant FROM threads WHERE id = $1 UNION ALL SELECT tenant FROM tombstones WHERE thread_id = $1",
            (thread_id,),
        )
        return str(rows[0][0]) if rows else None

    async def get_listed(self, thread_id: str, owner: Owner | None = None) -> Thread:
        try:
            return await self.get(thread_id, owner)
        except Corrupt:
            logger.exception("a thread cannot be read back", extra={"thread_id": thread_id})
        try:
            return await self._db.read(lambda: _unreadable(thread_id, owner))
        except UNREADABLE:
            return Thread.unreadable(thread_id, owner or Owner(), graph="", created_at=LAST_MOMENT)

    async def read(
        self,
        thread_id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
        types: Collection[str] = (),
    ) -> list[Event]:
        run = self._db.glance if limit is not None and limit <= FEW and not types else self._db.read
        return await run(lambda: events(thread_id, after, before, limit, newest, types))

    @reads
    def message_ids(self, thread_id: str, *, before: int) -> Work[list[str]]:
        rows = yield Statement(
            "SELECT id FROM events WHERE thread_id = $1 AND seq < $2 AND type IN ('user_msg', 'assistant_msg')"
            " ORDER BY seq",
            (thread_id, before),
        )
        return [message_id for (message_id,) in rows]

    @glances
    def seq_of(self, thread_id: str, event_id: str) -> Work[int]:
        rows = yield Statement(
            "SELECT seq FROM events WHERE id = $1 AND thread_id = $2 AND type IN ('user_msg', 'assistant_msg', 'log')",
            (event_id, thread_id),
        )
        if not rows:
            raise NotFound(f"no record {event_id!r} in thread {thread_id!r}")
        return int(rows[0][0])

    @glances
    def fence(self, thread_id: str) -> Work[int]:
        rows = yield Statement("SELECT fence FROM threads WHERE id = $1 AND deleted_at IS NULL", (thread_id,))
        if not rows:
            raise NotFound(f"no thread {thread_id!r}")
        return int(rows[0][0])

    @glances
    def has_work(self, graphs: Collection[str] = ()) -> Work[bool]:
        rows = yield Statement(
            "SELECT 1 FROM threads WHERE status = 'running' AND deleted_at IS NULL"
            f" AND (lease_until IS NULL OR lease_until <= clew_now()){_of_graphs(graphs, 1)} LIMIT 1",
            tuple(graphs),
        )
        return bool(rows)

    @writes
    def claim(
        self,
        runner: str,
        *,
        lease: timedelta,
        limit: int,
        graphs: Collection[str] = (),
        alive: Collection[str] = (),
        recovered: tuple[int, int] | None = None,
    ) -> Work[list[Lease]]:
        often = (
            "" if recovered is None else f" AND {_RECOVERIES} BETWEEN {recovered[0]:d} AND {recovered[1]:d}"
        )
        # Few lengths, so that there are few statements to prepare.
        here = [*alive, *[""] * (2 ** len(alive).bit_length() - len(alive))] if alive else []
        mine = f" AND (COALESCE(lease_owner, '') <> $1 OR id NOT IN ({placeholders(4 + len(graphs), len(here))}))"
        rows = yield Statement(
            "UPDATE threads SET fence = fence + 1, lease_until = clew_now() + $2,"
            f" recoveries = {_RECOVERIES}, lease_owner = $1"
            " WHERE id IN (SELECT id FROM threads WHERE status = 'running' AND deleted_at IS NULL"
            f" AND (lease_until IS NULL OR lease_until <= clew_now()){_of_graphs(graphs, 4)}{mine if here else ''}{often}"
            # What a process left when it died is not behind all that is new.
            f" ORDER BY lease_until NULLS LAST LIMIT $3 {SKIP_CHANGING})"
            " RETURNING id, fence, recoveries",
            (runner, lease // MICROSECOND, limit, *graphs, *here),
        )
        return [Lease(thread_id=row[0], fence=row[1], recoveries=row[2]) for row in rows]

    @writes
    def renew(self, runner: str, leases: Iterable[Lease], *, lease: timedelta) -> Work[set[str]]:
        lost: set[str] = set()
        for held in leases:
            rows = yield Statement(
                "UPDATE threads SET lease_until = clew_now() + $3"
                " WHERE id = $1 AND fence = $2 AND lease_owner = $4 AND deleted_at IS NULL RETURNING id",
                (held.thread_id, held.fence, lease // MICROSECOND, runner),
            )
            if not rows:
                lost.add(held.thread_id)
        return lost

    @writes
    def release(self, runner: str, lease: Lease) -> Work[None]:
        yield Statement(
            "UPDATE threads SET lease_owner = NULL, lease_until = NULL WHERE id = $1 AND fence = $2 AND lease_owner = $3",
            (lease.thread_id, lease.fence, runner),
        )

    @writes
    def release_all(self, runner: str, *, but: Collection[str]) -> Work[None]:
        yield Statement(
            "UPDATE threads SET lease_owner = NULL, lease_until = NULL"
            f" WHERE status = 'running' AND lease_owner = $2 AND NOT {among('id', 1)}",
            (Texts(but), runner),
        )

    @writes
    def touch(
        self, thread_ids: Sequence[str], *, now: datetime, grain: timedelta, waits: bool = False
    ) -> Work[list[str]]:
        rows = yield Statement(
            "UPDATE threads SET last_accessed_at = $2, expires_at = CAST($2 AS BIGINT) + ttl WHERE id IN"
            f" (SELECT id FROM threads WHERE {among('id', 1)}"
            " AND last_accessed_at <= CAST($2 AS BIGINT) - CAST($3 AS BIGINT)"
            f" ORDER BY id {FOR_UPDATE if waits else SKIP_LOCKED}) RETURNING id",
            (Texts(thread_ids), micros(now), grain // MICROSECOND),
        )
        return [thread_id for (thread_id,) in rows]

    @writes
    def tombstone(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> Work[None]:
        mine, args = owned(owner, 2)
        rows = yield Statement(
            f"DELETE FROM threads WHERE id = $1{mine} RETURNING tenant",
            (thread_id, *args),
        )
        if not rows:
            raise NotFound(f"no thread {thread_id!r}")
        yield Statement(
            "INSERT INTO tombstones (thread_id, tenant, deleted_at) VALUES ($1, $2, $3)",
            (thread_id, rows[0][0], micros(now)),
        )

    async def purge(self, *, limit: int = 100, only: str | None = None) -> list[str]:
        try:
            return await self._db.write(lambda: _purge(limit, only))
        except ClewError:
            raise
        except Exception:
            # A table is missing or broken. It must not keep what is in the others.
            logger.exception("buried threads cannot be purged at once")
            await self._purge_apart(limit, only)
            return []

    @writes
    def forget_tombstones(self, *, older: timedelta, limit: int = 1000) -> Work[int]:
        return len((yield Statement(FORGET_BURIED, (older // MICROSECOND, limit))))

    async def _purge_apart(self, limit: int, only: str | None) -> None:
        """Table by table, each in a transaction of its own. Those of a thread stay to be purged until all could be."""
        buried = await self._db.write(lambda: _unpurged(limit, only))
        for table in PURGED if buried else ():
            try:
                await self._db.write(lambda table=table: _erase_from(table, Texts(buried)))  # type: ignore[misc]
            except Exception:
                logger.exception("a table of buried threads cannot be purged: %s", table)


# A lease that ran out while somebody held it means that somebody died: that is a recovery.
_RECOVERIES = "recoveries + CASE WHEN lease_owner IS NULL THEN 0 ELSE 1 END"


def _of_graphs(graphs: Collection[str], first: int) -> str:
    return f" AND graph IN ({placeholders(first, len(graphs))})" if graphs else ""


def _unpurged(limit: int, only: str | None) -> Work[list[str]]:
    # Whoever purges what there is leaves to others what they are at; whoever asks for one thread waits until it is gone.
    one, lock, args = ("", SKIP_LOCKED, ()) if only is None else (" AND thread_id = $2", FOR_UPDATE, (only,))
    rows = yield Statement(
        f"SELECT thread_id FROM tombstones WHERE purged_at IS NULL{one} ORDER BY deleted_at LIMIT $1 {lock}",
        (limit, *args),
    )
    return [thread_id for (thread_id,) in rows]


def _purge(limit: int, only: str | None) -> Work[list[str]]:
    buried = yield from _unpurged(limit, only)
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
        yield from _erase_from(table, ids)


def _erase_from(table: str, ids: Texts) -> Work[None]:
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
        # Bytes that nobody else refers to. Those that came once more since are perhaps an upload under way.
        "DELETE FROM blobs WHERE EXISTS (SELECT 1 FROM documents AS d WHERE d.sha256 = blobs.sha256"
        f" AND d.{THEIRS} AND d.created_at >= blobs.added_at)"
        f" AND sha256 IN (SELECT sha256 FROM documents WHERE {THEIRS})"
        " AND NOT EXISTS (SELECT 1 FROM files WHERE files.sha256 = blobs.sha256)"
        f" AND NOT EXISTS (SELECT 1 FROM documents AS d WHERE d.sha256 = blobs.sha256 AND NOT d.{THEIRS})",
    ),
    "inbox": (
        # A channel may deliver it once more, and a message that was deleted must not be answered again: that it was
        # here is remembered for as long as any, what it said is not.
        # Nobody delivers a run: it goes with its thread, under whose id nothing begins again.
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


def events(
    thread_id: str,
    after: int | None = None,
    before: int | None = None,
    limit: int | None = None,
    newest: bool = False,
    types: Collection[str] = (),
) -> Work[list[Event]]:
    where = "thread_id = $1 AND seq > $2"
    args: list[Value] = [thread_id, after or 0]
    if before is not None:
        args.append(before)
        where += f" AND seq < ${len(args)}"
    if types:
        where += f" AND type IN ({placeholders(len(args) + 1, len(types))})"
        args += types
    from_the_end = limit is not None and (newest or after is None)
    order = "DESC" if from_the_end else "ASC"
    bound = ""
    if limit is not None:
        args.append(limit)
        bound = f" LIMIT ${len(args)}"
    rows = yield Statement(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE {where} ORDER BY seq {order}{bound}",
        args,
    )
    found = [load_event(thread_id, row) for row in (reversed(rows) if from_the_end else rows)]
    if found and not types and found[-1].seq - found[0].seq + 1 != len(found):
        raise Corrupt(f"thread {thread_id!r}: events are missing between {found[0].seq} and {found[-1].seq}")
    return found


def owned(owner: Owner | None, first: int) -> tuple[str, tuple[Value, ...]]:
    """The condition that makes another owner's rows not exist. An empty user is the whole tenant."""
    if owner is None:
        return "", ()
    if not owner.user_id:
        return f" AND tenant = ${first}", (owner.tenant,)
    return f" AND tenant = ${first} AND user_id = ${first + 1}", (owner.tenant, owner.user_id)


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
    )
    return (*folded, _seal(folded))


def _seal(folded: Sequence[Value]) -> int:
    """Tells a row that we wrote from one that was changed by other hands."""
    return crc32("\0".join(map(str, folded)).encode(errors="surrogatepass"))


def _cached(thread_id: str, owner: Owner | None) -> Work[Thread]:
    return to_thread((yield from _row(COLUMNS, thread_id, owner)))


def _mended(thread_id: str) -> Work[Thread]:
    """The thread as its log tells it, with what only its row knows. Raises Corrupt if the log is damaged as well."""
    accessed, expires = yield from _row("last_accessed_at, expires_at", thread_id, None, FOR_UPDATE)
    try:
        thread = rebuild((yield from events(thread_id)))
        yield Statement(_MEND[thread.status is Status.RUNNING], thread_row(thread))
        return replace(
            thread,
            last_accessed_at=bounded_moment(accessed),
            expires_at=None if expires is None else bounded_moment(expires),
        )
    except Corrupt:
        raise
    except (NotFound, *UNREADABLE) as exc:
        raise Corrupt(f"thread {thread_id!r}: its log cannot be read back") from exc


def _unreadable(thread_id: str, owner: Owner | None) -> Work[Thread]:
    """What is left of a thread that cannot be read."""
    tenant, user_id, graph, created_at = yield from _row(
        "tenant, user_id, graph, created_at", thread_id, owner
    )
    owner = Owner(tenant=str(tenant), user_id=str(user_id))
    return Thread.unreadable(thread_id, owner, graph=str(graph), created_at=bounded_moment(created_at))


def _row(columns: str, thread_id: str, owner: Owner | None, lock: str = "") -> Work[Row]:
    mine, args = owned(owner, 2)
    rows = yield Statement(
        f"SELECT {columns} FROM threads WHERE id = $1 AND deleted_at IS NULL{mine} {lock}",
        (thread_id, *args),
    )
    if not rows:
        raise NotFound(f"no thread {thread_id!r}")
    return rows[0]


def _wanted(
    owner: Owner | None,
    status: Collection[Status],
    graph: str | None,
    active_since: datetime | None,
    before: tuple[datetime, str] | None,
    limit: int,
) -> tuple[str, tuple[Value, ...]]:
    """What comes after SELECT for a page of threads."""
    where, args = owned(owner, 1)
    if status:
        where += f" AND status IN ({placeholders(len(args) + 1, len(status))})"
        args += tuple(status)
    if graph is not None:
        where += f" AND graph = ${len(args) + 1}"
        args += (graph,)
    if active_since is not None:
        where += f" AND last_active_at >= ${len(args) + 1}"
        args += (micros(active_since),)
    if before is not None:
        where += f" AND (created_at, id) < (${len(args) + 1}, ${len(args) + 2})"
        args += (micros(before[0]), before[1])
    page = f"FROM threads WHERE deleted_at IS NULL{where} ORDER BY created_at DESC, id DESC LIMIT ${len(args) + 1}"
    return page, (*args, limit)


def _find(page: str, args: tuple[Value, ...]) -> Work[list[Thread]]:
    rows = yield Statement(f"SELECT {COLUMNS} {page}", args)
    return [to_thread(row) for row in rows]


def _find_ids(page: str, args: tuple[Value, ...]) -> Work[list[str]]:
    rows = yield Statement(f"SELECT id {page}", args)
    return [thread_id for (thread_id,) in rows]


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
        _,
        last_accessed_at,
        expires_at,
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
        last_accessed_at=bounded_moment(last_accessed_at),
        expires_at=None if expires_at is None else bounded_moment(expires_at),
    )
    return thread, fsm


def refuse(change: Change, fence: int | None) -> Work[None]:
    """Say why the thread row did not take the change."""
    thread_id = change.thread.id
    rows = yield Statement("SELECT last_seq, fence, deleted_at FROM threads WHERE id = $1", (thread_id,))
    if not rows or rows[0][2] is not None:
        raise NotFound(f"no thread {thread_id!r}")
    if fence is not None and rows[0][1] != fence:
        raise LostLease(f"thread {thread_id!r} is run by someone else now")
    raise Conflict(f"thread {thread_id!r} is at seq {rows[0][0]}, not at {change.read_at}")


# Placeholders $1 to $20 are thread_row's.
_INSERT = f"INSERT INTO threads ({COLUMNS}) VALUES ({placeholders(1, 22)}) ON CONFLICT (id) DO NOTHING"
_INSERT_CLAIMED = (
    f"INSERT INTO threads ({COLUMNS}, fence, lease_owner, lease_until)"
    f" VALUES ({placeholders(1, 24)}, clew_now() + $25) ON CONFLICT (id) DO NOTHING"
)
# What never changes after the first commit is not written again.
_FOLDED = (
    "graph = $4, name = $5, status = $6, stage = $7, round = $8, round_seq = $9, settings = $10, fsm_state = $11, stats = $12,"
    " redacted = $13, last_seq = $14, failure_reason = $15, ttl = $16, round_started_at = $18, last_active_at = $19,"
    " seal = $20"
)
# A thread that stops running gives up its lease, and a new fence shuts out whoever still works under the old one.
_RESTS = ", lease_owner = NULL, lease_until = NULL, recoveries = 0, fence = fence + 1"
# The immutable columns are compared: they bind $2, $3 and $17, and a foreign row is never overwritten.
_READ_AT = (
    " WHERE id = $1 AND tenant = $2 AND user_id = $3 AND created_at = $17 AND last_seq = $21"
    " AND deleted_at IS NULL"
)
# A thread that runs on, one that came further, and one that stops running.
_LEASES = {"runs": "", "completes_stage": ", recoveries = 0", "rests": _RESTS}
_UPDATE = {case: f"UPDATE threads SET {_FOLDED}{more}{_READ_AT}" for case, more in _LEASES.items()}
_UPDATE_FENCED = {case: f"{sql} AND fence = $22" for case, sql in _UPDATE.items()}
_MEND = {
    runs: f"UPDATE threads SET tenant = $2, user_id = $3, created_at = $17, {_FOLDED}"
    f"{'' if runs else _RESTS} WHERE id = $1"
    for runs in (True, False)
}


def _insert(thread: Thread, claim: Claim | None) -> Update:
    now = micros(thread.last_active_at)
    expires = None if thread.ttl is None else now + thread.ttl // MICROSECOND
    row = (*thread_row(thread), now, expires)
    if claim is None:
        return Update(_INSERT, row)
    return Update(_INSERT_CLAIMED, (*row, FIRST_FENCE, claim.runner, claim.lease // MICROSECOND))


def _update(change: Change, fence: int | None) -> Update:
    row = thread_row(change.thread)
    case = "completes_stage" if change.completes_stage else "runs"
    if change.thread.status is not Status.RUNNING:
        case = "rests"
    if fence is None:
        return Update(_UPDATE[case], (*row, change.read_at))
    return Update(_UPDATE_FENCED[case], (*row, change.read_at, fence))


def _is_long_ago(thread: Thread) -> bool:
    """Whether the last look is so long ago that this activity is written down as one."""
    return thread.last_active_at - (thread.last_accessed_at or thread.created_at) > ACCESS_GRAIN


def _require_unseen(thread_id: str, since: datetime) -> Work[None]:
    # A look is no event, so the log does not tell of it.
    rows = yield Statement(
        "SELECT 1 FROM threads WHERE id = $1 AND last_accessed_at <= $2", (thread_id, micros(since))
    )
    if not rows:
        raise Conflict(f"thread {thread_id!r} was looked at meanwhile")


def _accessed(thread_id: str, now: datetime) -> Statement:
    return Statement(
        "UPDATE threads SET last_accessed_at = $2, expires_at = CAST($2 AS BIGINT) + ttl"
        " WHERE id = $1 AND last_accessed_at < CAST($2 AS BIGINT) - CAST($3 AS BIGINT)",
        (thread_id, micros(now), ACCESS_GRAIN // MICROSECOND),
    )


def _pending(call: dict[str, Any]) -> Pending:
    return Pending(
        executor=Executor(call["executor"]), kind=SuspensionKind(call["kind"]), prompt=call["prompt"]
    )
