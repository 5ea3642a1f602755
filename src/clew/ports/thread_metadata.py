"""Thread metadata: what clients find threads by."""

from collections.abc import (
    Collection,
    Mapping,
    Sequence,
)
from typing import Protocol

from clew.domain.thread import Json
from clew.domain.thread_metadata import ThreadSearch


class ThreadMetadata(Protocol):
    """Metadata that clients set on threads to find them by. Not part of the log."""

    async def put(self, thread_id: str, labels: Mapping[str, Json]) -> None:
        """Set these; others stay. Raises NotFound, Invalid."""
        ...

    async def of(self, thread_ids: Collection[str]) -> Mapping[str, Mapping[str, Json]]: ...

    async def find(self, wanted: ThreadSearch) -> Sequence[str]:
        """The ids of the threads that have these labels, and objects of them inside of theirs."""
        ...

    async def count(self, wanted: ThreadSearch) -> int: ...
