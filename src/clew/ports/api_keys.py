"""API keys, by the hash of their secret."""

from collections.abc import (
    Sequence,
)
from datetime import datetime
from typing import Protocol

from clew.domain.records import (
    ApiKey,
)
from clew.domain.thread import Owner


class Keys(Protocol):
    """API keys, by the hash of their secret."""

    async def add(self, key: ApiKey) -> None: ...

    async def by_hash(self, hash: str) -> ApiKey | None: ...

    async def find(self, owner: Owner | None = None) -> Sequence[ApiKey]:
        """Of this tenant, or of this user of it; all without an owner. Oldest first."""
        ...

    async def revoke(self, key_id: str, *, now: datetime, owner: Owner | None = None) -> ApiKey:
        """The key as it is now. Raises NotFound, also for another owner's."""
        ...
