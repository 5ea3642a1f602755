"""/api/histories: chat histories of agents, by conversation key."""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from clew.api.access import needs
from clew.api.guard import Caller
from clew.api.numbers import Numbering, UserNumber
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import StrictBody, WireModel
from clew.domain.errors import Invalid, NotFound
from clew.domain.thread import Owner
from clew.history.access import ChatHistories
from clew.history.keys import MAX_LENGTH
from clew.ports.histories import NewMessage, Role

logger = logging.getLogger(__name__)

# JSON numbers are exact up to here in every client.
MAX_SEQ = 2**53 - 1

Key = Annotated[str, Path(max_length=MAX_LENGTH, description="As in `telegram:42`.")]
Namespace = Annotated[
    str,
    Query(max_length=1000, description="The node's `history_namespace`, labels with periods between them."),
]


class PushIn(StrictBody):
    content: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    role: Role = "assistant"
    id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """With an id, the same message pushed twice is stored once."""


class PushedOut(WireModel):
    written: bool = True
    last_seq: int


class HistoryMessageOut(WireModel):
    seq: int
    role: Role
    content: str


class HistoryOut(WireModel):
    key: str
    last_seq: int
    version: int
    created_at: datetime
    updated_at: datetime
    messages: list[HistoryMessageOut]


class HistoryDeletedOut(WireModel):
    key: str
    status: str = "deleted"


class HistoriesDeletedOut(WireModel):
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoriesRoutes:
    histories: ChatHistories
    numbering: Numbering

    def router(self) -> APIRouter:
        router = Router(prefix="/api/histories", tags=["histories"])
        router.get("/{key}", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.read_history
        )
        router.post("/{key}/messages", dependencies=[needs("write")], responses=errors(Invalid))(
            self.push_message
        )
        router.delete("/{key}", dependencies=[needs("write")], responses=errors(Invalid, NotFound))(
            self.delete_history
        )
        router.delete("", dependencies=[needs("admin")], responses=errors(Invalid, NotFound))(
            self.delete_histories
        )
        return router

    async def read_history(
        self,
        caller: Caller,
        key: Key,
        namespace: Namespace = "",
        after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> HistoryOut:
        """The messages of one chat in order, those after `after`."""
        summary, messages = await self.histories.read(
            caller.itself, key, namespace=namespace, after=after, limit=limit
        )
        return HistoryOut(
            key=key,
            last_seq=summary.last_seq,
            version=summary.version,
            created_at=summary.created_at,
            updated_at=summary.updated_at,
            messages=[HistoryMessageOut(seq=one.seq, role=one.role, content=one.content) for one in messages],
        )

    async def push_message(
        self, caller: Caller, key: Key, body: PushIn, namespace: Namespace = ""
    ) -> PushedOut:
        """Add a message from outside a turn, for example a notification. The next turn of the agent sees it."""
        message = NewMessage(role=body.role, content=body.content, id=body.id)
        return PushedOut(
            last_seq=await self.histories.append(caller.itself, key, message, namespace=namespace)
        )

    async def delete_history(self, caller: Caller, key: Key, namespace: Namespace = "") -> HistoryDeletedOut:
        """Delete the history of one chat permanently. Its threads stay."""
        await self.histories.delete(caller.itself, key, namespace=namespace)
        logger.info("chat history deleted", extra={"key_id": caller.key_id, "tenant": caller.itself.tenant})
        return HistoryDeletedOut(key=key)

    async def delete_histories(
        self,
        caller: Caller,
        user: Annotated[
            str | None, Query(max_length=256, description="Only those begun by runs of this user.")
        ] = None,
        user_number: UserNumber = None,
        everything: Annotated[
            bool, Query(alias="all", description="All of the tenant; needed without `user`.")
        ] = False,
    ) -> HistoriesDeletedOut:
        """Delete the histories of one user, or of the whole tenant, permanently."""
        user = await self.numbering.named("user", caller.tenant, user_number, user)
        owner = _deleted_owner(caller.itself, user or "", everything)
        deleted = await self.histories.delete_all(owner)
        logger.info(
            "chat histories deleted",
            extra={"key_id": caller.key_id, "tenant": owner.tenant, "deleted": deleted},
        )
        return HistoriesDeletedOut(deleted=deleted)


def histories_router(histories: ChatHistories, *, numbering: Numbering) -> APIRouter:
    return HistoriesRoutes(histories=histories, numbering=numbering).router()


def _deleted_owner(caller: Owner, user: str, everything: bool) -> Owner:
    """A key of one user deletes only that user's."""
    user = caller.user_id or user
    if bool(user) == everything:
        raise Invalid("name either a `user` (or its number, `userId`) or `all=true`", "user")
    return Owner(tenant=caller.tenant, user_id=user)
