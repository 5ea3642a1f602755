"""Conversations that are due, each claimed and seen to, so many at once: woken by the subscription, and by the clock."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from clew.domain.errors import ClewError
from clew.domain.records import Conversation
from clew.ports.channels import Conversations
from clew.ports.notifier import Notifier

logger = logging.getLogger(__name__)

# What is under way when the process ends may take so long; cut off, it might be done twice.
GRACE_SECONDS = 5.0


class LeasedLoop:
    def __init__(
        self,
        visit: Callable[[Conversation], Awaitable[None]],
        *,
        sources: Sequence[str],
        conversations: Conversations,
        notifier: Notifier,
        new_id: Callable[[], str],
        stopping: asyncio.Event,
        poll_seconds: float,
        lease: timedelta,
        concurrency: int,
    ) -> None:
        self._visit = visit
        self._sources = tuple(sources)
        self._conversations = conversations
        self._notifier = notifier
        self._new_id = new_id
        self._stopping = stopping
        self._poll_seconds = poll_seconds
        self._lease = lease
        self._concurrency = concurrency
        self._rung = asyncio.Event()
        self._under_way: dict[asyncio.Task[None], Conversation] = {}

    def wake(self) -> None:
        """Something may be there to do."""
        self._rung.set()

    @asynccontextmanager
    async def going_on(self) -> AsyncGenerator[None]:
        """Inside the block conversations are seen to. At its end none is begun, and few are cut off."""
        loops = [asyncio.create_task(self._look_forever()), asyncio.create_task(self._hear_forever())]
        try:
            yield
        finally:
            self._stopping.set()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            if self._under_way:
                _, late = await asyncio.wait(self._under_way, timeout=GRACE_SECONDS)
                for task in late:
                    task.cancel()
                await asyncio.gather(*late, return_exceptions=True)

    async def _hear_forever(self) -> None:
        with self._notifier.subscribe(for_rest=True) as subscription:
            while True:
                if await subscription.wait(self._poll_seconds):
                    subscription.rung()
                self.wake()

    async def _look_forever(self) -> None:
        while True:
            self._rung.clear()
            try:
                await self._look()
            except ClewError as exc:
                logger.warning("conversations cannot be looked for", extra={"code": exc.code})
            except Exception:
                # Whatever it met, the next look is worth more.
                logger.exception("conversations cannot be looked for")
            await self._rung.wait()

    async def _look(self) -> None:
        free = self._concurrency - len(self._under_way)
        if free <= 0 or self._stopping.is_set() or not await self._conversations.are_due(self._sources):
            return
        # A process that was halted for longer than a lease goes on with what it was about, if nobody else has it now.
        for held in await self._conversations.claim(
            self._new_id(),
            self._sources,
            lease=self._lease,
            limit=free,
            alive=self._under_way.values(),
        ):
            task = asyncio.ensure_future(self._visit(held))
            self._under_way[task] = held
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self.wake()
