"""The runner inside one process: claims running threads from the store and steps them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from clew.domain.errors import ClewError
from clew.domain.records import SYSTEM, Lease, Scope
from clew.engine.step import Step
from clew.failpoints import failpoint
from clew.ports import Store
from clew.runners.heartbeat import Heartbeat

logger = logging.getLogger(__name__)


class LocalRunner:
    """Many of these, in many processes on one database, share the work safely: a lease and a fence each."""

    def __init__(
        self,
        *,
        name: str,
        store: Store,
        open_store: Callable[[], AbstractAsyncContextManager[Store]],
        step: Step,
        lease: timedelta,
        poll_seconds: float,
        concurrency: int,
        grace_seconds: float,
    ) -> None:
        # On whose behalf threads were woken in this process; commands fill it in.
        self.scopes: dict[str, Scope] = {}
        self._name = name
        self._store = store
        self._step = step
        self._lease = lease
        self._poll_seconds = poll_seconds
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._running: dict[str, tuple[Lease, asyncio.Task[None]]] = {}
        self._bell = asyncio.Event()
        self._draining = False
        self._loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(name, open_store, self._held, self._lost, lease=lease)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Work until the block ends, then drain: what is under way ends at a safe point or is left to others."""
        self._heartbeat.start()
        claiming = asyncio.create_task(self._claim_forever())
        try:
            yield
        finally:
            self._draining = True
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            await self._drain()
            await asyncio.to_thread(self._heartbeat.stop)

    def wake(self) -> None:
        """There may be something to claim."""
        self._bell.set()

    def halt(self, thread_id: str) -> None:
        """Cancel the run of a thread that must not go on. Its fence has moved on, so whatever it still does is void."""
        if held := self._running.get(thread_id):
            held[1].cancel()

    async def _claim_forever(self) -> None:
        wait = 0.0  # the first look is at once: a process may have died with work under way
        while True:
            rung = await self._rung(wait)
            wait = self._poll_seconds
            free = self._concurrency - len(self._running)
            if free == 0:
                continue
            try:
                if not rung and not await self._store.has_work():
                    continue
                leases = await self._store.claim(self._name, lease=self._lease, limit=free)
            except ClewError as exc:
                logger.warning("cannot claim threads", extra={"code": exc.code})
                continue
            for lease in leases:
                failpoint("lease_taken")
                self._start(lease)
            if len(leases) == free:
                self._bell.set()  # there may be more, once a place is free

    async def _rung(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True

    def _start(self, lease: Lease) -> None:
        scope = self.scopes.pop(lease.thread_id, SYSTEM)
        task = asyncio.create_task(self._run(lease, scope), name=f"run {lease.thread_id}")
        self._running[lease.thread_id] = (lease, task)

    async def _run(self, lease: Lease, scope: Scope) -> None:
        try:
            await self._step(lease, scope)
        except asyncio.CancelledError:
            logger.info("run cancelled", extra={"thread_id": lease.thread_id})
        except ClewError as exc:
            # Nothing could be written, not even the failure; the lease runs out and somebody tries again.
            logger.warning("run given up", extra={"thread_id": lease.thread_id, "code": exc.code})
        finally:
            self._running.pop(lease.thread_id, None)
            self._bell.set()

    async def _drain(self) -> None:
        held = list(self._running.values())
        if not held:
            return
        for lease, _ in held:
            self._step.bridge.drain(lease.thread_id)
        tasks = [task for _, task in held]
        await asyncio.wait(tasks, timeout=self._grace_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lease, _ in held:
            try:
                await self._store.release(self._name, lease)
            except ClewError as exc:
                logger.warning("lease not released", extra={"thread_id": lease.thread_id, "code": exc.code})

    def _held(self) -> Collection[Lease]:
        return [lease for lease, _ in list(self._running.values())]

    def _lost(self, thread_ids: Collection[str]) -> None:
        for thread_id in thread_ids:
            self._loop.call_soon_threadsafe(self.halt, thread_id)
