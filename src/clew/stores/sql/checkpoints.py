"""Checkpoints of LangGraph: one row a checkpoint, one a value that changed, one a task's writes."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from clew.domain.errors import Conflict, Corrupt, InvalidState, LostLease, NotFound
from clew.domain.thread import Status
from clew.ports.checkpoints import (
    ChannelValue,
    CheckpointSizes,
    Found,
    ParentGone,
    StoredCheckpoint,
    Superstep,
    TaskWrites,
)
from clew.stores.codec import dump, load
from clew.stores.sql.task_writes import pack_writes, unpack_writes, writes_row
from clew.stores.sql.work import (
    FOR_UPDATE,
    Many,
    Row,
    Statement,
    Tables,
    Value,
    Work,
    glances,
    placeholders,
    reads,
    writes,
)

# The thread must not be claimed or deleted between the check and the commit.
FOR_SHARE = "/*+ FOR SHARE */"

COLUMNS = "thread_id, ns, id, parent_id, body, metadata, apart, run_id"
VALUE_COLUMNS = ", ".join(ChannelValue._fields)
# Checked with the insert and not before it: the database sees a tombstone that `guard` had to wait for.
_ALIVE = "NOT EXISTS (SELECT 1 FROM tombstones WHERE thread_id = $1)"
# A checkpoint that is stored again keeps its place in the order.
INSERT_CHECKPOINT = (
    f"INSERT INTO checkpoints ({COLUMNS}) SELECT {placeholders(1, 8)} WHERE {_ALIVE}"
    " ON CONFLICT (thread_id, id, ns) DO UPDATE SET parent_id = excluded.parent_id, body = excluded.body,"
    " metadata = excluded.metadata, apart = excluded.apart, run_id = excluded.run_id RETURNING 1"
)
# While the parent is there, so is everything its values are made of.
INSERT_ON_PARENT = INSERT_CHECKPOINT.replace(
    _ALIVE, f"{_ALIVE} AND EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = $1 AND id = $4 AND ns = $2)"
)
INSERT_VALUE = (
    f"INSERT INTO checkpoint_blobs (thread_id, ns, {VALUE_COLUMNS}) VALUES ({placeholders(1, 9)})"
    " ON CONFLICT (thread_id, ns, channel, version) DO NOTHING"
)
INSERT_WRITES = (
    "INSERT INTO checkpoint_writes (thread_id, ns, checkpoint_id, task_id, path, entries, data)"
    f" SELECT {placeholders(1, 7)} WHERE {_ALIVE}"
    " ON CONFLICT (thread_id, checkpoint_id, ns, task_id) DO NOTHING RETURNING 1"
)
# Postgres would go through all writes of a thread: it plans once, perhaps while the table is empty, and the two ids
# compare by different rules there, which no index serves.
WRITES_OF_C = (
    "/*+ LATERAL (SELECT * FROM */ checkpoint_writes /*+ AS w WHERE w.thread_id = c.thread_id AND w.ns = c.ns"
    ' AND w.checkpoint_id = c.id COLLATE "default" OFFSET 0) */'
)
# How many ids one statement names; both databases take far more.
CHUNK = 200


class CheckpointRows(Tables):
    """The Checkpoints port on a SQL database."""

    async def put(
        self, steps: Sequence[Superstep], *, writes: Sequence[TaskWrites] = (), fence: int | None = None
    ) -> None:
        if not await self.put_at_once(steps, writes, fence):
            await self._db.write(lambda: _put(steps, writes, fence))

    async def put_at_once(
        self,
        steps: Sequence[Superstep],  # noqa: ARG002 - of a database that can
        writes: Sequence[TaskWrites],  # noqa: ARG002 - the same
        fence: int | None,  # noqa: ARG002 - the same
    ) -> bool:
        """Store them in one statement; False if that was not possible."""
        return False

    @writes
    def put_writes(
        self, thread_id: str, ns: str, writes: TaskWrites, *, fence: int | None = None
    ) -> Work[None]:
        yield from guard(thread_id, fence)
        yield from _insert_writes(thread_id, ns, writes)

    @glances
    def get(self, thread_id: str, ns: str, checkpoint_id: str | None = None) -> Work[Found | None]:
        which = "AND id = $3" if checkpoint_id is not None else "ORDER BY seq DESC LIMIT 1"
        rows = yield Statement(
            f"SELECT {_of('c', COLUMNS)}, c.seq, w.task_id, w.path, w.entries, w.data"
            f" FROM (SELECT {COLUMNS}, seq FROM checkpoints WHERE thread_id = $1 AND ns = $2 {which}) AS c"
            f" LEFT JOIN {WRITES_OF_C} AS w ON w.thread_id = c.thread_id AND w.ns = c.ns AND w.checkpoint_id = c.id",
            (thread_id, ns, *(() if checkpoint_id is None else (checkpoint_id,))),
        )
        if not rows:
            return None
        checkpoint = to_checkpoint(rows[0][:-4])
        return Found(
            checkpoint=checkpoint,
            writes=[
                TaskWrites(checkpoint_id=checkpoint.id, task_id=row[-4], writes=unpack_writes(*row[-3:]))
                for row in rows
                if row[-4] is not None
            ],
        )

    @reads
    def find(
        self,
        thread_id: str | None = None,
        ns: str | None = None,
        *,
        checkpoint_id: str | None = None,
        before: str | None = None,
        below: int | None = None,
        limit: int,
    ) -> Work[list[StoredCheckpoint]]:
        where: list[str] = []
        args: list[Value] = []
        for condition, value in (
            ("thread_id =", thread_id),
            ("ns =", ns),
            ("id =", checkpoint_id),
            ("seq <", below),
        ):
            if value is not None:
                args.append(value)
                where.append(f"{condition} ${len(args)}")
        bound: int | None = None
        if before is not None:
            bound = yield from _seq_of(thread_id, before)
            args.append(before if bound is None else bound)
            # An id that was never stored still has a place: ids of one process grow.
            where.append(f"{'id' if bound is None else 'seq'} < ${len(args)}")
        found: list[StoredCheckpoint] = []
        last = below
        while len(found) < limit:
            page = yield _page(where, args, last, limit)
            rows = [to_checkpoint(row) for row in page]
            found += rows if bound is None else (yield from _caused_before(rows, bound))
            if len(rows) < limit:
                break
            last = rows[-1].seq
        return found[:limit]

    @reads
    def writes_of(self, thread_id: str, ns: str, checkpoint_ids: Collection[str]) -> Work[list[TaskWrites]]:
        return (yield from _writes_of(thread_id, ns, checkpoint_ids))

    @reads
    def values_of(
        self,
        thread_id: str,
        ns: str,
        versions: Mapping[str, Collection[str]],
        *,
        held: Mapping[str, str] | None = None,
    ) -> Work[list[ChannelValue]]:
        return (yield from _values_of(thread_id, ns, versions, held or {}))

    @reads
    def sizes(self, thread_id: str) -> Work[CheckpointSizes]:
        ((checkpoints, body),) = yield Statement(
            "SELECT count(*), sum(octet_length(body) + octet_length(metadata) + octet_length(apart))"
            " FROM checkpoints WHERE thread_id = $1",
            (thread_id,),
        )
        ((tasks, written),) = yield Statement(
            "SELECT count(*), sum(octet_length(entries) + octet_length(data)) FROM checkpoint_writes"
            " WHERE thread_id = $1",
            (thread_id,),
        )
        values = yield Statement(
            "SELECT channel, count(*), sum(octet_length(data)) FROM checkpoint_blobs WHERE thread_id = $1"
            " GROUP BY channel ORDER BY channel",
            (thread_id,),
        )
        return CheckpointSizes(
            checkpoints=(checkpoints, int(body or 0)),
            writes=(tasks, int(written or 0)),
            channels={channel: (versions, int(number)) for channel, versions, number in values},
        )

    @writes
    def copy(self, source: str, target: str) -> Work[None]:
        yield from guard(target, None)
        yield from refuse_if_buried(target)
        # Keeps it from being deleted or pruned meanwhile.
        yield from guard(source, None)
        yield from refuse_if_buried(source)
        # It may go on all the same. Each statement sees another moment, so the checkpoints come first: what they consist of
        # was there when they were.
        for table, columns, order in (
            ("checkpoints", "ns, id, parent_id, body, metadata, apart, run_id", "seq"),
            ("checkpoint_blobs", f"ns, {VALUE_COLUMNS}", "ns"),
            ("checkpoint_writes", "ns, checkpoint_id, task_id, path, entries, data", "ns"),
        ):
            yield Statement(
                f"INSERT INTO {table} (thread_id, {columns}) SELECT CAST($2 AS TEXT), {columns} FROM {table}"
                f" WHERE thread_id = $1 ORDER BY {order} ON CONFLICT DO NOTHING",
                (source, target),
            )

    @writes
    def delete(self, thread_id: str) -> Work[None]:
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            yield Statement(f"DELETE FROM {table} WHERE thread_id = $1", (thread_id,))

    @writes
    def delete_runs(self, run_ids: Collection[str]) -> Work[None]:
        gone: dict[tuple[str, str], list[str]] = {}
        for some in _chunks(run_ids):
            rows = yield Statement(
                f"SELECT thread_id, ns, id FROM checkpoints WHERE run_id IN ({placeholders(1, len(some))})",
                some,
            )
            for thread_id, ns, checkpoint_id in rows:
                gone.setdefault((thread_id, ns), []).append(checkpoint_id)
        for (thread_id, ns), ids in gone.items():
            yield Statement(f"SELECT 1 FROM threads WHERE id = $1 {FOR_UPDATE}", (thread_id,))
            yield from _delete_checkpoints(thread_id, ns, ids)

    @writes
    def prune(self, thread_id: str) -> Work[None]:
        held = yield Statement(f"SELECT status FROM threads WHERE id = $1 {FOR_UPDATE}", (thread_id,))
        if held and held[0][0] == Status.RUNNING:
            # It may build on any of them, not only on the newest.
            raise InvalidState(f"thread {thread_id!r} is running")
        rows = yield Statement("SELECT DISTINCT ns FROM checkpoints WHERE thread_id = $1", (thread_id,))
        for (ns,) in rows:
            rows = yield Statement(
                f"SELECT {COLUMNS}, seq FROM checkpoints WHERE thread_id = $1 AND ns = $2 ORDER BY seq DESC",
                (thread_id, ns),
            )
            checkpoints = [to_checkpoint(row) for row in rows]
            kept = _needed(checkpoints)
            yield from _delete_checkpoints(thread_id, ns, [c.id for c in checkpoints if c.id not in kept])


def guard(thread_id: str, fence: int | None) -> Work[None]:
    """Refuse to write for a runner that lost the thread; keep it from being claimed or deleted in this transaction."""
    rows = yield Statement(f"SELECT fence FROM threads WHERE id = $1 {FOR_SHARE}", (thread_id,))
    if fence is None or (rows and rows[0][0] == fence):
        return
    if rows:
        raise LostLease(f"thread {thread_id!r} is run by another runner now")
    raise NotFound(f"no thread {thread_id!r}")


def refuse_if_buried(thread_id: str) -> Work[None]:
    if (yield Statement("SELECT 1 FROM tombstones WHERE thread_id = $1", (thread_id,))):
        raise NotFound(f"no thread {thread_id!r}")


def to_checkpoint(row: Row) -> StoredCheckpoint:
    thread_id, ns, checkpoint_id, parent_id, body, metadata, apart, run_id, seq = row
    channels = load(apart)
    if not isinstance(channels, dict):
        raise Corrupt(f"thread {thread_id!r}: checkpoint {checkpoint_id!r} cannot be read back")
    return StoredCheckpoint(
        thread_id=thread_id,
        ns=ns,
        id=checkpoint_id,
        parent_id=parent_id,
        body=body,
        metadata=metadata,
        apart=channels,
        run_id=run_id,
        seq=seq,
    )


def _put(steps: Sequence[Superstep], writes: Sequence[TaskWrites], fence: int | None) -> Work[None]:
    thread_id, ns = steps[0].checkpoint.thread_id, steps[0].checkpoint.ns
    yield from guard(thread_id, fence)
    for task in writes:
        yield from _insert_writes(thread_id, ns, task)
    for step in steps:
        yield from _insert_checkpoint(step.checkpoint, step.builds_on_parent)
    values = [(thread_id, ns, *value) for step in steps for value in step.values]
    if values:
        yield Many(INSERT_VALUE, values)


def checkpoint_row(checkpoint: StoredCheckpoint) -> tuple[Value, ...]:
    """In the order of COLUMNS."""
    return (
        checkpoint.thread_id,
        checkpoint.ns,
        checkpoint.id,
        checkpoint.parent_id,
        checkpoint.body,
        checkpoint.metadata,
        dump(checkpoint.apart),
        checkpoint.run_id,
    )


def _insert_checkpoint(checkpoint: StoredCheckpoint, builds_on_parent: bool) -> Work[None]:
    sql = INSERT_ON_PARENT if builds_on_parent else INSERT_CHECKPOINT
    rows = yield Statement(sql, checkpoint_row(checkpoint))
    if not rows:
        yield from refuse_if_buried(checkpoint.thread_id)
        raise ParentGone(f"thread {checkpoint.thread_id!r}: checkpoint {checkpoint.parent_id!r}")


def _of(table: str, columns: str) -> str:
    return ", ".join(f"{table}.{column}" for column in columns.split(", "))


def _page(where: list[str], args: list[Value], below: int | None, limit: int) -> Statement:
    conditions = where
    if below is not None:
        args = [*args, below]
        conditions = [*where, f"seq < ${len(args)}"]
    return Statement(
        f"SELECT {COLUMNS}, seq FROM checkpoints WHERE {' AND '.join(conditions) or 'TRUE'}"
        f" ORDER BY seq DESC LIMIT ${len(args) + 1}",
        (*args, limit),
    )


def _seq_of(thread_id: str | None, checkpoint_id: str) -> Work[int | None]:
    where, args = ("id = $1", [checkpoint_id])
    if thread_id is not None:
        where, args = ("thread_id = $2 AND id = $1", [checkpoint_id, thread_id])
    rows = yield Statement(f"SELECT MIN(seq) FROM checkpoints WHERE {where}", args)
    return None if rows[0][0] is None else int(rows[0][0])


def _caused_before(checkpoints: list[StoredCheckpoint], bound: int) -> Work[list[StoredCheckpoint]]:
    """Leave out what a subgraph stored under a checkpoint that came later than the bound.

    LangGraph stores in the background: a subgraph's checkpoint may be there before the one it runs under.
    """
    parents = {checkpoint.id: _parents(checkpoint) for checkpoint in checkpoints if checkpoint.ns}
    later: set[str] = set()
    for some in _chunks({parent for ids in parents.values() for parent in ids}):
        rows = yield Statement(
            f"SELECT id FROM checkpoints WHERE thread_id = $1 AND seq >= $2"
            f" AND id IN ({placeholders(3, len(some))})",
            (checkpoints[0].thread_id, bound, *some),
        )
        later |= {row[0] for row in rows}
    return [c for c in checkpoints if later.isdisjoint(parents.get(c.id, ()))]


def _parents(checkpoint: StoredCheckpoint) -> list[str]:
    """The checkpoints of the graphs around a subgraph's, which its metadata names."""
    metadata = load(checkpoint.metadata)
    parents = metadata.get("parents") if isinstance(metadata, dict) else None
    return [p for p in parents.values() if isinstance(p, str)] if isinstance(parents, dict) else []


