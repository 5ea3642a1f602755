"""Store items: the rows of LangGraph's store."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from clew.domain.items import Answer, Fields, ItemChange, Namespace, Question, Vector


class ItemIndex(Protocol):
    """Turns the texts of items, and queries, into vectors. Both methods raise Unavailable when that fails."""

    async def embed_items(self, changes: Sequence[tuple[ItemChange, Fields]]) -> list[ItemChange]:
        """The changes, in their order, with the vectors of the items they put."""
        ...

    async def embed_queries(self, queries: Iterable[str]) -> Mapping[str, Vector]: ...


class Items(Protocol):
    """Values under namespaces and keys, the store of LangGraph. Tenants never see each other's.

    The metadata and chunks of chat histories can be read here like items, and cannot be written.
    """

    async def ask(
        self, tenant: str, questions: Sequence[Question], *, expired: bool = False
    ) -> Sequence[Answer]:
        """One answer a question, all from one moment. Changes nothing. `expired` shows also what is past its time."""
        ...

    async def change(
        self,
        tenant: str,
        questions: Sequence[Question],
        changes: Sequence[ItemChange],
        *,
        expired: bool = False,
    ) -> Sequence[Answer]:
        """Answer the questions, then make the changes in order: all in one transaction or not at all.

        Raises Invalid for a value that is not JSON, InvalidState for a change to an item that is a view of a chat history.
        """
        ...

    async def refresh(self, tenant: str, names: Sequence[tuple[Namespace, str]]) -> None:
        """Let the time to live of these items begin anew. An item that is past its time stays so."""
        ...

    async def sweep(self, *, limit: int = 1000) -> int:
        """Remove up to `limit` items past their time, every tenant's; returns how many."""
        ...
