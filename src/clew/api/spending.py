"""/api/usage: tokens that models read and wrote, and what they cost, by graph, user, tenant, model, day or thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import Annotated, Self

from fastapi import APIRouter, Query

from clew.api.access import needs
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import Invalid, NotFound
from clew.domain.events import AssistantMessage
from clew.domain.profile import Price, Spent, spent_in
from clew.ports.authorization import EVERYTHING, FilteredOwner
from clew.ports.clock import Clock
from clew.ports.spending import Spending, SpendingGroup
from clew.ports.threads import Store

DAYS = 30


class SpentOut(WireModel):
    name: str
    """The graph, user, tenant or day; empty for threads without a user, and by model."""
    model: str
    """As its provider calls it; empty if it did not say."""
    tokens_in: int
    tokens_out: int
    cost: float | None
    """By the prices of the settings; None without a price of this model."""

    @classmethod
    def of(cls, spent: Spent, prices: Mapping[str, Price]) -> Self:
        return cls(
            name=spent.name,
            model=spent.model,
            tokens_in=spent.tokens_in,
            tokens_out=spent.tokens_out,
            cost=spent.cost(prices),
        )


class SpendingOut(WireModel):
    since: date | None
    """None for one thread, whose whole life counts."""
    until: date | None
    tokens_in: int
    tokens_out: int
    cost: float | None
    """Of the models that have a price; None if none of them has one."""
    usage: list[SpentOut]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRoutes:
    spending: Spending
    store: Store
    access: ThreadAccess
    prices: Mapping[str, Price]
    clock: Clock

    def router(self) -> APIRouter:
        router = Router(prefix="/api/usage", tags=["threads"])
        router.get("", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(self.token_usage)
        return router

    async def token_usage(
        self,
        caller: Caller,
        by: Annotated[
            SpendingGroup, Query(description="`tenant` shows all tenants to keys with the scope `operator`.")
        ] = "graph",
        since: Annotated[
            date | None, Query(description="First day, in UTC; default: 29 days before the last.")
        ] = None,
        until: Annotated[date | None, Query(description="Last day; default: today.")] = None,
        thread_id: Annotated[
            str | None, Query(max_length=256, description="Only this thread, by model, over its whole life.")
        ] = None,
    ) -> SpendingOut:
        """Tokens and cost of the caller's model calls. Deleted threads count."""
        if thread_id is not None:
            return await self._of_thread(caller, thread_id)
        if isinstance(caller.owner, FilteredOwner) and caller.owner.threads is not EVERYTHING:
            raise Invalid("sums are of all threads, and you may see some: name one", field="thread_id")
        last = until or self.clock().astimezone(UTC).date()
        first = since or last - min(timedelta(days=DAYS - 1), last - date.min)
        if first > last:
            raise Invalid("expected a day that is not after `until`", field="since")
        owner = None if by == "tenant" and "operator" in caller.scopes else caller.owner
        return self._out(await self.spending.spent(owner, by=by, since=first, until=last), first, last)

    async def _of_thread(self, caller: Caller, thread_id: str) -> SpendingOut:
        thread = await self.access.at(thread_id, caller.owner)
        log = await self.store.read(thread.id, types=(AssistantMessage.type,))
        return self._out(spent_in(log), None, None)

    def _out(self, spent: Sequence[Spent], first: date | None, last: date | None) -> SpendingOut:
        shown = [SpentOut.of(one, self.prices) for one in spent]
        costs = [one.cost for one in shown if one.cost is not None]
        return SpendingOut(
            since=first,
            until=last,
            tokens_in=sum(one.tokens_in for one in shown),
            tokens_out=sum(one.tokens_out for one in shown),
            cost=sum(costs) if costs else None,
            usage=shown,
        )


def spending_router(
    store: Store, spending: Spending, prices: Mapping[str, Price], access: ThreadAccess, clock: Clock
) -> APIRouter:
    return SpendingRoutes(spending=spending, store=store, access=access, prices=prices, clock=clock).router()
