"""Thread metadata that clients set, and threads found by it."""

from collections.abc import Collection, Mapping

from clew.domain.thread import Json
from clew.ports.thread_metadata import SortKey, ThreadSearch, grown, leaves, readable_leaf, require_few
from clew.stores.codec import legible
from clew.stores.sql.existence import hold_alone
from clew.stores.sql.labels import relabel
from clew.stores.sql.ownership import INDEXED, owned_threads
from clew.stores.sql.work import (
    Statement,
    Tables,
    Texts,
    Value,
    Work,
    among,
    placeholders,
    reads,
    writes,
)

_COLUMN: Mapping[SortKey, str] = {
    "thread_id": "id",
    "status": "status",
    "created_at": "created_at",
    "updated_at": "last_active_at",
    "state_updated_at": "last_active_at",
}


class ThreadMetadataRows(Tables):
    """The ThreadMetadata port on a SQL database."""

    @writes
    def put(self, thread_id: str, labels: Mapping[str, Json]) -> Work[None]:
        yield from hold_alone(thread_id)
        yield from relabel(thread_id, labels)
        ((number,),) = yield Statement("SELECT count(*) FROM labels WHERE thread_id = $1", (thread_id,))
        require_few(number)

    async def of(self, thread_ids: Collection[str]) -> dict[str, dict[str, Json]]:
        run = self._db.glance if len(thread_ids) == 1 else self._db.read
        return await run(lambda: _of(thread_ids))

    @reads
    def find(self, wanted: ThreadSearch) -> Work[list[str]]:
        where, args = _where(wanted)
        order = f"{_COLUMN[wanted.sort_by]} {'DESC' if wanted.descending else 'ASC'}, id"
        rows = yield Statement(
            f"SELECT id FROM threads WHERE {where} ORDER BY {order} LIMIT ${len(args) + 1} OFFSET ${len(args) + 2}",
            (*args, wanted.limit, wanted.offset),
        )
        return [thread_id for (thread_id,) in rows]

    @reads
    def count(self, wanted: ThreadSearch) -> Work[int]:
        where, args = _where(wanted)
        ((number,),) = yield Statement(f"SELECT count(*) FROM threads WHERE {where}", args)
        return int(number)


def _of(thread_ids: Collection[str]) -> Work[dict[str, dict[str, Json]]]:
    rows = yield Statement(
        f"SELECT thread_id, path, value FROM labels WHERE {among('thread_id', 1)}", (Texts(thread_ids),)
    )
    found: dict[str, list[tuple[str, str]]] = {thread_id: [] for thread_id in thread_ids}
    for thread_id, path, value in rows:
        found[thread_id].append((path, value))
    return {thread_id: grown(legible(some, readable_leaf, "labels")) for thread_id, some in found.items()}


def _where(wanted: ThreadSearch) -> tuple[str, tuple[Value, ...]]:
    mine, args = owned_threads(wanted.owner, 1)
    # Temporary threads, which are deleted after their run, are not listed.
    gone = "SELECT 1 FROM run_hooks WHERE run_hooks.thread_id = threads.id AND is_temporary = 1"
    where = f"deleted_at IS NULL AND NOT EXISTS ({gone}){mine}"
    if wanted.ids is not None:
        where += f" AND {among('id', len(args) + 1)}"
        args += (Texts(wanted.ids),)
    if wanted.statuses:
        where += f" AND status IN ({placeholders(len(args) + 1, len(wanted.statuses))})"
        args += tuple(wanted.statuses)
    for path, value in leaves(wanted.labels).items():
        # By the value first: most names are in many threads, most values in few.
        first, second, third = (f"${len(args) + n}" for n in (1, 2, 3))
        where += (
            f" AND id IN (SELECT thread_id FROM labels WHERE path = {first}"
            f" AND substr(value, 1, {INDEXED}) = {second} AND value = {third})"
        )
        args += (path, value[:INDEXED], value)
    return where, args