def _writes_of(thread_id: str, ns: str, checkpoint_ids: Collection[str]) -> Work[list[TaskWrites]]:
    found: list[TaskWrites] = []
    for some in _chunks(checkpoint_ids):
        rows = yield Statement(
            "SELECT checkpoint_id, task_id, path, entries, data FROM checkpoint_writes"
            f" WHERE thread_id = $1 AND ns = $2 AND checkpoint_id IN ({placeholders(3, len(some))})",
            (thread_id, ns, *some),
        )
        found += [
            TaskWrites(checkpoint_id=row[0], task_id=row[1], writes=unpack_writes(*row[2:])) for row in rows
        ]
    return found


def _insert_writes(thread_id: str, ns: str, task: TaskWrites) -> Work[None]:
    rows = yield Statement(INSERT_WRITES, writes_row(thread_id, ns, task))
    if not rows:
        yield from refuse_if_buried(thread_id)
        yield from _merge_writes(thread_id, ns, task)


def _merge_writes(thread_id: str, ns: str, new: TaskWrites) -> Work[None]:
    """The task wrote before: an interrupted one does so each time it is resumed."""
    where = "thread_id = $1 AND ns = $2 AND checkpoint_id = $3 AND task_id = $4"
    key = (thread_id, ns, new.checkpoint_id, new.task_id)
    rows = yield Statement(
        f"SELECT path, entries, data FROM checkpoint_writes WHERE {where} {FOR_UPDATE}", key
    )
    if not rows:
        raise Conflict(f"thread {thread_id!r}: writes of task {new.task_id!r} were removed meanwhile")
    merged = {write.idx: write for write in unpack_writes(*rows[0])}
    for write in new.writes:
        if write.idx < 0 or write.idx not in merged:
            merged[write.idx] = write
    entries, data = pack_writes(list(merged.values()), rows[0][0])
    yield Statement(
        f"UPDATE checkpoint_writes SET entries = $5, data = $6 WHERE {where}", (*key, entries, data)
    )


