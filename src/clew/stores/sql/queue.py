"""Queue rows: what waits, what runs, and the processes of this database."""

from datetime import timedelta

from clew.domain.errors import InvalidState, NotFound
from clew.domain.runs import SOURCE
from clew.domain.thread import Owner
from clew.ports.queue import Process, QueueLoad, WaitingThread
from clew.stores.codec import MICROSECOND, dump, load, micros, moment
from clew.stores.sql.caps import LEASED
from clew.stores.sql.claims import CLAIMABLE
from clew.stores.sql.turns import FRONT, WAITING, forget_turns
from clew.stores.sql.work import Statement, Tables, Value, Work, reads, writes

_WAITED = "clew_now() - COALESCE(lease_until, queued_at, last_active_at)"
_FORGOTTEN = timedelta(hours=1)


class QueueRows(Tables):
    """The QueueState port on a SQL database."""

    @reads
    def loads(self, owner: Owner | None = None) -> Work[list[QueueLoad]]:
        where, args = _of(owner, 1)
        rows = yield Statement(
            f"SELECT graph, tenant, SUM(CASE WHEN {CLAIMABLE} THEN 1 ELSE 0 END),"
            f" SUM(CASE WHEN {LEASED} THEN 1 ELSE 0 END), 0, MAX(CASE WHEN {CLAIMABLE} THEN {_WAITED} ELSE 0 END)"
            f" FROM threads WHERE status = 'running' AND deleted_at IS NULL{where} GROUP BY graph, tenant",
            args,
        )
        behind = yield Statement(
            "SELECT graph, tenant, 0, 0, COUNT(*), 0 FROM inbox JOIN threads ON id = inbox.thread_id"
            f" WHERE source = '{SOURCE}' AND inbox.status = 'queued'{where} GROUP BY graph, tenant",
            args,
        )
        found: dict[tuple[str, str], list[int]] = {}
        for graph, tenant, *numbers in (*rows, *behind):
            before = found.get((graph, tenant), [0, 0, 0, 0])
            found[graph, tenant] = [one + int(more) for one, more in zip(before, numbers, strict=True)]
        return [
            QueueLoad(
                graph=graph,
                tenant=tenant,
                waiting=waiting,
                running=running,
                behind=queued,
                oldest_wait=max(0, waited) * MICROSECOND,
            )
            for (graph, tenant), (waiting, running, queued, waited) in sorted(found.items())
        ]

    @reads
    def waiting(self, owner: Owner | None = None, *, limit: int = 100) -> Work[list[WaitingThread]]:
        where, args = _of(owner, 2)
        rows = yield Statement(
            f"SELECT id, tenant, user_id, graph, COALESCE(priority, 0), rank, {_WAITED} FROM threads"
            f" WHERE {CLAIMABLE}{where} ORDER BY lease_until NULLS LAST, rank, start_tag, queued_at LIMIT $1",
            (limit, *args),
        )
        return [
            WaitingThread(
                thread_id=row[0],
                owner=Owner(tenant=row[1], user_id=row[2]),
                graph=row[3],
                priority=row[4],
                is_first=row[5] == FRONT,
                waited=max(0, row[6]) * MICROSECOND,
            )
            for row in rows
        ]

    @reads
    def require_waiting(self, thread_id: str, owner: Owner | None = None) -> Work[None]:
        yield from _require_waiting(thread_id, owner)

    @writes
    def forget_turns(self) -> Work[None]:
        yield from forget_turns()

    @writes
    def beat(self, process: Process) -> Work[None]:
        yield Statement(
            "INSERT INTO processes (name, host, version, role, slots, graphs, key_id, started_at, beat_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clew_now())"
            " ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at",
            (
                process.name,
                process.host,
                process.version,
                process.role,
                process.slots,
                dump([*process.graphs]),
                self._db.cipher.current,
                micros(process.started_at),
            ),
        )
        yield Statement("DELETE FROM processes WHERE beat_at < clew_now() - $1", (_FORGOTTEN // MICROSECOND,))

    @writes
    def leave(self, name: str) -> Work[None]:
        yield Statement("DELETE FROM processes WHERE name = $1", (name,))

    @reads
    def processes(self) -> Work[list[Process]]:
        rows = yield Statement(
            "SELECT name, host, version, role, slots, graphs, started_at, clew_now() - beat_at,"
            f" (SELECT COUNT(*) FROM threads WHERE {LEASED} AND lease_owner = processes.name)"
            " FROM processes ORDER BY started_at, name"
        )
        return [
            Process(
                name=row[0],
                host=row[1],
                version=row[2],
                role=row[3],
                slots=row[4],
                graphs=load(row[5]),
                started_at=moment(row[6]),
                silent=max(0, row[7]) * MICROSECOND,
                running=row[8],
            )
            for row in rows
        ]


def move_to_front(thread_id: str, owner: Owner | None) -> Work[None]:
    where, args = _of(owner, 2)
    rows = yield Statement(
        f"UPDATE threads SET rank = {FRONT}, start_tag = COALESCE((SELECT MIN(start_tag) FROM threads"
        f" WHERE {WAITING} AND rank = {FRONT}), 1) - 1 WHERE id = $1 AND {CLAIMABLE}{where} RETURNING 1",
        (thread_id, *args),
    )
    if not rows:
        yield from _require_waiting(thread_id, owner)


def _of(owner: Owner | None, first: int) -> tuple[str, list[Value]]:
    if owner is None:
        return "", []
    if not owner.user_id:
        return f" AND tenant = ${first}", [owner.tenant]
    return f" AND tenant = ${first} AND user_id = ${first + 1}", [owner.tenant, owner.user_id]


def _require_waiting(thread_id: str, owner: Owner | None) -> Work[None]:
    where, args = _of(owner, 2)
    rows = yield Statement(
        f"SELECT CASE WHEN {CLAIMABLE} THEN 1 ELSE 0 END FROM threads"
        f" WHERE id = $1 AND deleted_at IS NULL{where}",
        (thread_id, *args),
    )
    if not rows:
        raise NotFound(f"no thread {thread_id!r}")
    if not rows[0][0]:
        raise InvalidState(f"thread {thread_id!r} does not wait for a runner")
