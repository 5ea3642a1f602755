"""Caps: how many threads of one tenant, user or graph run or wait at once, counted in the transaction that adds one."""

from collections import Counter
from collections.abc import Iterable

from clew.domain.errors import AtCapacity
from clew.domain.runs import SOURCE
from clew.domain.thread import Owner
from clew.ports.guards import Caps
from clew.stores.sql.turns import WAITING
from clew.stores.sql.work import Row, Statement, Texts, Work, among

LEASED = "status = 'running' AND deleted_at IS NULL AND lease_until > clew_now()"


def take_lock(name: str) -> Statement:
    """What other processes count waits until this transaction ends; SQLite has one writer anyway."""
    return Statement(
        "SELECT 1 /*+ , pg_advisory_xact_lock(hashtextextended(CAST($1 AS TEXT), 0)) */"
        " WHERE CAST($1 AS TEXT) IS NOT NULL",
        (name,),
    )


def require_room_behind(thread_id: str, caps: Caps) -> Work[None]:
    """The same for a run that was queued behind another one of its thread."""
    rows = yield Statement("SELECT tenant, user_id, graph FROM threads WHERE id = $1", (thread_id,))
    for tenant, user, graph in rows:
        yield from require_room(Owner(tenant=tenant, user_id=user), graph, caps)


def require_room(owner: Owner, graph: str, caps: Caps) -> Work[None]:
    """After a run of this owner was queued. Raises AtCapacity if more wait now than may."""
    yield take_lock("waiting")
    for cap, what, where, args in (
        (caps.tenant, "this tenant", "tenant = $1", (owner.tenant,)),
        (
            caps.user if owner.user_id else 0,
            "this user",
            "tenant = $1 AND user_id = $2",
            (owner.tenant, owner.user_id),
        ),
        (caps.graph, f"the graph {graph!r}", "graph = $1", (graph,)),
    ):
        if not cap:
            continue
        rows = yield Statement(
            f"SELECT (SELECT COUNT(*) FROM threads WHERE {WAITING} AND {where})"
            " + (SELECT COUNT(*) FROM inbox JOIN threads ON id = inbox.thread_id"
            f" WHERE source = '{SOURCE}' AND inbox.status = 'queued' AND {where})",
            args,
        )
        if rows[0][0] > cap:
            raise AtCapacity(f"{cap} runs of {what} wait already, and no more may; try again later")


class Running:
    """How many threads run now, and which may not be joined by another."""

    def __init__(self, caps: Caps, counted: Iterable[Row]) -> None:
        """`counted` has a tenant, a user, a graph and a number in each row."""
        self._caps = caps
        self._tenants: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._graphs: Counter[str] = Counter()
        for tenant, user, graph, number in counted:
            self.add(tenant, user, graph, number)

    def add(self, tenant: str, user: str, graph: str, number: int = 1) -> None:
        self._tenants[tenant] += number
        if user:
            self._users[f"{tenant} {user}"] += number
        self._graphs[graph] += number

    def joined(self, tenant: str, user: str, graph: str) -> bool:
        """Whether one more may run, which is counted then."""
        is_full = any(
            cap and number >= cap
            for cap, number in (
                (self._caps.tenant, self._tenants[tenant]),
                (self._caps.user if user else 0, self._users[f"{tenant} {user}"]),
                (self._caps.graph, self._graphs[graph]),
            )
        )
        if not is_full:
            self.add(tenant, user, graph)
        return not is_full

    def others(self, first: int) -> tuple[str, list[Texts]]:
        """A condition for threads that no cap keeps from running, and its arguments from number `first` on."""
        full = [
            Texts(sorted(name for name, number in counts.items() if cap and number >= cap))
            for cap, counts in (
                (self._caps.tenant, self._tenants),
                (self._caps.user, self._users),
                (self._caps.graph, self._graphs),
            )
        ]
        columns = ("tenant", "(tenant || ' ' || user_id)", "graph")
        return "".join(f" AND NOT ({among(column, first + n)})" for n, column in enumerate(columns)), full


COUNT_RUNNING = Statement(
    f"SELECT tenant, user_id, graph, COUNT(*) FROM threads WHERE {LEASED} GROUP BY tenant, user_id, graph"
)
