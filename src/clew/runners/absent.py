"""No runner: what a process has that only serves the API. Other processes execute its threads."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager

from clew.domain.lifecycle import Change
from clew.ports.guards import Claim


class AbsentRunner:
    """The Runner port of a process without one."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        """`call` notifies the runners of other processes that a thread can be claimed."""
        self._name = name
        self._call = call

    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            stopping.set()

    def wake(self) -> None:
        self._call()

    def look(self) -> None:
        """Nothing runs here."""

    def place(self, change: Change) -> AbstractContextManager[Claim | None]:  # noqa: ARG002 - the port's
        return contextlib.nullcontext()

    def halt(self, thread_id: str) -> None:
        """Nothing runs here; another process hears of the commit that ended the run."""

    def check(self, thread_id: str) -> None:
        """Nothing runs here."""
