"""Checkpoint pruning: of a thread that was not accessed for some time, only the last checkpoint stays."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from clew.domain.errors import Corrupt, NotFound
from clew.domain.retention import Reason, Selection
from clew.ports.clock import Clock
from clew.ports.retention import Cleanups

logger = logging.getLogger(__name__)

PAGE = 100


@dataclass(slots=True, kw_only=True)
class CheckpointPruning:
    rows: Cleanups
    # False if the thread runs; then it is accessed, and due again later.
    prune: Callable[[str], Awaitable[bool]]
    clock: Clock
    after: timedelta
    # The last thread that was pruned, by its access and id. One that is accessed again comes behind it.
    _seen: tuple[int, str] | None = None

    async def prune_due(self) -> bool:
        """Prune some threads; True if there may be more."""
        wanted = Selection(reason=Reason.UNUSED, before=self.clock() - self.after)
        found = await self.rows.due(wanted, after=self._seen, limit=PAGE)
        for one in found:
            try:
                await self.prune(one.id)
            except NotFound:
                pass  # deleted meanwhile
            except Corrupt as exc:
                logger.warning("checkpoints cannot be pruned", extra={"thread_id": one.id, "code": exc.code})
            self._seen = one.age, one.id
        return len(found) == PAGE
