"""Assistants and their versions."""

from collections.abc import (
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Protocol

from clew.domain.assistants import Assistant, Object, Search
from clew.domain.thread import Owner


class Assistants(Protocol):
    """Assistants that clients created, with all their versions. Another owner's does not exist: NotFound."""

    async def add(self, assistant: Assistant, owner: Owner) -> bool:
        """False if any user of the tenant has one of this id."""
        ...

    async def get(self, assistant_id: str, owner: Owner) -> Assistant: ...

    async def of_tenant(self, tenant: str, ids: Collection[str]) -> Mapping[str, Assistant]:
        """Those of these ids that are no single user's, by id."""
        ...

    async def find(self, owner: Owner, wanted: Search, *, graphs: Collection[str]) -> Sequence[Assistant]:
        """All that the search wants and whose graph is one of these, in no order."""
        ...

    async def revise(
        self, assistant_id: str, owner: Owner, change: Callable[[Assistant], Assistant]
    ) -> Assistant:
        """Make a new version of the one that counts, which counts from now on. Of two changes none is lost."""
        ...

    async def versions(
        self, assistant_id: str, owner: Owner, *, metadata: Object, limit: int, offset: int
    ) -> Sequence[Assistant]:
        """The newest first, those with this metadata. Each is as old as the version."""
        ...

    async def set_latest(self, assistant_id: str, owner: Owner, version: int, *, now: datetime) -> Assistant:
        """From now on that version counts. NotFound also without such a version."""
        ...

    async def delete(self, assistant_id: str, owner: Owner) -> None: ...
