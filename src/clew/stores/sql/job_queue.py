"""Job queue on Postgres: a job for each thread that can be claimed, in Procrastinate's tables."""

from collections.abc import Collection

from clew.stores.sql.caps import LEASED
from clew.stores.sql.claims import CLAIMABLE
from clew.stores.sql.work import Statement, Tables, Texts, Work, reads, writes

# How many threads are enqueued at most in one transaction.
BATCH = 1000


# A job that a worker has taken, while no runner holds its thread.
_UNLEASED = (
    "status = 'doing' AND task_name LIKE 'clew.%'"
    f" AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = lock AND {LEASED})"
)


class JobQueueRows(Tables):
    """The JobQueue port on Postgres."""

    @writes
    def enqueue_lost(self) -> Work[int]:
        rows = yield Statement(
            f"SELECT id, clew_enqueue(id) FROM threads WHERE {CLAIMABLE}"
            " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = threads.id AND status = 'todo')"
            " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE lock = threads.id AND status = 'doing')"
            f" LIMIT {BATCH}"
        )
        return len(rows)

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
