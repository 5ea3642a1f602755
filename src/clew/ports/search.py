"""Full-text search: the words of messages and of threads' names, derived from the logs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from clew.domain.thread import Owner

# Each term is a word, or several words in a row.
Terms: TypeAlias = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedText:
    """The words of one message; of the thread's name, if `event_id` is empty."""

    event_id: str
    seq: int
    words: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    thread_id: str
    event_id: str
    seq: int


class MessageSearch(Protocol):
    async def position(self, thread_id: str) -> int:
        """Up to which seq the log is indexed."""
        ...

    async def index(
        self, thread_id: str, texts: Sequence[IndexedText], *, upto: int, without: Collection[str] = ()
    ) -> None:
        """Add texts, and remove those of the events in `without`. A thread that was deleted is left alone."""
        ...

    async def pass_over(self, ends: Mapping[str, int]) -> None:
        """Threads whose logs have nothing to index up to these seqs. One that was deleted is left alone."""
        ...

    async def clear(self) -> None:
        """Delete the whole index."""
        ...

    async def behind(self, *, after: str = "", limit: int) -> Sequence[str]:
        """Threads that are at rest and whose log is not indexed to its end, by their ids."""
        ...

    async def find(self, owner: Owner | None, terms: Terms, *, limit: int) -> Sequence[SearchHit]:
        """Texts that have all terms, the last word of each term as a prefix. Of the most recently active threads first.

        Soft-deleted threads are not found.
        """
        ...
