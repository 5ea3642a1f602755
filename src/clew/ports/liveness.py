"""Liveness: how processes on one database see that one of them died, before its leases run out."""

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Liveness(Protocol):
    """A lock that a process holds while it lives. The operating system or the database releases it at its death."""

    def held(self, name: str) -> AbstractAsyncContextManager[None]:
        """Hold the lock of the process `name` inside the block. Raises Unavailable if it cannot be taken."""
        ...

    async def find_dead(self, names: Collection[str]) -> Collection[str]:
        """Of these processes, those whose lock is free. One that may still live is left out. Raises Unavailable."""
        ...
