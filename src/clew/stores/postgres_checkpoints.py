"""Checkpoint writes on Postgres: what a run stores of a step goes in one statement, one round trip and one fsync."""

from collections.abc import Iterable, Sequence

import asyncpg

from clew.domain.errors import Unavailable
from clew.ports.checkpoints import Superstep, TaskWrites
from clew.stores.postgres import PostgresDatabase
from clew.stores.postgres_errors import Met
from clew.stores.sql.checkpoints import COLUMNS, VALUE_COLUMNS, CheckpointRows, checkpoint_row
from clew.stores.sql.task_writes import writes_row
from clew.stores.sql.work import Value

_WRITE_COLUMNS = "checkpoint_id, task_id, path, entries, data"
_OWN_COLUMNS = COLUMNS.removeprefix("thread_id, ns, ")

# The same rules as in sql/checkpoints.py, for the writes of a run: it holds the thread under its fence. What does not fit
# leaves no row, and nothing is written: the run lost the thread, a parent is gone, or a task wrote before.
STATEMENT = f"""
WITH held AS (
    SELECT 1 FROM threads WHERE id = $1 AND fence = $3 FOR SHARE
), sound AS (
    SELECT 1 FROM held
    WHERE ($4::text IS NULL OR EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = $1 AND id = $4 AND ns = $2))
        AND NOT EXISTS (
            SELECT 1 FROM unnest($5::text[], $6::text[]) AS g (checkpoint_id, task_id) JOIN checkpoint_writes AS w
            ON w.thread_id = $1 AND w.checkpoint_id = g.checkpoint_id AND w.ns = $2 AND w.task_id = g.task_id
        )
), written AS (
    INSERT INTO checkpoint_writes (thread_id, ns, {_WRITE_COLUMNS})
    SELECT $1, $2, g.* FROM unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[]) AS g, sound
), stored AS (
    INSERT INTO checkpoints (thread_id, ns, {_OWN_COLUMNS})
    SELECT $1, $2, {", ".join(f"g.{column}" for column in _OWN_COLUMNS.split(", "))}
    FROM unnest($10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
        WITH ORDINALITY AS g ({_OWN_COLUMNS}, number), sound
    ORDER BY g.number
    ON CONFLICT (thread_id, id, ns) DO UPDATE SET parent_id = excluded.parent_id, body = excluded.body,
        metadata = excluded.metadata, apart = excluded.apart, run_id = excluded.run_id
), added AS (
    INSERT INTO checkpoint_blobs (thread_id, ns, {VALUE_COLUMNS})
    SELECT $1, $2, g.* FROM unnest(
        $16::text[], $17::text[], $18::text[], $19::bytea[], $20::text[], $21::text[], $22::text[]) AS g, sound
    ON CONFLICT (thread_id, ns, channel, version) DO NOTHING
)
SELECT 1 FROM sound
"""  # noqa: S608 - constants and placeholders


class PostgresCheckpoints(CheckpointRows):
    """Checkpoints on Postgres. Whatever one statement cannot decide goes the common way, which says why."""

    def __init__(self, db: PostgresDatabase) -> None:
        super().__init__(db)
        self._postgres = db

    async def put_at_once(
        self, steps: Sequence[Superstep], writes: Sequence[TaskWrites], fence: int | None
    ) -> bool:
        ids = {step.checkpoint.id for step in steps}
        parents = {step.checkpoint.parent_id for step in steps if step.builds_on_parent} - ids
        if fence is None or len(parents) > 1 or self._db.cipher.is_active:
            return False
        first = steps[0].checkpoint
        try:
            rows = await self._postgres.fetch(
                STATEMENT,
                *(first.thread_id, first.ns, fence, next(iter(parents), None)),
                *_columns((writes_row(first.thread_id, first.ns, task) for task in writes), 5),
                *_columns((checkpoint_row(step.checkpoint) for step in steps), 6),
                *_columns(((None, None, *value) for step in steps for value in step.values), 7),
            )
        except (Unavailable, Met, asyncpg.PostgresError):
            return False  # perhaps it is stored: to store it again changes nothing
        return bool(rows)


def _columns(rows: Iterable[Sequence[Value]], number: int) -> list[list[Value]]:
    """One list for each column but the first two, which all rows share."""
    every = [row[2:] for row in rows]
    return [[row[n] for row in every] for n in range(number)]
