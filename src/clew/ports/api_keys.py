"""API keys, by the hash of their secret."""

from collections.abc import (
    Sequence,
)
from datetime import datetime
from typing import Protocol

from clew.domain.records import (
    ApiKey,
)


class Keys(Protocol):
    """API keys, by the hash of their secret."""

    async def add(self, key: ApiKey) -> None: ...

    async def by_hash(self, hash: str) -> ApiKey | None: ...

    async def find(self) -> Sequence[ApiKey]: ...

    async def revoke(self, key_id: str, *, now: datetime) -> None:
        """Raises NotFound."""
        ...
