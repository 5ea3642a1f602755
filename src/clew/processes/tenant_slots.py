"""Tenant slots: a bounded number of slots in this process, for which tenants take turns."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class TenantSlots:
    """A freed slot goes to the waiting tenant with the fewest, and of several to the one that waited first.

    Beside `number` slots there is a spare one for a tenant that has none: what another tenant does with the others,
    however long, does not delay it.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._taken: Counter[str] = Counter()
        # By tenant, in the order in which the tenants began to wait, or had their last turn.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def taken(self, tenant: str) -> AsyncGenerator[None]:
        """Wait for a slot, and have it inside the block."""
        await self._take(tenant)
        try:
            yield
        finally:
            self._leave(tenant)

    async def _take(self, tenant: str) -> None:
        if tenant not in self._waiting and self._has_room(tenant):
            self._taken[tenant] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(tenant, turn)
            else:  # it got its slot at the same moment
                self._leave(tenant)
            raise

    def _has_room(self, tenant: str) -> bool:
        taken = self._taken.total()
        return taken < self._number or (taken == self._number and not self._taken[tenant])

    def _leave(self, tenant: str) -> None:
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]
        while self._waiting:
            following = min(self._waiting, key=lambda name: self._taken[name])
            if not self._has_room(following):
                return
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            if turns:
                self._waiting[following] = turns
            self._taken[following] += 1
            turn.set_result(None)

    def _forget(self, tenant: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting[tenant]
        turns.remove(turn)
        if not turns:
            del self._waiting[tenant]
