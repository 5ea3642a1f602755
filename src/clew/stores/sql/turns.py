"""Turns: the order in which waiting threads are claimed, by priority and then fairly between tenants.

This is start-time fair queueing. A thread that begins to wait gets a start tag: the tag of the thread of its priority
that was claimed last, or one turn after the last thread of its own tenant. A tenant of weight 2 has turns of half the
length. Tags are compared within a priority. A thread that is claimed in the commit that opens it needs none.
"""

from collections.abc import Iterable

from clew.stores.sql.work import Many, Row, Statement, Work

# The length of a turn of weight 1.
TURN = 1000

WAITING = "status = 'running' AND deleted_at IS NULL AND lease_until IS NULL"
# Before all priorities: where an operator moves a thread.
FRONT = -100


def turn_of(weight: float) -> int:
    return max(1, round(TURN / weight))


def queueing(priority: int, tenant: int, turn: int) -> dict[str, str]:
    """The columns of a thread that waits from now on; numbers of the arguments for its priority, tenant and turn."""
    rank = f"COALESCE(CAST(${priority} AS BIGINT), 0)"
    of_tenant, length = f"tenant = ${tenant}", f"CAST(${turn} AS BIGINT)"
    current = f"SELECT MAX(tag) FROM turns WHERE priority = {rank}"
    tag = (
        f"(SELECT COALESCE(MAX(tag), 0) FROM (SELECT MAX(tag) AS tag FROM turns WHERE priority = {rank}"
        f" UNION ALL SELECT tag + {length} FROM turns WHERE priority = {rank} AND {of_tenant}"
        f" UNION ALL SELECT MAX(start_tag) + {length} FROM threads WHERE {WAITING} AND {of_tenant} AND rank = {rank}"
        # One that has threads running comes after one that has none.
        f" UNION ALL SELECT COALESCE(({current}), 0) + {length} WHERE EXISTS (SELECT 1 FROM threads"
        f" WHERE status = 'running' AND deleted_at IS NULL AND lease_until IS NOT NULL AND {of_tenant})) AS tags)"
    )
    return {"rank": rank, "queued_at": "clew_now()", "start_tag": tag}


def take_tag(tenant: str, priority: int | None) -> Statement:
    """Before the tag is computed: others that queue threads of this tenant wait until this transaction ends.

    Also where no thread waits yet: of several that begin at once, each would get the first turn."""
    return Statement(
        "SELECT 1 /*+ , pg_advisory_xact_lock(hashtextextended('turn ' || CAST($1 AS TEXT), $2)) */"
        " WHERE CAST($1 AS TEXT) IS NOT NULL AND CAST($2 AS BIGINT) IS NOT NULL",
        (tenant, priority or 0),
    )


def record_turns(claimed: Iterable[Row]) -> Work[None]:
    """Save the tags up to which each tenant had its turns, if others still wait: from here on their order counts.

    Rows are ranks, tenants and start tags."""
    last: dict[tuple[int, str], int] = {}
    for rank, tenant, tag in claimed:
        last[rank, tenant] = max(tag, last.get((rank, tenant), tag))
    # In one order, so that two claims never wait for each other.
    yield Many(
        "INSERT INTO turns (priority, tenant, tag) SELECT CAST($1 AS BIGINT), $2, CAST($3 AS BIGINT)"
        f" WHERE EXISTS (SELECT 1 FROM threads WHERE {WAITING}) ON CONFLICT (priority, tenant)"
        " DO UPDATE SET tag = excluded.tag WHERE turns.tag < excluded.tag",
        [(*key, last[key]) for key in sorted(last)],
    )


def forget_turns() -> Work[None]:
    """Begin at 0 again where no thread waits, so that tags stay small."""
    yield Statement(f"DELETE FROM turns WHERE NOT EXISTS (SELECT 1 FROM threads WHERE {WAITING})")
