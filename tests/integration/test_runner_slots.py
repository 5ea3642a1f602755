"""A thread that is opened where there is a place for it runs there, without a claim of its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.domain.errors import Conflict, Unavailable
from clew.domain.events import Opening
from clew.domain.lifecycle import Change, Stamp, open_thread
from clew.domain.thread import Owner, Status, Thread
from clew.engine.commands import Request
from tests.app import House, open_house
from tests.databases import query
from tests.waiting import until

pytestmark = pytest.mark.anyio

ONE = {"CLEW_RUNNER_CONCURRENCY": "1"}  # and polls and leases so long that nobody waits for one


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    async with open_house(where, tmp_path, **ONE) as house:
        yield house


def opening(house: House, graph: str = "gated", **state: Any) -> Change:
    commands = house.app.execution.commands
    return open_thread(
        commands.new_id(),
        Opening(owner=Owner(), graph=graph),
        None,
        graph_input=state,
        stamp=Stamp(commands.clock(), commands.new_id),
    )


async def held(house: House, thread: Thread) -> tuple[bool, int, int]:
    """Whether somebody has it, its fence, and how often it was taken over."""
    rows = await query(
        house.app.stores.db, f"SELECT lease_owner, fence, recoveries FROM threads WHERE id = '{thread.id}'"
    )
    ((owner, fence, recoveries),) = rows
    return owner is not None, fence, recoveries


def _has_place(house: House) -> bool:
    with suppress(Conflict), house.app.execution.commands.runner.place(opening(house)) as claim:
        raise Conflict("only asking")
    return claim is not None


async def test_it_is_held_from_its_first_moment(house: House, tmp_path: Path) -> None:
    thread = await house.start("slow", marks=str(tmp_path / "marks"))
    assert await held(house, thread) == (True, 1, 0)
    await house.app.execution.commands.stop(thread.id, None)


async def test_so_is_one_that_is_there_in_each_of_its_rounds(house: House, tmp_path: Path) -> None:
    commands = house.app.execution.commands
    thread = await commands.open_idle(commands.new_id(), Opening(owner=Owner(), graph="slow"))
    request = Request(graph_input={"marks": str(tmp_path / "marks")})
    for fence in (1, 3):  # the end of a round takes one, too
        await commands.next_round(thread.id, None, request)
        assert await held(house, thread) == (True, fence, 0)
        await commands.stop(thread.id, None)


async def test_so_is_one_that_goes_on_with_an_answer(house: House) -> None:
    thread = await house.run("gated", log=[])
    assert thread.status is Status.BLOCKED
    _, fence, _ = await held(house, thread)
    await house.app.execution.commands.approve(thread.id, None, approved=True)
    assert await held(house, thread) == (True, fence + 1, 0)
    assert (await house.rest(thread)).status is Status.COMPLETED


async def test_none_of_them_needs_a_runner_to_look_for_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim may pass over a row that another transaction holds at this moment."""

    async def nothing(*_: Any, **__: Any) -> list[Any]:
        return []

    monkeypatch.setattr(type(house.app.stores.threads), "claim", nothing)
    thread = await house.run("gated", log=[])
    await house.app.execution.commands.approve(thread.id, None, approved=True)
    assert (await house.rest(thread)).status is Status.COMPLETED


async def test_where_all_places_are_taken_it_waits_for_one(house: House, tmp_path: Path) -> None:
    commands = house.app.execution.commands
    first = await house.start("slow", marks=str(tmp_path / "marks"))
    second = await house.start("two_steps", log=[])
    third = await house.start("two_steps", log=[])
    assert [await held(house, one) for one in (second, third)] == [(False, 0, 0)] * 2
    await commands.stop(first.id, None)
    assert {(await house.rest(one)).status for one in (second, third)} == {Status.COMPLETED}


