"""The bell inside one process."""

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager


class LocalSubscription:
    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class LocalBus:
    """Rings for those who listen to a thread and for those who listen to all. Never waits for anybody."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str | None, set[LocalSubscription]] = defaultdict(set)

    def publish(self, thread_id: str) -> None:
        for wanted in (thread_id, None):
            for subscription in self._listeners.get(wanted, ()):
                subscription.ring()

    @contextmanager
    def subscribe(self, thread_id: str | None = None) -> Generator[LocalSubscription]:
        subscription = LocalSubscription()
        self._listeners[thread_id].add(subscription)
        try:
            yield subscription
        finally:
            self._listeners[thread_id].discard(subscription)
            if not self._listeners[thread_id]:
                del self._listeners[thread_id]
