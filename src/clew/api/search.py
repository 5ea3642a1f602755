"""/api/threads/search: finds threads by the words of their messages."""

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query

from clew.api.access import needs
from clew.api.guard import Caller
from clew.api.numbers import Numbering, OwnerNumbers
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import ThreadOut, WireModel
from clew.domain.errors import Invalid, InvalidState
from clew.engine.searching import FoundThread, FullTextSearch


class MatchOut(WireModel):
    """A place where the words are."""

    message_id: str | None
    """None for the thread's name."""
    role: Literal["user", "assistant", "name"]
    text: str
    """The words and what is around them."""


class FoundThreadOut(WireModel):
    thread: ThreadOut
    matches: list[MatchOut]

    @classmethod
    def of(cls, found: FoundThread, numbers: OwnerNumbers) -> Self:
        return cls(
            thread=ThreadOut.of(found.thread, numbers),
            matches=[
                MatchOut(message_id=match.event_id or None, role=match.role, text=match.text)
                for match in found.matches
            ],
        )


class FoundThreadsOut(WireModel):
    found: list[FoundThreadOut]


def search_router(search: FullTextSearch | None, *, numbering: Numbering) -> APIRouter:
    """Its path must be added before `/api/threads/{thread_id}`. `search` is None where messages are not indexed."""
    router = Router(prefix="/api/threads", tags=["threads"])

    @router.get("/search", dependencies=[needs("read")], responses=errors(Invalid, InvalidState))
    async def search_messages(
        caller: Caller,
        q: Annotated[
            str,
            Query(
                min_length=1, max_length=500, description="Words; the last letters of each may be missing."
            ),
        ],
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> FoundThreadsOut:
        """The caller's threads with all these words in one message or in the name, the most recently active first."""
        if search is None:
            raise InvalidState(
                "messages are not indexed on this server: `search.index` is false, or the database is encrypted"
            )
        found = await search.find(caller.owner, q, limit=limit)
        numbers = await numbering.owners(one.thread.owner for one in found)
        return FoundThreadsOut(found=[FoundThreadOut.of(one, numbers[one.thread.owner]) for one in found])

    return router
