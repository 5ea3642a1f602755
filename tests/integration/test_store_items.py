"""Items of the graph store from outside of a graph, with chat histories among them."""

from collections.abc import AsyncIterator

import pytest

from clew.domain.errors import InvalidState
from clew.domain.items import Namespace, history_namespace
from clew.domain.thread import Owner
from clew.history.store_items import StoreItems
from clew.ports.histories import HistoryId, NewMessage, Shape
from clew.stores.sql.histories import HistoryRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.work import Database
from clew.stores.sqlite import open_sqlite
from tests.samples import ANN

pytestmark = pytest.mark.anyio

ACME = Owner(tenant=ANN.tenant)
HERE = history_namespace(("chat_history",), ANN.tenant)


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    async with open_sqlite(None) as db:
        yield db


@pytest.fixture
async def shelf(database: Database) -> StoreItems:
    place = HistoryId(namespace=HERE, key="telegram:1", tenant=ANN.tenant)
    hello = [NewMessage(role="user", content="hello")]
    await HistoryRows(database).append(place, hello, shape=Shape(chunk_size=10))
    return StoreItems(items=ItemRows(database))


async def keys(shelf: StoreItems, owner: Owner, prefix: Namespace = ()) -> list[str]:
    return [item.key for item in await shelf.find(owner, prefix, limit=10, offset=0)]


async def test_a_history_is_shown_to_whom_the_whole_tenant_is_and_to_nobody_else(shelf: StoreItems) -> None:
    at = (*HERE, "telegram:1")
    assert await keys(shelf, ACME) == ["__meta__", "chunk:000000"]
    assert await shelf.get(ACME, at, "__meta__") is not None
    assert await shelf.namespaces(ACME, limit=10, offset=0) == [at]
    for other in (ANN, Owner(tenant="rival")):
        assert await keys(shelf, other) == await keys(shelf, other, at) == []
        assert await shelf.get(other, at, "__meta__") is None
        assert await shelf.get(other, at, "chunk:000000") is None
        assert await shelf.namespaces(other, limit=10, offset=0) == []


async def test_a_history_cannot_be_written_or_prepared(shelf: StoreItems) -> None:
    before = await shelf.find(ACME, (), limit=10, offset=0)
    for key in ("telegram:1", "telegram:2"):
        for at in ((*HERE, key), HERE, HERE[:1]):
            with pytest.raises(InvalidState):
                await shelf.put(ACME, at, "__meta__", {"last_seq": 0})
            with pytest.raises(InvalidState):
                await shelf.delete(ACME, at, "__meta__")
    assert await shelf.find(ACME, (), limit=10, offset=0) == before
