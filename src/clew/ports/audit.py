"""Audit trail: which caller did what, and when. Entries are added and, past their time, deleted; never changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One request of one caller. `id` grows with time."""

    id: str
    at: datetime
    tenant: str
    user_id: str
    actor: str
    """The key's id, `token:...` for an access token, `local` for a caller of this machine, `cli` for the command."""
    action: str
    """The route's name, as OpenAPI shows it as `operationId`."""
    method: str
    path: str
    """With its ids, without its query."""
    thread_id: str
    """The thread it was about, empty for none."""
    status: int
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """`tenant` None is for all tenants. `before` is the id of the entry after the page."""

    tenant: str | None
    user_id: str = ""
    thread_id: str = ""
    action: str = ""
    before: str = ""
    limit: int = 100


class AuditTrail(Protocol):
    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Add them all, or none. An entry that is there already is left as it is."""
        ...

    async def find(self, wanted: AuditQuery) -> Sequence[AuditEntry]:
        """The newest first."""
        ...

    async def trim(self, *, older_than: datetime, limit: int = 1000) -> int:
        """Delete up to `limit` older entries; returns how many."""
        ...
