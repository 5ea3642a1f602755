"""Job queue on Postgres: a job for each thread that can be claimed, in Procrastinate's tables."""

from collections.abc import Collection

from clew.ports.guards import Caps
from clew.stores.sql.caps import LEASED, Running
from clew.stores.sql.claims import CLAIMABLE
from clew.stores.sql.work import Database, Statement, Tables, Texts, Work, reads, writes

# How many threads are enqueued at most in one transaction.
BATCH = 1000

_HAS_JOB = (
    "(EXISTS (SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = threads.id AND status = 'todo')"
    " OR EXISTS (SELECT 1 FROM procrastinate_jobs WHERE lock = threads.id AND status = 'doing'))"
)
_LOST = f"threads WHERE {CLAIMABLE} AND NOT {_HAS_JOB}"
# What runs, and what a job is there for: it will run at once, or not at all.
_COUNT_BUSY = Statement(
    "SELECT tenant, user_id, graph, COUNT(*) FROM threads WHERE status = 'running' AND deleted_at IS NULL"
    f" AND (lease_until > clew_now() OR {_HAS_JOB}) GROUP BY tenant, user_id, graph"
)
# A job that a worker has taken, while no runner holds its thread.
_UNLEASED = (
    "status = 'doing' AND task_name LIKE 'clew.%'"
    f" AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = lock AND {LEASED})"
)


class JobQueueRows(Tables):
    """The JobQueue port on Postgres."""

    def __init__(self, db: Database, caps: Caps | None = None) -> None:
        """`caps` on threads that run at once: a job of one that may not run yet would end without effect, again and again."""
        super().__init__(db)
        self._caps = caps

    @writes
    def enqueue_lost(self) -> Work[int]:
        if self._caps is None:
            rows = yield Statement(f"SELECT id, clew_enqueue(id) FROM {_LOST} LIMIT {BATCH}")
            return len(rows)
        running = Running(self._caps, (yield _COUNT_BUSY))
        free, full = running.others(1)
        rows = yield Statement(
            f"SELECT id, tenant, user_id, graph FROM {_LOST}{free}"
            f" ORDER BY lease_until NULLS LAST, rank, start_tag, queued_at LIMIT {BATCH}",
            full,
        )
        lost = [thread_id for thread_id, *whose in rows if running.joined(*whose)]
        yield from enqueue(lost)
        return len(lost)

    @reads
    def unleased(self) -> Work[Collection[int]]:
        rows = yield Statement(f"SELECT id FROM procrastinate_jobs WHERE {_UNLEASED}")
        return {number for (number,) in rows}

    @writes
    def put_back(self, jobs: Collection[int]) -> Work[int]:
        rows = yield Statement(
            "DELETE FROM procrastinate_jobs WHERE id IN (SELECT CAST(value AS BIGINT) FROM unnest($1::text[]) AS value)"
            f" AND {_UNLEASED} RETURNING lock",
            (Texts(str(number) for number in jobs),),
        )
        yield from enqueue([lock for (lock,) in rows])
        return len(rows)


def enqueue(thread_ids: Collection[str]) -> Work[None]:
    """Enqueue those of these threads that can be claimed."""
    if thread_ids:
        yield Statement("SELECT clew_enqueue(id) FROM unnest($1::text[]) AS id", (Texts(sorted(thread_ids)),))


def replace_jobs(thread_ids: Collection[str]) -> Work[None]:
    """The jobs of a process that died, which had these threads: others take their place."""
    yield Statement(
        "DELETE FROM procrastinate_jobs WHERE status = 'doing' AND lock = ANY($1::text[])",
        (Texts(thread_ids),),
    )
    yield from enqueue(thread_ids)
