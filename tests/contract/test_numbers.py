"""What every store of numbers must do: one integer for each tenant, user and file, for good."""

import asyncio

import pytest

from clew.stores.sql.numbers import NumberRows
from clew.stores.sql.work import Database
from tests.databases import SHARED, open_database

pytestmark = [pytest.mark.anyio, pytest.mark.accept("004-7")]


async def test_a_number_is_given_once_and_to_nobody_else(database: Database) -> None:
    numbers = NumberRows(database)
    given = await numbers.of("user", "acme", ["ann", "bob", "ann"])
    assert set(given) == {"ann", "bob"}
    others = [
        *given.values(),
        *(await numbers.of("user", "rival", ["ann"])).values(),
        *(await numbers.of("file", "acme", ["ann"])).values(),
        *(await numbers.of("tenant", "acme", ["acme"])).values(),
    ]
    assert len(set(others)) == 5
    assert min(others) > 0
    assert await numbers.of("user", "acme", ["bob", "eve", "ann"]) == {
        **given,
        **(await numbers.of("user", "acme", ["eve"])),
    }
    assert await numbers.of("user", "acme", []) == {}


async def test_a_number_leads_back_to_its_name_in_its_own_tenant_alone(database: Database) -> None:
    numbers = NumberRows(database)
    number = (await numbers.of("file", "acme", ["f1"]))["f1"]
    assert await numbers.name_of("file", "acme", number) == "f1"
    assert await numbers.name_of("file", "rival", number) is None
    assert await numbers.name_of("user", "acme", number) is None
    assert await numbers.name_of("file", "acme", number + 1) is None


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_who_asks_at_once_is_told_the_same(where: str) -> None:
    names = [f"f{n}" for n in range(20)]
    async with open_database(where) as one, open_database(where) as two:
        told = await asyncio.gather(
            *(NumberRows(db).of("file", "acme", names[n:] + names[:n]) for n in range(6) for db in (one, two))
        )
    assert all(each == told[0] for each in told)
    async with open_database(where) as db:
        assert await NumberRows(db).of("file", "acme", names) == told[0], "also after a restart"
