"""Heartbeat: renews leases from an OS thread of its own, so that a node blocking the event loop keeps its lease."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from clew.domain.errors import ClewError
from clew.domain.records import Lease
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

# Also how soon a run notices that another process stopped its thread, where no notification says so.
BEAT_SECONDS = 2.0


class Heartbeat:
    """Renews the leases that `held` returns, and reports lost ones to `lost`, which is called in this OS thread."""

    def __init__(
        self,
        runner: str,
        open_store: Callable[[], AbstractAsyncContextManager[Store]],
        held: Callable[[], Collection[Lease]],
        lost: Callable[[Collection[Lease]], None],
        *,
        lease: timedelta,
    ) -> None:
        self._runner = runner
        self._open_store = open_store
        self._held = held
        self._lost = lost
        self._lease = lease
        self.seconds = min(BEAT_SECONDS, lease.total_seconds() / 3)
        self._stopping = threading.Event()
        self._nudged = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clew-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until the last beat is over: call it from a thread."""
        self._stopping.set()
        self._nudged.set()
        self._thread.join()

    def nudge(self) -> None:
        """Beat now: another process wrote to the log of a thread that runs here, perhaps to stop it."""
        self._nudged.set()

    def _run(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        while not self._stopping.is_set():
            try:
                async with self._open_store() as store:
                    await self._beat_on(store)
            except ClewError as exc:
                # The database does not answer. If it stays so, leases expire and other runners may take over.
                logger.warning("heartbeat failed", extra={"code": exc.code})
            except Exception:
                # A process without a heartbeat would claim thread after thread and lose every lease.
                logger.exception("heartbeat failed")
            self._pause()

    async def _beat_on(self, store: Store) -> None:
        # At once: leases may have expired while the store did not answer.
        while True:
            if held := list(self._held()):
                names = await store.renew(self._runner, held, lease=self._lease)
                if lost := [lease for lease in held if lease.thread_id in names]:
                    with contextlib.suppress(RuntimeError):  # the event loop is already closed
                        self._lost(lost)
            self._pause()
            if self._stopping.is_set():
                return

    def _pause(self) -> None:
        self._nudged.wait(self.seconds)
        if not self._stopping.is_set():
            # Cleared before the beat: a notification that arrives during it is followed by another beat.
            self._nudged.clear()
