"""Run hooks: what is done when a run ends, webhooks among it."""

from collections.abc import (
    Callable,
    Sequence,
)
from datetime import timedelta
from typing import Protocol

from clew.domain.records import (
    RunHook,
)


class RunHookStore(Protocol):
    """What is to be done when runs are over. Written before a run begins, so that no crash loses it."""

    async def add(self, errand: RunHook, *, wait: timedelta) -> None:
        """To be looked at after so long, and when its thread does not run. One that is there already stays as it is."""
        ...

    async def are_due(self) -> bool:
        """Whether `claim` would find anything."""
        ...

    async def claim(self, *, lease: timedelta, limit: int) -> Sequence[RunHook]:
        """Nobody else gets them until the lease has run out."""
        ...

    async def put_off(self, errand: RunHook, *, wait: timedelta) -> None:
        """Let go of it as it is now, and look again after so long."""
        ...

    async def done(self, run_id: str) -> None: ...


class Webhooks(Protocol):
    """Addresses that callers left to be told when something is over."""

    async def rules(self) -> Callable[[str], None]:
        """What is allowed now: a function that raises Invalid for an address that cannot be told."""
        ...

    async def tell(self, url: str, body: bytes) -> None:
        """Raises Transient or Permanent unless it was taken."""
        ...
