"""Spending: tokens by tenant, user, graph, model and day. No thread is named, so that sums outlive their threads."""

from collections.abc import Sequence
from datetime import date, timedelta

from clew.domain.events import Event
from clew.domain.profile import EPOCH, SpendingLimit, Spent, day_number, spent_in
from clew.domain.thread import Owner, Thread
from clew.ports.guards import SpendingRoom
from clew.ports.spending import SpendingGroup
from clew.stores.sql.ownership import owned
from clew.stores.sql.work import Statement, Tables, Value, Work, reads

_ADD = (
    "INSERT INTO token_usage (tenant, user_id, graph, model, day, tokens_in, tokens_out)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, user_id, graph, model, day) DO UPDATE SET"
    " tokens_in = token_usage.tokens_in + excluded.tokens_in,"
    " tokens_out = token_usage.tokens_out + excluded.tokens_out"
)
_COLUMNS = {"graph": "graph", "user": "user_id", "tenant": "tenant", "day": "day", "model": "''"}


class SpendingRows(Tables):
    """The Spending port on a SQL database."""

    @reads
    def spent(
        self, owner: Owner | None, *, by: SpendingGroup, since: date, until: date
    ) -> Work[Sequence[Spent]]:
        mine, args = owned(owner, 3)
        rows = yield Statement(
            f"SELECT {_COLUMNS[by]} AS name, model, SUM(tokens_in), SUM(tokens_out) FROM token_usage"
            f" WHERE day >= $1 AND day <= $2{mine} GROUP BY 1, 2 ORDER BY 1, 2",
            (day_number(since), day_number(until), *args),
        )
        return [
            Spent(
                name=str(EPOCH + timedelta(days=name)) if by == "day" else name,
                model=model,
                tokens_in=int(tokens_in),
                tokens_out=int(tokens_out),
            )
            for name, model, tokens_in, tokens_out in rows
        ]


def add_spent(thread: Thread, events: Sequence[Event]) -> Work[None]:
    """The last statements of a commit: the rows are shared by all threads of an owner."""
    for spent in spent_in(events):
        yield Statement(
            _ADD,
            (
                thread.owner.tenant,
                thread.owner.user_id,
                thread.graph,
                spent.model,
                day_number(events[-1].at.date()),
                spent.tokens_in,
                spent.tokens_out,
            ),
        )


def require_budget(thread: Thread, room: SpendingRoom, since: date, until: date) -> Work[None]:
    """Raises BudgetSpent. Rounds under way have not reported all they use, so several may exceed a budget together."""
    owner, limits = thread.owner, room.limits
    wanted: list[tuple[SpendingLimit, str, str, tuple[Value, ...]]] = [
        (limits.tenant, "this tenant", "tenant = $2", (owner.tenant,)),
        (limits.graph, f"the graph {thread.graph!r}", "graph = $2", (thread.graph,)),
    ]
    if owner.user_id:
        mine = "tenant = $2 AND user_id = $3"
        wanted.append((limits.user, "this user", mine, (owner.tenant, owner.user_id)))
    for limit, what, where, args in wanted:
        if limit:
            rows = yield Statement(
                "SELECT model, SUM(tokens_in), SUM(tokens_out) FROM token_usage"
                f" WHERE day >= $1 AND {where} GROUP BY model",
                (day_number(since), *args),
            )
            spent = [Spent(model=row[0], tokens_in=int(row[1]), tokens_out=int(row[2])) for row in rows]
            limit.require_left(what, spent, room.prices, until=until)
