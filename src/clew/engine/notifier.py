"""Notifier inside one process: tells subscribers which logs have grown."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

from clew.ports.notifier import Message


class LocalSubscription:
    def __init__(self, *, for_rest: bool = False) -> None:
        self.for_rest = for_rest
        self._bell = asyncio.Event()
        self._grown: dict[str, int | None] = {}

    def ring(self, thread_id: str, after: int | None) -> None:
        # Two notifications become one, from the smaller seq of the two.
        before = self._grown.setdefault(thread_id, after)
        self._grown[thread_id] = None if before is None or after is None else min(before, after)
        self._bell.set()

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True

    def rung(self) -> Mapping[str, int | None]:
        grown, self._grown = self._grown, {}
        return grown


class LocalNotifier:
    """Notifies the subscribers of a thread and the subscribers of all threads. Never waits for a subscriber."""

    def __init__(self, beyond: Callable[[str, int | None, int | None], None] | None = None) -> None:
        """`beyond` notifies other processes of what was published here."""
        self._beyond = beyond
        self._listeners: defaultdict[str | None, set[LocalSubscription]] = defaultdict(set)

    def publish(
        self, thread_id: str, after: int | None = None, end: int | None = None, *, goes_on: bool = False
    ) -> None:
        self.ring(thread_id, after, goes_on=goes_on)
        if self._beyond is not None:
            self._beyond(thread_id, after, end)

    def ring(self, thread_id: str, after: int | None, *, goes_on: bool = False) -> None:
        """Notify subscribers in this process only: another process published it."""
        for wanted in (thread_id, None):
            for subscription in self._listeners.get(wanted, ()):
                if not (goes_on and subscription.for_rest):
                    subscription.ring(thread_id, after)

    @contextmanager
    def subscribe(
        self, thread_id: str | None = None, *, for_rest: bool = False
    ) -> Generator[LocalSubscription]:
        subscription = LocalSubscription(for_rest=for_rest)
        self._listeners[thread_id].add(subscription)
        try:
            yield subscription
        finally:
            self._listeners[thread_id].discard(subscription)
            if not self._listeners[thread_id]:
                del self._listeners[thread_id]


class NoNotifier:
    """No notifications between processes: there is no other process, or no way to it. Waiting readers poll."""

    def ring(self, thread_id: str, after: int | None, end: int | None = None) -> None:
        pass

    def call(self) -> None:
        pass

    def send(self, message: Message) -> None:
        pass

    @asynccontextmanager
    async def listening(
        self,
        heard: Callable[[str, int | None], None],  # noqa: ARG002 - a promise of the port
        called: Callable[[], None],  # noqa: ARG002 - the same
        received: Callable[[Message], None] = lambda _: None,  # noqa: ARG002 - the same
    ) -> AsyncGenerator[None]:
        yield
