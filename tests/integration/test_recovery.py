"""What a run meets while it runs: a store that fails, a thread taken away, a graph that will not end."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from clew.domain.events import AssistantMessage, ToolCall, ToolResult
from clew.domain.records import Lease
from clew.domain.thread import Status, Thread
from clew.engine.commands import Request
from clew.failpoints import installed
from tests.databases import SHARED, locate, query
from tests.house import House
from tests.odd_graphs import open_odd_house
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio

QUICK = {"CLEW_RUNNER_POLL_SECONDS": "0.05"}  # and a lease of 30 s: nobody waits for one to run out
SHORT = QUICK | {"CLEW_RUNNER_LEASE_SECONDS": "0.5"}


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    async with open_odd_house(where, tmp_path, **QUICK) as house:
        yield house


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def left(marks: Path) -> list[str]:
    return marks.read_text().split() if marks.exists() else []


async def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def steal(house: House, thread: Thread) -> Lease:
    """Take the thread away from whoever runs it, as another process does when a lease runs out."""
    stores = house.app.stores
    async with asyncio.timeout(10):
        while True:
            await query(stores.db, "UPDATE threads SET lease_until = 0 WHERE id = $1", thread.id)
            for lease in await stores.threads.claim("thief", lease=timedelta(minutes=5), limit=1):
                return lease


class TestStore:
    @pytest.mark.parametrize("action", ["raise", "io_error"])
    @pytest.mark.parametrize("hit", range(3, 9))
    async def test_a_commit_that_fails_leaves_no_thread_hanging(
        self, house: House, action: str, hit: int
    ) -> None:
        with installed(f"commit_begun:{action}@{hit}"):
            try:
                thread = await house.start("agent", "tools: look_up word=clew")
            except Exception:  # noqa: BLE001 - it was told so, which is right
                return
            thread = await house.rest(thread, seconds=10)
        assert thread.status in (Status.COMPLETED, Status.FAILED)

    async def test_the_database_goes_away_under_a_run_and_comes_back(
        self, own_postgres: PostgresServer, tmp_path: Path, marks: Path
    ) -> None:
        url = own_postgres.create_database("clew")
        async with open_odd_house(url, tmp_path, **QUICK) as house:
            done = [await house.start("agent", "slowly: one two three four five six") for _ in range(3)]
            await until(lambda: bool(house.app.execution.commands.drafts))
            await asyncio.to_thread(own_postgres.stop, "immediate")
            await asyncio.sleep(2)
            await asyncio.to_thread(own_postgres.start)
            ended = [await house.rest(thread, seconds=20) for thread in done]
            assert [thread.status for thread in ended] == [Status.COMPLETED] * 3
            for thread in ended:
                assert len(await house.bodies(thread, AssistantMessage)) == 1


class TestRounds:
    async def test_a_round_begun_while_the_old_run_still_unwinds_is_run(
        self, where: str, tmp_path: Path, marks: Path
    ) -> None:
        async with open_odd_house(where, tmp_path, **SHORT) as house:
            commands = house.app.execution.commands
            thread = await house.start("stubborn", log=["be stubborn"], marks=str(marks))
            await until(lambda: "stubborn" in left(marks))
            thread = await commands.stop(thread.id, None)
            again = await commands.next_round(
                thread.id, None, Request(graph_input={"log": ["again"], "marks": str(marks)})
            )
            thread = await house.rest(again)
            assert thread.round == 2

    async def test_a_tool_that_ran_is_not_repeated_when_its_failed_round_is_taken_up(
        self, house: House, marks: Path
    ) -> None:
        thread = await house.run("once_then_fail", marks=str(marks))
        assert thread.status is Status.FAILED
        thread = await house.rest(await house.app.execution.commands.resume(thread.id, None))
        assert thread.status is Status.COMPLETED
        assert left(marks).count("once") == 1
        assert len(await house.bodies(thread, ToolCall)) == 1
        assert len(await house.bodies(thread, ToolResult)) == 1

    async def test_what_a_stopped_round_said_is_not_said_again_after_a_takeover(self, house: House) -> None:
        commands = house.app.execution.commands
        thread = await house.run("agent", "tools: send_mail to=ada")
        thread = await commands.stop(thread.id, None)
        thread = await commands.next_round(
            thread.id, None, Request(message="slowly: one two three four five six seven eight")
        )
        await until(lambda: thread.id in commands.drafts)
        await house.app.stores.threads.release("thief", await steal(house, thread))
        thread = await house.rest(thread)
        assert thread.status is Status.COMPLETED
        assert len(await house.bodies(thread, AssistantMessage)) == 2
        assert len(await house.bodies(thread, ToolCall)) == 1


class TestStop:
    @pytest.mark.accept("001-35")
    async def test_a_node_that_never_stops_talking_can_be_stopped(self, house: House, marks: Path) -> None:
        thread = await house.start("talkative", marks=str(marks))
        await until(lambda: "talks" in left(marks))
        thread = await house.app.execution.commands.stop(thread.id, None)
        assert thread.status is Status.STOPPED
