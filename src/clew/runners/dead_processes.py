"""Dead processes: ends the leases of those that died, so that their threads and other work are claimed at once."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from clew.domain.errors import ClewError
from clew.ports.liveness import Liveness
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.3
# Processes with this prefix hold a lock. Of others nothing is known: their leases run out.
WATCHED = "watched-"


class DeadProcesses:
    """A wrong guess is harmless: the fence of the next claim refuses the writes of a runner that lives."""

    def __init__(self, name: str, *, store: Store, liveness: Liveness, found: Callable[[], None]) -> None:
        """`found` is called when threads of a dead process can be claimed."""
        self._name = name
        self._store = store
        self._liveness = liveness
        self._found = found

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Inside the block this process shows that it lives, and looks for dead ones. Raises Unavailable."""
        async with self._liveness.held(self._name):
            looking = asyncio.create_task(self._look_forever())
            try:
                yield
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _look_forever(self) -> None:
        while True:
            try:
                await self._look()
            except ClewError as exc:
                logger.warning("cannot look for dead processes", extra={"code": exc.code})
            except Exception:
                # Leases run out without it; the next look may succeed.
                logger.exception("cannot look for dead processes")
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        owners = await self._store.lease_owners()
        watched = [name for name in owners if name.startswith(WATCHED) and name != self._name]
        for name in await self._liveness.find_dead(watched) if watched else ():
            if ended := await self._store.end_leases(name):
                logger.warning(
                    "a process died; %d leases of it were ended, so that others continue its work", ended
                )
                self._found()
