"""Threads, their events and their leases: the one write path and the reads beside it."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from clew.domain.errors import ClewError, Corrupt, NotFound
from clew.domain.events import Event, rebuild
from clew.domain.lifecycle import Change
from clew.domain.records import Lease
from clew.domain.thread import Owner, Status, Thread
from clew.domain.tool_calls import Call
from clew.ports.guards import Caps, Guard
from clew.stores.codec import (
    EVENT_COLUMNS,
    LAST_MOMENT,
    MICROSECOND,
    UNREADABLE,
    bounded_moment,
    load_event,
    micros,
)
from clew.stores.commit_metrics import CommitMetrics
from clew.stores.sql import conversations, model_calls, tool_calls
from clew.stores.sql.caps import LEASED
from clew.stores.sql.claims import CLAIMABLE, Wanted, claim, claim_one, of_graphs
from clew.stores.sql.existence import refuse_buried
from clew.stores.sql.guards import work_of
from clew.stores.sql.ownership import owned_threads
from clew.stores.sql.process_leases import end_other_leases, lease_owners
from clew.stores.sql.purge import FEW, FORGET_BURIED, PURGED, erase_from, purge, unpurged
from clew.stores.sql.queue import move_to_front
from clew.stores.sql.quotas import require_number
from clew.stores.sql.spending import add_spent
from clew.stores.sql.thread_rows import INSERT_EVENT, SHOWN, event_row, thread_row, to_thread
from clew.stores.sql.thread_writes import MEND, accessed, expiring, insert, is_long_ago, refuse, update
from clew.stores.sql.turns import take_tag, turn_of
from clew.stores.sql.work import (
    FOR_UPDATE,
    SKIP_LOCKED,
    Many,
    Row,
    Statement,
    Tables,
    Texts,
    Value,
    Work,
    among,
    glances,
    placeholders,
    reads,
    writes,
)

logger = logging.getLogger(__name__)


class ThreadRows(Tables):
    """The Store port on a SQL database."""

    metrics: CommitMetrics | None = None
    """Set where commits are measured."""
    weights: Mapping[str, float] = MappingProxyType({})
    """Of tenants that get more or fewer turns than others while threads wait."""
    caps: Caps | None = None
    """On threads that run at once; None where there are none."""
    quota: int = 0
    """How many threads a tenant may have; 0 is any number."""

    async def commit(self, change: Change, *guards: Guard) -> None:
        if self.metrics is None:
            await self.commit_calls(change, *guards)
            return
        with self.metrics.timed():
            ended = await self.commit_calls(change, *guards)
        self.metrics.count(change, ended)

    @writes
    def commit_calls(self, change: Change, *guards: Guard) -> Work[list[Call]]:
        """The same as `commit`; the tool calls that ended with it."""
        thread = change.thread
        guarded = work_of(change, guards)
        for work in guarded.before:
            yield from work
        fence = guarded.fence
        turn = turn_of(self.weights.get(thread.owner.tenant, 1))
        if change.starts_a_run and guarded.claim is None:
            yield take_tag(thread.owner.tenant, thread.priority)
        is_new = change.read_at == 0
        ((saved,),) = yield (
            insert(thread, guarded.claim, turn) if is_new else update(change, fence, guarded.claim, turn)
        )
        if not saved:
            yield from refuse(change, fence)
        for work in guarded.after:
            yield from work
        if is_new:
            # After the insert, which waits for a burial under way and then would not know of it.
            yield from refuse_buried(thread.id)
            yield from require_number("threads", thread.owner.tenant, self.quota)
        elif change.changes_ttl:
            yield expiring(thread.id, thread.last_active_at)
        elif guarded.is_access and is_long_ago(thread):
            yield accessed(thread.id, thread.last_active_at)
        yield Many(INSERT_EVENT, [event_row(event) for event in change.events])
        ended = (yield from tool_calls.follow(thread.id, change.events)) if change.touches_calls else []
        if change.wakes_conversation:
            yield from conversations.wake_of_thread(thread.id)
        for message_id in change.takes_back:
            yield from model_calls.empty(thread.id, message_id)
        if thread.status is Status.RUNNING and fence is None and guarded.claim is None:
            yield from self.enqueued((thread.id,))
        if guarded.counts:
            yield from add_spent(thread, change.events)
        return ended

    def enqueued(self, thread_ids: Collection[str]) -> Work[None]:  # noqa: ARG002 - of stores with a job queue
        """In the transaction in which these threads may have become claimable: the job queue takes them in, if there is one."""
        yield from ()

    async def get(self, thread_id: str, owner: Owner | None = None) -> Thread:
        try:
            return await self._db.glance(lambda: _cached(thread_id, owner))
        except Corrupt as exc:
            # The row is a cache of the log: where it is not what we wrote, the log's word stands.
            logger.warning("%s; the log is asked", exc, extra={"thread_id": thread_id})
            thread = await self._db.write(lambda: _mended(thread_id))
        await self._db.glance(lambda: _row("1", thread_id, owner))  # the owner's word is the row's
        return thread

    async def find(
        self,
        owner: Owner | None = None,
        *,
        status: Collection[Status] = (),
        graph: str | None = None,
        active_since: datetime | None = None,
        active_until: datetime | None = None,
        by_activity: bool = False,
        before: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[Thread]:
        wanted = _wanted(owner, status, graph, (active_since, active_until), before, limit, by_activity)
        try:
            return await self._db.read(lambda: _find(*wanted))
        except Corrupt:
            ids = await self._db.read(lambda: _find_ids(*wanted))
            return await self._legible(ids, owner, is_any=not status)

    async def _legible(self, ids: Iterable[str], owner: Owner | None, *, is_any: bool) -> list[Thread]:
        """One by one, since a damaged thread is its own trouble: a list of all shows that there is one, and why it has
        failed; its real status is unknown."""
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
        span = None if before is None else before - (after or 0) - 1
        is_short = (limit is not None and limit <= FEW and not types) or (span is not None and span <= FEW)
        run = self._db.glance if is_short else self._db.read
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
            f"SELECT 1 FROM threads WHERE {CLAIMABLE}{of_graphs(graphs, 1)} LIMIT 1",
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
        wanted = Wanted(graphs=graphs, alive=alive, recovered=recovered)
        return (yield from claim(runner, lease=lease, limit=limit, wanted=wanted, caps=self.caps))

    @writes
    def move_to_front(self, thread_id: str, owner: Owner | None = None) -> Work[None]:
        yield from move_to_front(thread_id, owner)
        yield from self.enqueued((thread_id,))

    @writes
    def claim_one(
        self, runner: str, thread_id: str, *, lease: timedelta, recovered: tuple[int, int]
    ) -> Work[Lease | None]:
        return (yield from claim_one(runner, thread_id, lease=lease, recovered=recovered, caps=self.caps))

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
        yield from self.enqueued((lease.thread_id,))

    @writes
    def release_all(self, runner: str, *, but: Collection[str]) -> Work[None]:
        rows = yield Statement(
            "UPDATE threads SET lease_owner = NULL, lease_until = NULL"
            f" WHERE status = 'running' AND lease_owner = $2 AND NOT {among('id', 1)} RETURNING id",
            (Texts(but), runner),
        )
        yield from self.enqueued([thread_id for (thread_id,) in rows])

    @reads
    def lease_owners(self) -> Work[list[str]]:
        return (yield from lease_owners(LEASED))

    @writes
    def end_leases(self, runner: str) -> Work[int]:
        rows = yield Statement(
            f"UPDATE threads SET lease_until = clew_now() WHERE {LEASED} AND lease_owner = $1 RETURNING id",
            (runner,),
        )
        yield from self.taken_back([thread_id for (thread_id,) in rows])
        return len(rows) + (yield from end_other_leases(runner))

    def taken_back(self, thread_ids: Collection[str]) -> Work[None]:  # noqa: ARG002 - of stores with a job queue
        """In the transaction in which the leases of a process that died were ended."""
        yield from ()

    @writes
    def touch(self, thread_ids: Sequence[str], *, now: datetime, grain: timedelta) -> Work[list[str]]:
        rows = yield Statement(
            "UPDATE threads SET last_accessed_at = $2, expires_at = CAST($2 AS BIGINT) + ttl WHERE id IN"
            f" (SELECT id FROM threads WHERE {among('id', 1)}"
            " AND last_accessed_at <= CAST($2 AS BIGINT) - CAST($3 AS BIGINT)"
            f" ORDER BY id {SKIP_LOCKED}) RETURNING id",
            (Texts(thread_ids), micros(now), grain // MICROSECOND),
        )
        return [thread_id for (thread_id,) in rows]

    @writes
    def tombstone(self, thread_id: str, owner: Owner | None = None, *, now: datetime) -> Work[None]:
        mine, args = owned_threads(owner, 2, is_one=True)
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
            return await self._db.write(lambda: purge(limit, only))
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
        buried = await self._db.write(lambda: unpurged(limit, only))
        for table in PURGED if buried else ():
            try:
                await self._db.write(lambda table=table: erase_from(table, Texts(buried)))  # type: ignore[misc]
            except Exception:
                logger.exception("a table of buried threads cannot be purged: %s", table)


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


def _cached(thread_id: str, owner: Owner | None) -> Work[Thread]:
    return to_thread((yield from _row(SHOWN, thread_id, owner)))


def _mended(thread_id: str) -> Work[Thread]:
    """The thread as its log tells it, with what only its row knows. Raises Corrupt if the log is damaged as well."""
    accessed, expires, fence = yield from _row(
        "last_accessed_at, expires_at, fence", thread_id, None, FOR_UPDATE
    )
    try:
        thread = rebuild((yield from events(thread_id)))
        yield Statement(MEND[thread.status is Status.RUNNING], thread_row(thread))
        return replace(
            thread,
            last_accessed_at=bounded_moment(accessed),
            expires_at=None if expires is None else bounded_moment(expires),
            fence=fence,
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
    mine, args = owned_threads(owner, 2, is_one=True)
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
    active: tuple[datetime | None, datetime | None],
    before: tuple[datetime, str] | None,
    limit: int,
    by_activity: bool,
) -> tuple[str, tuple[Value, ...]]:
    """What comes after SELECT for a page of threads."""
    where, args = owned_threads(owner, 1)
    if status:
        where += f" AND status IN ({placeholders(len(args) + 1, len(status))})"
        args += tuple(status)
    if graph is not None:
        where += f" AND graph = ${len(args) + 1}"
        args += (graph,)
    for limit_of, comparison in zip(active, (">=", "<"), strict=True):
        if limit_of is not None:
            where += f" AND last_active_at {comparison} ${len(args) + 1}"
            args += (micros(limit_of),)
    order = "last_active_at" if by_activity else "created_at"
    if before is not None:
        where += f" AND ({order}, id) < (${len(args) + 1}, ${len(args) + 2})"
        args += (micros(before[0]), before[1])
    page = (
        f"FROM threads WHERE deleted_at IS NULL{where} ORDER BY {order} DESC, id DESC LIMIT ${len(args) + 1}"
    )
    return page, (*args, limit)


def _find(page: str, args: tuple[Value, ...]) -> Work[list[Thread]]:
    rows = yield Statement(f"SELECT {SHOWN} {page}", args)
    return [to_thread(row) for row in rows]


def _find_ids(page: str, args: tuple[Value, ...]) -> Work[list[str]]:
    rows = yield Statement(f"SELECT id {page}", args)
    return [thread_id for (thread_id,) in rows]
