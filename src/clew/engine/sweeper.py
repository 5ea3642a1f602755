"""Chores: periodic clean-up of the database, each a bounded batch, in any process."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from clew.domain.errors import ClewError, Conflict, Corrupt, InvalidState, NotFound
from clew.engine.commands import Commands
from clew.ports.clock import Clock
from clew.ports.files import Files
from clew.ports.inbox import Inbox
from clew.ports.model_calls import ModelCalls
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls

logger = logging.getLogger(__name__)

BATCH = 100
# Requests are repeated within minutes, redelivered within a day; after that their keys are of no use.
REMEMBERED = timedelta(days=2)
# Long enough for the slowest upload to refer to what it sent.
UNREFERENCED = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Done every so many seconds; says whether there is more to do at once."""

    name: str
    seconds: float
    do: Callable[[], Awaitable[bool]]


class Sweeper:
    """Runs the chores. One that fails is tried again at its next turn, and does not stop the others."""

    def __init__(self, chores: Sequence[Chore]) -> None:
        self._chores = chores

    async def run_forever(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for chore in self._chores:
                tasks.create_task(_repeat(chore))


@asynccontextmanager
async def sweeping(chores: Sequence[Chore]) -> AsyncGenerator[None]:
    """Inside the block the chores are done."""
    task = asyncio.create_task(Sweeper(chores).run_forever())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _repeat(chore: Chore) -> None:
    while True:
        # In a task of its own: what cancels one turn does not take all later ones with it.
        async with asyncio.TaskGroup() as turns:
            turn = turns.create_task(_take_turn(chore))
        if turn.cancelled() or not turn.result():
            await asyncio.sleep(chore.seconds)


async def _take_turn(chore: Chore) -> bool:
    try:
        return await chore.do()
    except ClewError as exc:
        logger.warning("chore failed", extra={"chore": chore.name, "code": exc.code})
    except Exception:
        # Whatever was raised, the other chores and the next turn of this one must go on.
        logger.exception("chore failed", extra={"chore": chore.name})
    return False


class ItemSweep(Protocol):
    async def sweep_ttl(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chores:
    """What there is to do, each by its own method."""

    store: Store
    calls: Calls
    audit: ModelCalls
    files: Files
    inbox: Inbox
    items: ItemSweep
    commands: Commands
    clock: Clock
    audit_ttl: timedelta | None
    items_seconds: float = 60

    def all(self) -> list[Chore]:
        chores = [
            Chore(name="expire_calls", seconds=1, do=self.expire_calls),
            Chore(name="rebuild_calls", seconds=600, do=self.rebuild_calls),
            Chore(name="purge", seconds=30, do=self.purge),
            Chore(name="forget_requests", seconds=600, do=self.forget_requests),
            Chore(name="sweep_items", seconds=self.items_seconds, do=self.sweep_items),
            Chore(name="collect_blobs", seconds=600, do=self.collect_blobs),
        ]
        if self.audit_ttl is not None:
            chores.append(Chore(name="trim_audit", seconds=60, do=self.trim_audit))
        return chores

    async def expire_calls(self) -> bool:
        """Expire calls whose deadline passed; their threads continue by themselves."""
        due = await self.calls.due(now=self.clock(), limit=BATCH)
        expired = 0
        for call in due:
            try:
                await self.commands.expire(call)
                expired += 1
            except (Conflict, InvalidState, NotFound):
                continue  # it was answered, stopped or deleted at the same moment, and that counts
            except Corrupt as exc:
                logger.warning("a call cannot expire", extra={"thread_id": call.thread_id, "code": exc.code})
        # Where no call expired, asking again at once would expire none either.
        return expired > 0 and len(due) == BATCH

    async def rebuild_calls(self) -> bool:
        """Rebuild lost rows of pending calls from the log: without them no deadline is found."""
        after = ""
        while lost := await self.calls.lost(after=after, limit=BATCH):
            for thread_id in lost:
                logger.warning("lost tool calls are rebuilt from the log", extra={"thread_id": thread_id})
                try:
                    await self.calls.rebuild(thread_id)
                except Corrupt as exc:
                    logger.warning(
                        "tool calls cannot be rebuilt", extra={"thread_id": thread_id, "code": exc.code}
                    )
            after = lost[-1]
        return False

    async def purge(self) -> bool:
        """Remove the rows of threads whose deletion was cut short."""
        return bool(await self.store.purge(limit=BATCH))

    async def forget_requests(self) -> bool:
        return await self.inbox.forget(older_than=self.clock() - REMEMBERED) > 0

    async def sweep_items(self) -> bool:
        """Remove what graphs put into their store for a while."""
        return await self.items.sweep_ttl() > 0

    async def collect_blobs(self) -> bool:
        return await self.files.collect(older_than=self.clock() - UNREFERENCED, limit=BATCH) == BATCH

    async def trim_audit(self) -> bool:
        if self.audit_ttl is None:
            return False
        return await self.audit.trim(older_than=self.clock() - self.audit_ttl) > 0