def _values_of(
    thread_id: str,
    ns: str,
    versions: Mapping[str, Collection[str]],
    held: Mapping[str, str],
) -> Work[list[ChannelValue]]:
    """Each channel's values from the root of the oldest to the newest: one range of the key, whatever the chain."""
    selects: list[str] = []
    args: list[Value] = [thread_id, ns]
    for channel, wanted in versions.items():
        newest = max(wanted)
        args += (channel, newest)
        channel_at, newest_at = len(args) - 1, len(args)
        oldest = f"IN ({placeholders(len(args) + 1, len(wanted))})"
        args += wanted
        floor = ""
        if (had := held.get(channel)) is not None and had < newest:
            args.append(had)
            floor = f" AND version > ${len(args)}"
        selects.append(
            f"SELECT {VALUE_COLUMNS} FROM checkpoint_blobs WHERE thread_id = $1 AND ns = $2"
            f" AND channel = ${channel_at} AND version <= ${newest_at}{floor}"
            " AND version >= (SELECT MIN(COALESCE(root, version)) FROM checkpoint_blobs"
            f" WHERE thread_id = $1 AND ns = $2 AND channel = ${channel_at} AND version {oldest})"
        )
    found: list[ChannelValue] = []
    if selects:
        rows = yield Statement(" UNION ALL ".join(selects), args)
        found = [ChannelValue(*row) for row in rows]
    return found


