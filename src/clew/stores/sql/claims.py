"""Claims: which waiting threads a runner leases, in which order, and within which caps."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from clew.domain.records import Lease
from clew.ports.guards import Caps
from clew.stores.codec import MICROSECOND
from clew.stores.sql.caps import COUNT_RUNNING, Running, take_lock
from clew.stores.sql.turns import WAITING, record_turns
from clew.stores.sql.work import SKIP_CHANGING, Row, Statement, Texts, Value, Work, placeholders

EXPIRED = "status = 'running' AND deleted_at IS NULL AND lease_until <= clew_now()"
CLAIMABLE = "status = 'running' AND deleted_at IS NULL AND (lease_until IS NULL OR lease_until <= clew_now())"
# A lease that ran out while a runner held it means that the runner died: that is a recovery.
RECOVERIES = "recoveries + CASE WHEN lease_owner IS NULL THEN 0 ELSE 1 END"


def of_graphs(graphs: Collection[str], first: int) -> str:
    return f" AND graph IN ({placeholders(first, len(graphs))})" if graphs else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which threads a runner can claim."""

    graphs: Collection[str]
    alive: Collection[str]
    recovered: tuple[int, int] | None

    def condition(self, first: int) -> tuple[str, list[Value]]:
        """With its arguments from number `first` on; argument 1 is the runner."""
        # Few lengths, so that there are few statements to prepare.
        here = [*self.alive, *[""] * (2 ** len(self.alive).bit_length() - len(self.alive))]
        where = of_graphs(self.graphs, first)
        if self.alive:
            these = placeholders(first + len(self.graphs), len(here))
            where += f" AND (COALESCE(lease_owner, '') <> $1 OR id NOT IN ({these}))"
        if self.recovered is not None:
            where += f" AND {RECOVERIES} BETWEEN {self.recovered[0]:d} AND {self.recovered[1]:d}"
        return where, [*self.graphs, *(here if self.alive else ())]


def claim(
    runner: str, *, lease: timedelta, limit: int, wanted: Wanted, caps: Caps | None
) -> Work[list[Lease]]:
    length = lease // MICROSECOND
    if caps is None:
        where, args = wanted.condition(4)
        claimed: list[Row] = [*(yield _claim(where, (runner, length, limit, *args)))]
    else:
        claimed = yield from _claim_within(caps, runner, length, limit, wanted)
    claimed.sort(key=lambda row: (row[3], row[4]))
    if caps is not None or len(claimed) == limit:
        yield from record_turns((row[3], row[5], row[4]) for row in claimed)
    return [Lease(thread_id=row[0], fence=row[1], recoveries=row[2]) for row in claimed]


def claim_one(
    runner: str, thread_id: str, *, lease: timedelta, recovered: tuple[int, int], caps: Caps | None
) -> Work[Lease | None]:
    """Of a runner that has its threads from a job queue."""
    where = ""
    full: list[Texts] = []
    if caps is not None:
        yield take_lock("claims")
        where, full = Running(caps, (yield COUNT_RUNNING)).others(4)
    rows = yield Statement(
        "UPDATE threads SET fence = fence + 1, lease_until = clew_now() + $3,"
        f" recoveries = CASE WHEN lease_owner = $1 THEN recoveries ELSE {RECOVERIES} END, lease_owner = $1"
        " WHERE id = $2 AND status = 'running' AND deleted_at IS NULL"
        f" AND (lease_owner = $1 OR ((lease_until IS NULL OR lease_until <= clew_now()){where}))"
        f" AND {RECOVERIES} BETWEEN {recovered[0]:d} AND {recovered[1]:d}"
        " RETURNING fence, recoveries, rank, tenant, start_tag",
        (runner, thread_id, lease // MICROSECOND, *full),
    )
    for fence, recoveries, *turn in rows:
        yield from record_turns([turn])
        return Lease(thread_id=thread_id, fence=fence, recoveries=recoveries)
    return None


def _claim_within(caps: Caps, runner: str, length: int, limit: int, wanted: Wanted) -> Work[list[Row]]:
    """One by one, since each one counts."""
    yield take_lock("claims")
    running = Running(caps, (yield COUNT_RUNNING))
    claimed: list[Row] = []
    while len(claimed) < limit:
        free, full = running.others(4)
        where, args = wanted.condition(7)
        rows = yield _claim(free + where, (runner, length, 1, *full, *args))
        if not rows:
            break
        claimed += rows
        running.add(*rows[0][5:8])
    return claimed


def _claim(where: str, args: Sequence[Value]) -> Statement:
    place = "id, lease_until, rank, start_tag, queued_at"
    return Statement(
        "UPDATE threads SET fence = fence + 1, lease_until = clew_now() + $2,"
        f" recoveries = {RECOVERIES}, lease_owner = $1"
        " WHERE id IN (SELECT id FROM ("
        f"SELECT * FROM (SELECT {place} FROM threads WHERE {EXPIRED}{where}"
        f" ORDER BY lease_until LIMIT $3 {SKIP_CHANGING}) AS expired"
        f" UNION ALL SELECT * FROM (SELECT {place} FROM threads WHERE {WAITING}{where}"
        f" ORDER BY rank, start_tag, queued_at LIMIT $3 {SKIP_CHANGING}) AS waiting) AS claimable"
        # What a process left when it died is not behind all that is new.
        " ORDER BY lease_until NULLS LAST, rank, start_tag, queued_at LIMIT $3)"
        " RETURNING id, fence, recoveries, rank, start_tag, tenant, user_id, graph",
        args,
    )