async def test_tenants_take_turns_for_the_places(house: House, tmp_path: Path) -> None:
    commands = house.app.execution.commands
    first = await house.start("slow", marks=str(tmp_path / "marks"))
    many = [
        await commands.start(
            Opening(owner=Owner(tenant="many"), graph="two_steps"), Request(graph_input={"log": []})
        )
        for _ in range(10)
    ]
    single = await commands.start(
        Opening(owner=Owner(tenant="single"), graph="two_steps"), Request(graph_input={"log": []})
    )
    await commands.stop(first.id, None)
    for thread in (*many, single):
        await house.rest(thread)
    ended = await query(
        house.app.stores.db, "SELECT tenant FROM threads WHERE graph = 'two_steps' ORDER BY last_active_at"
    )
    assert "single" in [tenant for (tenant,) in ended][:2]


@pytest.mark.parametrize("failure", [Unavailable("the answer was lost"), asyncio.CancelledError()])
async def test_one_that_was_perhaps_opened_is_run_if_it_was(house: House, failure: BaseException) -> None:
    change = opening(house, "two_steps", log=[])
    with suppress(type(failure)), house.app.execution.commands.runner.place(change) as claim:
        assert claim is not None
        await house.app.stores.threads.commit(change, claim)
        raise failure
    thread = await house.rest(change.thread)
    assert thread.status is Status.COMPLETED
    # Held by the place, given back, held by whoever found it; and nobody is taken for dead.
    assert await held(house, thread) == (False, 3, 0)


async def test_one_that_was_perhaps_opened_and_was_not_is_no_trouble(house: House) -> None:
    with pytest.raises(Unavailable), house.app.execution.commands.runner.place(opening(house)):
        raise Unavailable("not even begun")
    assert (await house.run("two_steps", log=[])).status is Status.COMPLETED


async def test_one_that_was_refused_leaves_its_place(house: House, tmp_path: Path) -> None:
    with pytest.raises(Conflict), house.app.execution.commands.runner.place(opening(house)):
        raise Conflict("it is there already")
    await test_it_is_held_from_its_first_moment(house, tmp_path)


async def test_a_promise_is_a_place(house: House, tmp_path: Path) -> None:
    place = house.app.execution.commands.runner.place
    with place(change := opening(house, "slow", marks=str(tmp_path / "marks"))) as claim:
        with place(opening(house)) as other:
            assert other is None
        assert claim is not None
        await house.app.stores.threads.commit(change, claim)
    await house.app.execution.commands.stop(change.thread.id, None)


async def test_one_that_is_opened_while_its_process_ends_is_given_back(where: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        house = await stack.enter_async_context(open_house(where, tmp_path))
        commands, threads = house.app.execution.commands, house.app.stores.threads
        change = opening(house, "two_steps", log=[])
        with commands.runner.place(change) as claim:
            assert claim is not None
            await threads.commit(change, claim)
            ending = asyncio.create_task(stack.aclose())
            await until(lambda: not _has_place(house))
        await ending
    async with open_house(where, tmp_path) as house:
        thread = await house.rest(change.thread)
        assert thread.status is Status.COMPLETED
        assert await held(house, thread) == (False, 3, 0)


async def test_a_thread_whose_row_is_locked_is_claimed_as_soon_as_it_is_free(
    postgres_url: str, tmp_path: Path
) -> None:
    async with open_house(postgres_url, tmp_path, CLEW_RUNNER_POLL_SECONDS="60") as house:
        store, runner = house.app.stores.threads, house.app.execution.commands.runner
        change = opening(house, "two_steps", log=[], marks="")
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await store.commit(change)
            await other.execute("SELECT 1 FROM threads WHERE id = %s FOR UPDATE", (change.thread.id,))
            runner.wake()
            await until(lambda: not runner._wakes)  # type: ignore[attr-defined]
            for _ in range(10):  # meanwhile the runner passes the locked row over
                await store.get(change.thread.id)
        assert (await house.rest(change.thread, seconds=20)).status is Status.COMPLETED
