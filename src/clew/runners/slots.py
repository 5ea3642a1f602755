"""Slots: how many more threads a process may run at this moment."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Slots:
    """A slot is occupied by a run, or reserved for a thread that is being opened or claimed."""

    def __init__(self, number: int, occupied: Callable[[], int]) -> None:
        self._number = number
        self._occupied = occupied
        self._reserved = 0
        self._is_settled = asyncio.Event()
        self._is_settled.set()
        # Whether more threads could be claimed than there were free slots: then an ended run is a reason to claim.
        self.is_full = False

    @property
    def free(self) -> int:
        return self._number - self._reserved - self._occupied()

    @contextmanager
    def reserved(self, number: int) -> Generator[None]:
        self._reserved += number
        self._is_settled.clear()
        try:
            yield
        finally:
            self._reserved -= number
            if not self._reserved:
                self._is_settled.set()

    async def settled(self) -> None:
        """Wait until no slot is reserved: each was given to a run, or was left."""
        await self._is_settled.wait()
