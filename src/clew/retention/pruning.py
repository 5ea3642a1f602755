"""Checkpoint pruning: of a thread that was not accessed for some time, only the last checkpoint stays."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
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
    # So long after their last access threads are pruned that have no such time of their own; None: they are not.
    after: timedelta | None
    # The last thread that was pruned, by its age and id. One that is accessed again comes behind it.
    _seen: dict[Reason, tuple[int, str]] = field(default_factory=dict)

    async def prune_due(self) -> bool:
        """Prune some threads; True if there may be more."""
        now = self.clock()
        has_more = await self._prune(Selection(reason=Reason.STALE, before=now))
        if self.after is None:
            return has_more
        return await self._prune(Selection(reason=Reason.IDLE, before=now - self.after)) or has_more

    async def _prune(self, wanted: Selection) -> bool:
        found = await self.rows.due(wanted, after=self._seen.get(wanted.reason), limit=PAGE)
        for one in found:
            try:
                await self.prune(one.id)
            except NotFound:
                pass  # deleted meanwhile
            except Corrupt as exc:
                logger.warning("checkpoints cannot be pruned", extra={"thread_id": one.id, "code": exc.code})
            self._seen[wanted.reason] = one.age, one.id
        return len(found) == PAGE
