"""Notifier: says that a log has grown, inside a process and between processes."""

from collections.abc import (
    Callable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeAlias

# What one process tells the others: its kind, and JSON values.
Message: TypeAlias = list[Any]


class Subscription(Protocol):
    async def wait(self, seconds: float) -> bool:
        """True once anything was published since the last wait, False after `seconds`."""
        ...

    def rung(self) -> Mapping[str, int | None]:
        """The logs that have grown since this was last asked, and after which seq, where that is known."""
        ...


class Notifier(Protocol):
    """Says that a log has grown. Carries no data and may lose a call: readers read the store."""

    def publish(
        self, thread_id: str, after: int | None = None, end: int | None = None, *, goes_on: bool = False
    ) -> None:
        """`after` is where the log ended before: a subscriber that has not read the thread yet reads on from there.

        `end` is where it ends now.
        `goes_on` says that the thread runs on, as before: subscribers with `for_rest` are not notified.
        """
        ...

    def subscribe(
        self, thread_id: str | None = None, *, for_rest: bool = False
    ) -> AbstractContextManager[Subscription]: ...


class ClusterNotifier(Protocol):
    """Notifies between the processes that share a database. May lose a call: processes that wait for one poll too."""

    def ring(self, thread_id: str, after: int | None, end: int | None = None) -> None:
        """Notify the other processes that a log has grown, where it ended before, and where now. Never waits."""
        ...

    def call(self) -> None:
        """Notify the other processes that a thread can be claimed. Never waits."""
        ...

    def send(self, message: Message) -> None:
        """Send something short to the other processes, which may miss it. Never waits."""
        ...

    def listening(
        self,
        heard: Callable[[str, int | None], None],
        called: Callable[[], None],
        received: Callable[[Message], None] = ...,
    ) -> AbstractAsyncContextManager[None]:
        """Inside the block other processes' notifications arrive; by its end those of this process are sent."""
        ...
