"""Cluster state: leases of cluster-wide jobs, their schedule, the clock, and used signatures."""

from collections.abc import Callable
from datetime import datetime, timedelta

from clew.domain import retention
from clew.domain.errors import LostLease
from clew.domain.retention import Ticks
from clew.stores.codec import MICROSECOND, maybe_micros, maybe_moment, micros, moment
from clew.stores.sql.work import FOR_UPDATE, Statement, Tables, Work, writes

CLOCK = "clock"
# Every process reads the clock all the time; a tick is stored once a minute.
TICK = timedelta(minutes=1)


class ClusterStateRows(Tables):
    """The ClusterState port on a SQL database."""

    @writes
    def tick(self, *, now: datetime) -> Work[Ticks]:
        rows = yield Statement(
            f"SELECT last_at, jumped_at FROM duties WHERE name = $1 {FOR_UPDATE}", (CLOCK,)
        )
        before = Ticks(last_at=moment(rows[0][0]), jumped_at=maybe_moment(rows[0][1])) if rows else None
        ticks = retention.tick(before, now=now)
        if before is None or abs(now - before.last_at) >= TICK:
            yield Statement(
                "INSERT INTO duties (name, last_at, jumped_at) VALUES ($1, $2, $3) ON CONFLICT (name)"
                " DO UPDATE SET last_at = excluded.last_at, jumped_at = excluded.jumped_at",
                (CLOCK, micros(ticks.last_at), maybe_micros(ticks.jumped_at)),
            )
        return ticks

    @writes
    def use_up(self, signature: str, *, now: datetime, believed: timedelta) -> Work[bool]:
        yield Statement("DELETE FROM used_signatures WHERE used_at < $1", (micros(now - believed),))
        rows = yield Statement(
            "INSERT INTO used_signatures (signature, used_at) VALUES ($1, $2)"
            " ON CONFLICT (signature) DO NOTHING RETURNING 1",
            (signature, micros(now)),
        )
        return bool(rows)


def is_turn(name: str, is_due: Callable[[datetime], bool], *, now: datetime) -> Work[bool]:
    """Whether it is time for something that happens now and then. Other processes wait until this transaction ends."""
    rows = yield Statement(f"SELECT last_at FROM duties WHERE name = $1 {FOR_UPDATE}", (name,))
    if not rows:
        # Of two first callers at once, the second starts to count a moment later.
        yield Statement(
            "INSERT INTO duties (name, last_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
            (name, micros(now)),
        )
        return False
    last = moment(rows[0][0])
    if last > now:  # it was taken by a clock that was wrong
        yield from take_turn(name, now=now)
        return False
    return is_due(last)


def take_turn(name: str, *, now: datetime) -> Work[None]:
    yield Statement("UPDATE duties SET last_at = $2 WHERE name = $1", (name, micros(now)))


def claim(name: str, runner: str, lease: timedelta) -> Work[bool]:
    """Lease a job that no runner has. Time is the database's."""
    rows = yield Statement(
        "INSERT INTO duties (name, owner, lease_until) VALUES ($1, $2, clew_now() + $3) ON CONFLICT (name)"
        " DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until"
        " WHERE duties.owner IS NULL OR duties.lease_until <= clew_now() RETURNING 1",
        (name, runner, lease // MICROSECOND),
    )
    return bool(rows)


def heartbeat(name: str, runner: str, lease: timedelta) -> Work[None]:
    """Prolong the lease. Raises LostLease if another runner has it."""
    rows = yield Statement(
        "UPDATE duties SET lease_until = clew_now() + $3 WHERE name = $1 AND owner = $2 RETURNING 1",
        (name, runner, lease // MICROSECOND),
    )
    if not rows:
        raise LostLease(f"another process holds the lease of {name} now")


def release(name: str, runner: str) -> Work[None]:
    yield Statement(
        "UPDATE duties SET owner = NULL, lease_until = NULL WHERE name = $1 AND owner = $2", (name, runner)
    )
