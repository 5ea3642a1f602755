"""Spending: tokens are summed by owner, graph, model and day, and a round that may spend no more is refused."""

from datetime import date, timedelta

import pytest

from clew.domain.errors import BudgetSpent
from clew.domain.events import AssistantMessage
from clew.domain.profile import Price, SpendingLimit, SpendingLimits, Spent
from clew.domain.thread import Owner
from clew.ports.guards import SpendingRoom
from clew.stores.sql.spending import SpendingRows
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Database
from tests.contract.test_assistants import RIVAL
from tests.databases import open_store
from tests.samples import ANN, NOW, opened, recorded

pytestmark = pytest.mark.anyio

TODAY = NOW.date()


def used(tokens_in: int, tokens_out: int, model: str = "m") -> AssistantMessage:
    return AssistantMessage(content="hi", tokens_in=tokens_in, tokens_out=tokens_out, model=model)


async def spend(
    store: ThreadRows, thread_id: str, *said: AssistantMessage, days: int = 0, **opening: object
) -> None:
    first = opened(thread_id, **opening)  # type: ignore[arg-type]
    await store.commit(first)
    await store.commit(recorded(first.thread, *said, seconds=days * 86_400))


async def test_tokens_are_summed_and_outlive_their_threads(database: Database) -> None:
    store, spending = open_store(database), SpendingRows(database)
    assert isinstance(store, ThreadRows)
    await spend(store, "t1", used(10, 1), used(20, 2), used(1, 1, "other"))
    await spend(store, "t2", used(100, 5), days=1)
    await spend(store, "t3", used(7, 7), graph="coding", owner=Owner(tenant=ANN.tenant, user_id="bob"))
    await spend(store, "r1", used(1000, 0), owner=RIVAL)
    await store.tombstone("t1", now=NOW)
    week = {"since": TODAY - timedelta(days=3), "until": TODAY + timedelta(days=3)}

    async def found(owner: Owner | None, by: str, **days: date) -> list[tuple[str, str, int, int]]:
        rows = await spending.spent(owner, by=by, **(week | days))  # type: ignore[arg-type]
        return [(one.name, one.model, one.tokens_in, one.tokens_out) for one in rows]

    tenant = Owner(tenant=ANN.tenant)
    assert await found(tenant, "graph") == [
        ("chat", "m", 130, 8),
        ("chat", "other", 1, 1),
        ("coding", "m", 7, 7),
    ]
    assert await found(ANN, "graph", until=TODAY) == [("chat", "m", 30, 3), ("chat", "other", 1, 1)]
    assert await found(tenant, "user") == [
        ("ann", "m", 130, 8),
        ("ann", "other", 1, 1),
        ("bob", "m", 7, 7),
    ]
    tomorrow = str(TODAY + timedelta(days=1))
    assert (tomorrow, "m", 100, 5) in await found(tenant, "day")
    assert await found(tenant, "model") == [("", "m", 137, 15), ("", "other", 1, 1)]
    assert (RIVAL.tenant, "m", 1000, 0) in await found(None, "tenant")


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (SpendingLimits(tenant=SpendingLimit(tokens=100)), "this tenant is spent (100 of 100 tokens)"),
        (SpendingLimits(user=SpendingLimit(cost=0.5)), "this user is spent (0.6 of 0.5)"),
        (SpendingLimits(graph=SpendingLimit(tokens=50)), "the graph 'chat' is spent (100 of 50 tokens)"),
    ],
)
async def test_a_spent_budget_refuses_the_next_round(
    database: Database, limits: SpendingLimits, what: str
) -> None:
    store = open_store(database)
    assert isinstance(store, ThreadRows)
    room = SpendingRoom(limits=limits, prices={"m": Price(input=5_000, output=10_000)})
    await store.commit(opened("t0"), room)
    await spend(store, "t1", used(80, 20))
    with pytest.raises(BudgetSpent) as refused:
        await store.commit(opened("t2"), room)
    assert what in str(refused.value)
    assert "begins on 2026-04-01" in str(refused.value)
    await store.commit(opened("t3", seconds=31 * 86_400), room)
    await store.commit(opened("t4", owner=RIVAL, graph="other"), room)


def test_a_price_is_found_by_the_beginning_of_a_model() -> None:
    prices = {"gpt-5": Price(input=1), "gpt-5-mini": Price(input=2)}
    spent = Spent(model="gpt-5-mini-2025-08-07", tokens_in=1_000_000, tokens_out=0)
    assert spent.cost(prices) == 2
    assert Spent(model="gpt-50", tokens_in=1, tokens_out=0).cost(prices) is None