def _delete_checkpoints(thread_id: str, ns: str, checkpoint_ids: Sequence[str]) -> Work[None]:
    for some in _chunks(checkpoint_ids):
        ids = placeholders(3, len(some))
        yield Statement(
            f"DELETE FROM checkpoints WHERE thread_id = $1 AND ns = $2 AND id IN ({ids})",
            (thread_id, ns, *some),
        )
        yield Statement(
            f"DELETE FROM checkpoint_writes WHERE thread_id = $1 AND ns = $2 AND checkpoint_id IN ({ids})",
            (thread_id, ns, *some),
        )
    if checkpoint_ids:
        yield from _delete_unused_values(thread_id, ns)


def _delete_unused_values(thread_id: str, ns: str) -> Work[None]:
    """Values stay while a checkpoint names them or another value builds on them."""
    rows = yield Statement("SELECT apart FROM checkpoints WHERE thread_id = $1 AND ns = $2", (thread_id, ns))
    used = {(channel, str(version)) for (apart,) in rows for channel, version in load(apart).items()}
    rows = yield Statement(
        "SELECT channel, version, base FROM checkpoint_blobs WHERE thread_id = $1 AND ns = $2",
        (thread_id, ns),
    )
    bases: dict[tuple[str, str], str | None] = {(channel, version): base for channel, version, base in rows}
    needed: set[tuple[str, str]] = set()
    for channel, version in used:
        link: str | None = version
        while link is not None and (channel, link) not in needed:
            needed.add((channel, link))
            link = bases.get((channel, link))
    yield Many(
        "DELETE FROM checkpoint_blobs WHERE thread_id = $1 AND ns = $2 AND channel = $3 AND version = $4",
        [(thread_id, ns, *key) for key in bases.keys() - needed],
    )


def _needed(newest_first: Sequence[StoredCheckpoint]) -> set[str]:
    """The newest checkpoint, and those back to where each channel that is rebuilt from writes was last stored."""
    by_id = {checkpoint.id: checkpoint for checkpoint in newest_first}
    head: StoredCheckpoint | None = newest_first[0] if newest_first else None
    metadata = load(head.metadata) if head else {}
    counters = metadata.get("counters_since_delta_snapshot") if isinstance(metadata, dict) else None
    rebuilt: set[str] = set(counters) if isinstance(counters, dict) else set()
    needed: set[str] = set()
    while head is not None and head.id not in needed:
        needed.add(head.id)
        rebuilt -= head.apart.keys()
        head = by_id.get(head.parent_id or "") if rebuilt else None
    return needed


def _chunks(items: Iterable[str]) -> Iterable[list[str]]:
    every = list(items)
    return (every[start : start + CHUNK] for start in range(0, len(every), CHUNK))
