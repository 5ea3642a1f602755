"""Quotas: how many threads, assistants, crons and bytes of each tenant every database takes."""

import asyncio
from collections.abc import Callable

import pytest

from clew.domain.errors import NotFound, QuotaExceeded
from clew.domain.thread import Owner
from clew.ports.histories import HistoryId, NewMessage, Shape
from clew.ports.threads import Store
from clew.stores.postgres_histories import open_histories
from clew.stores.sql.assistants import AssistantRows
from clew.stores.sql.crons import CronRows
from clew.stores.sql.files import FileRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.quotas import AGAIN_SECONDS, SURE_SECONDS, StoredBytes
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Database
from tests.contract.test_assistants import RIVAL, assistant
from tests.contract.test_crons import job
from tests.contract.test_files import upload
from tests.contract.test_items import put
from tests.samples import ANN, NOW, opened

pytestmark = pytest.mark.anyio


def of_threads(store: Store, most: int) -> ThreadRows:
    assert isinstance(store, ThreadRows)
    store.quota = most
    return store


async def test_a_tenant_opens_no_more_threads_than_it_may(store: Store) -> None:
    threads = of_threads(store, 2)
    for number in range(2):
        await threads.commit(opened(f"t{number}"))
    with pytest.raises(QuotaExceeded, match="this tenant has 2 threads, and may have no more"):
        await threads.commit(opened("t2"))
    with pytest.raises(NotFound):
        await threads.get("t2")
    await threads.commit(opened("other", owner=RIVAL))
    await threads.tombstone("t0", now=NOW)
    await threads.commit(opened("t2"))


async def test_threads_opened_at_once_keep_the_quota(store: Store) -> None:
    threads = of_threads(store, 5)
    outcomes = await asyncio.gather(
        *(threads.commit(opened(f"t{number}")) for number in range(20)), return_exceptions=True
    )
    assert sum(isinstance(one, QuotaExceeded) for one in outcomes) == 15


async def test_a_tenant_has_no_more_assistants_than_it_may(database: Database) -> None:
    assistants = AssistantRows(database)
    assistants.quota = 1
    assert await assistants.add(assistant("a1"), ANN)
    assert not await assistants.add(assistant("a1"), ANN)  # it is there already
    with pytest.raises(QuotaExceeded, match="has 1 assistants"):
        await assistants.add(assistant("a2"), Owner(tenant=ANN.tenant, user_id="bob"))
    with pytest.raises(NotFound):
        await assistants.get("a2", Owner(tenant=ANN.tenant))
    assert await assistants.add(assistant("a2"), RIVAL)


async def test_a_tenant_has_no_more_crons_than_it_may(database: Database) -> None:
    crons = CronRows(database, quota=1)
    await crons.add(job("c1"), most=10)
    with pytest.raises(QuotaExceeded, match="has 1 crons"):
        await crons.add(job("c2", owner=Owner(tenant=ANN.tenant, user_id="bob")), most=10)
    await crons.add(job("c2", owner=RIVAL), most=10)
    await crons.delete("c1", ANN)
    await crons.add(job("c3"), most=10)


class Stored:
    """Everything whose bytes count together, and a clock."""

    def __init__(self, database: Database, most: int, now: Callable[[], float]) -> None:
        self.files, self.items, self.histories = (
            FileRows(database),
            ItemRows(database),
            open_histories(database),
        )
        stored = StoredBytes([database], most, now)
        self.files.stored = self.items.stored = self.histories.stored = stored

    async def keep(self, size: int, owner: Owner = ANN) -> None:
        await self.files.require_room(owner, size)
        await upload(self.files, b"x" * size, owner)

    async def say(self, size: int) -> None:
        place = HistoryId(namespace=("h",), key="k", tenant=ANN.tenant)
        await self.histories.append(place, [NewMessage(role="user", content="é" * size)], shape=Shape())

    async def put(self, size: int) -> None:
        await self.items.change(ANN.tenant, [], [put("a", value="x" * size)])


@pytest.mark.parametrize("where", ["sqlite", "postgres"], indirect=True)
async def test_bytes_of_files_items_and_histories_count_together(database: Database) -> None:
    seconds = [0.0]
    one, other = (Stored(database, 1000, lambda: seconds[0]) for _ in range(2))
    await one.keep(300)
    await one.put(280)
    await one.say(150)  # 300 bytes
    for write in (one.keep, one.put, one.say):
        with pytest.raises(QuotaExceeded, match="may store 1000 bytes of files"):
            await write(200)
    await one.keep(900, RIVAL)
    # Another process sums what this one wrote.
    with pytest.raises(QuotaExceeded):
        await other.keep(200)
    await other.keep(50)
    for each in await one.files.find_files(ANN):
        await one.files.delete_file(each.id)
    seconds[0] += AGAIN_SECONDS + 0.1
    await one.keep(350)
    # What another wrote is noticed after a while.
    seconds[0] += SURE_SECONDS
    await other.put(1)
    with pytest.raises(QuotaExceeded):
        await other.keep(200)
