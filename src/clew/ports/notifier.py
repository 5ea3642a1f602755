"""Notifier: says that a log has grown, inside a process and between processes."""

from collections.abc import (
    Callable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol


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
        """`after` is where the log ended before: whoever hears of the thread for the first time reads on from there.

        `end` is where it ends now.
        `goes_on` says that the thread runs on, as before: nothing for those who wait for its rest.
        """
        ...

    def subscribe(
        self, thread_id: str | None = None, *, for_rest: bool = False
    ) -> AbstractContextManager[Subscription]: ...


class ClusterNotifier(Protocol):
    """Rings between the processes that share a database. May lose a call: whoever waits for one looks by himself too."""

    def ring(self, thread_id: str, after: int | None, end: int | None = None) -> None:
        """Tell the others that a log has grown, where it ended before, and where now. Never waits."""
        ...

    def call(self) -> None:
        """Tell the others that a thread can be claimed. Never waits."""
        ...

    def listening(
        self, heard: Callable[[str, int | None], None], called: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        """Inside the block the others are heard, and what was rung here is told to them by its end."""
        ...
