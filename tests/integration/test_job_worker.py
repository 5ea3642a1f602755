"""What Procrastinate's worker does not survive by itself, and what a run must not notice of it."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from clew.domain.thread import Status
from clew.engine.commands import Request
from clew.server.services import ProcessRole
from clew.stores.sql.work import Database
from tests.app import open_house
from tests.databases import query
from tests.waiting import until

pytestmark = pytest.mark.anyio

WORKERS = {"CLEW_RUNNER_KIND": "workers"}


@asynccontextmanager
async def without(db: Database, function: str) -> AsyncGenerator[None]:
    """Inside the block this function of the engine fails each of its calls."""
    await query(db, f"ALTER FUNCTION {function} RENAME TO gone")
    yield
    await query(db, f"ALTER FUNCTION gone RENAME TO {function}")


async def jobs(db: Database) -> list[str]:
    return [status for (status,) in await query(db, "SELECT status FROM procrastinate_jobs")]


async def test_a_job_that_its_worker_cannot_finish_holds_up_no_later_round(
    postgres_url: str, tmp_path: Path
) -> None:
    """Its worker lives, so nothing of the engine's puts it back; and a job that is at work keeps the next one from beginning."""
    async with open_house(postgres_url, tmp_path, **WORKERS) as house:
        db = house.app.stores.db
        async with without(db, "procrastinate_finish_job_v1"):
            first = await house.run("two_steps", log=[])
            assert await jobs(db) == ["doing"]
            second = await house.app.execution.commands.next_round(
                first.id, None, Request(graph_input={"log": []})
            )
            assert (await house.rest(second)).status is Status.COMPLETED

        async def none_left() -> bool:
            return not await jobs(db)

        await until(none_left)


async def test_a_worker_loop_that_ends_begins_anew(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        api = open_house(postgres_url, tmp_path, ProcessRole(has_runner=False), **WORKERS)
        house = await stack.enter_async_context(api)
        async with without(house.app.stores.db, "procrastinate_register_worker_v1"):
            worker = open_house(postgres_url, tmp_path, ProcessRole(listens=False), **WORKERS)
            await stack.enter_async_context(worker)
            thread = await house.start("two_steps", log=[])
            await until(lambda: "the job worker failed" in caplog.text)
        assert (await house.rest(thread)).status is Status.COMPLETED
