"""Tenants take turns for the slots of a process."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest

from clew.processes.tenant_slots import TenantSlots

pytestmark = pytest.mark.anyio


class Work:
    """Jobs that hold a slot until they are told to end; `order` says who got one, and when."""

    def __init__(self, number: int) -> None:
        self.slots = TenantSlots(number)
        self.order: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def add(self, *names: str) -> None:
        """The first letter of a name is its tenant."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._do(name))
            await asyncio.sleep(0)

    async def _do(self, name: str) -> None:
        async with self.slots.taken(name[0]):
            self.order.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[name]


async def test_a_tenant_has_no_more_than_the_number_and_another_gets_the_spare_one_at_once() -> None:
    work = Work(2)
    await work.add("a1", "a2", "a3", "b1", "b2")
    assert work.order == ["a1", "a2", "b1"]


async def test_a_freed_slot_goes_to_the_tenant_with_the_fewest_then_to_the_first_that_waits() -> None:
    work = Work(2)
    await work.add("a1", "a2", "b1", "a3", "a4", "c1", "b2", "c2")
    await work.end("a1")  # c has none
    assert work.order[3:] == ["c1"]
    await work.end("b1")
    assert work.order[4:] == ["b2"]
    await work.end("a2")
    assert work.order[5:] == ["a3"]
    await work.end("c1")
    assert work.order[6:] == ["c2"]


async def test_all_get_their_turn_and_the_slots_are_free_again() -> None:
    work = Work(1)
    names = [f"{tenant}{number}" for number in range(20) for tenant in "ab"]
    await work.add(*names)
    for _ in names:
        await work.end(next(name for name in work.order if not work.ends[name].is_set()))
    assert sorted(work.order) == sorted(names)
    async with AsyncExitStack() as stack, asyncio.timeout(1):
        await stack.enter_async_context(work.slots.taken("c"))
        await stack.enter_async_context(work.slots.taken("d"))


async def test_a_cancelled_wait_leaves_no_slot_taken() -> None:
    work = Work(1)
    await work.add("a1", "a2", "a3")
    await work.cancel("a2")
    work.ends["a1"].set()
    await work.tasks["a1"]
    await work.cancel("a3")  # which has just got its slot, or is about to
    async with asyncio.timeout(1), work.slots.taken("a"):
        pass
