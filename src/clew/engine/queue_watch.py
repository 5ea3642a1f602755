"""Queue watch: shows that this process lives, and measures how many runs wait."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from clew.domain.errors import ClewError
from clew.ports.queue import ALIVE, BEAT_SECONDS, Process, QueueState
from clew.telemetry import Metrics

logger = logging.getLogger(__name__)


class QueueWatch:
    def __init__(self, queue: QueueState, process: Process, metrics: Metrics) -> None:
        self._queue = queue
        self._process = process
        self._metrics = metrics

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Inside the block the process is listed among those of its database."""
        task = asyncio.create_task(self._watch_forever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with suppress(ClewError):
                await self._queue.leave(self._process.name)

    async def _watch_forever(self) -> None:
        while True:
            try:
                await self._queue.beat(self._process)
                if not await self.measure():
                    await self._queue.forget_turns()
            except ClewError as exc:
                logger.warning("the queue cannot be measured", extra={"code": exc.code})
            except Exception:
                # The next beat may succeed.
                logger.exception("the queue cannot be measured")
            await asyncio.sleep(BEAT_SECONDS)

    async def measure(self) -> int:
        """How many runs wait. Every process measures the queue of all: a scrape of any of them shows it."""
        loads = await self._queue.loads()
        workers = [one for one in await self._queue.processes() if one.slots and one.silent < ALIVE]
        waiting = sum(one.waiting + one.behind for one in loads)
        self._metrics.runs_waiting.set(waiting)
        oldest = max((one.oldest_wait for one in loads), default=timedelta())
        self._metrics.oldest_wait.set(oldest.total_seconds())
        self._metrics.slots.set(sum(one.slots for one in workers))
        self._metrics.workers.set(len(workers))
        return waiting
