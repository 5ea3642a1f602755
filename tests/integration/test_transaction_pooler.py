"""Behind a transaction pooler nothing outlives a transaction, and the fence holds against a process taken for dead."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import asyncpg
import pytest

from clew.domain.events import RoundFinished
from clew.domain.thread import Status
from clew.stores.postgres import open_postgres
from clew.stores.postgres_threads import PostgresThreads
from tests.app import open_house
from tests.contract.test_leases import LONG
from tests.samples import opened
from tests.transaction_pooler import transaction_pooler
from tests.waiting import until

pytestmark = pytest.mark.anyio

KINDS = ("local", "workers")


@pytest.fixture
async def pooled_url(postgres_url: str) -> AsyncGenerator[str]:
    async with transaction_pooler(postgres_url) as url:
        yield url


async def test_each_transaction_has_another_server_connection(pooled_url: str) -> None:
    """As behind PgBouncer: otherwise the other tests here would show nothing."""
    connection = await asyncpg.connect(pooled_url, statement_cache_size=0)
    pids = {await connection.fetchval("SELECT pg_backend_pid()") for _ in range(9)}
    async with connection.transaction():
        one = {await connection.fetchval("SELECT pg_backend_pid()") for _ in range(5)}
    await connection.close()
    assert (len(pids), len(one)) == (3, 1)
    with pytest.raises(asyncpg.ProtocolViolationError):
        await asyncpg.connect(pooled_url, server_settings={"jit": "off"})


async def test_many_callers_share_few_connections(pooled_url: str) -> None:
    url = f"{pooled_url}&pgbouncer=true"
    async with open_postgres(url) as one, open_postgres(url) as other:
        stores = [PostgresThreads(one), PostgresThreads(other)]
        names = [f"t{number}" for number in range(40)]
        await asyncio.gather(*(stores[n % 2].commit(opened(name)) for n, name in enumerate(names)))
        taken = await asyncio.gather(
            *(stores[n % 2].claim(f"r{n}", lease=LONG, limit=10) for n in range(8)),
        )
        left = await stores[0].claim("r", lease=LONG, limit=100)
    claimed = [lease.thread_id for leases in (*taken, left) for lease in leases]
    assert sorted(claimed) == sorted(names)


@pytest.mark.parametrize("kind", KINDS)
async def test_runs_start_are_approved_and_stop(
    kind: str, postgres_url: str, pooled_url: str, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    async with open_house(pooled_url, tmp_path, **_behind(kind, postgres_url)) as house:
        commands = house.app.execution.commands
        gated = await house.run("gated", log=[])
        await commands.approve(gated.id, None, approved=True)
        assert (await house.rest(gated)).status is Status.COMPLETED
        slow = await house.start("slow", marks=str(marks))
        await until(marks.exists)
        await commands.stop(slow.id, None)
        assert (await house.rest(slow)).status is Status.STOPPED


@pytest.mark.parametrize(("kind", "is_pooled"), [("local", False), ("workers", True)])
async def test_a_process_that_is_taken_for_dead_writes_nothing_more(
    kind: str, is_pooled: bool, postgres_url: str, pooled_url: str, tmp_path: Path
) -> None:
    """Both run the thread for a moment. What the first one still does is refused, so nothing is there twice."""
    environ = _behind(kind, postgres_url) if is_pooled else {"CLEW_RUNNER_KIND": kind}
    url = pooled_url if is_pooled else postgres_url
    marks = tmp_path / "marks"
    async with open_house(url, tmp_path, **environ) as one:
        walk = await one.start("walking", log=["x"] * 20, marks=str(marks))
        await until(marks.exists)
        async with open_house(url, tmp_path, **environ, CLEW_RUNNER_CONCURRENCY="4") as other:
            name = one.app.execution.commands.runner.name
            assert await other.app.stores.threads.end_leases(name) == 1
            assert (await one.rest(walk)).status is Status.COMPLETED
            assert len(await other.bodies(walk, RoundFinished)) == 1
            steps = [f"step {number}" for number in range(20, 40)]
            assert (await other.state(walk))["log"] == ["x"] * 20 + steps


def _behind(kind: str, direct: str) -> dict[str, str]:
    return {
        "CLEW_RUNNER_KIND": kind,
        "CLEW_DATABASE_TRANSACTION_POOLER": "yes",
        "CLEW_DATABASE_DIRECT_URL": direct,
    }
