"""/api/threads: list threads and read their events."""

import base64
import binascii
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, AwareDatetime

from clew.api.access import needs
from clew.api.credentials import Principal
from clew.api.guard import Caller
from clew.api.numbers import Numbering
from clew.api.openapi import errors
from clew.api.queue import Tenant, threads_owner
from clew.api.routing import Router
from clew.api.schemas import EventOut, EventsOut, ThreadOut, ThreadsOut, WholeThreadOut
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import File
from clew.domain.thread import Owner, Status, Thread
from clew.ports.threads import Store

# JSON numbers are exact up to here in every client.
MAX_SEQ = 2**53 - 1

ThreadId = Annotated[str, Path(max_length=256)]


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time lies between the years 1 and 9999") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]


def threads_router(store: Store, *, access: ThreadAccess, numbering: Numbering) -> APIRouter:
    router = Router(prefix="/api/threads", tags=["threads"])

    @router.get("", dependencies=[needs("read")], responses=errors(Invalid))
    async def list_threads(
        caller: Caller,
        status: Annotated[list[Status] | None, Query()] = None,
        graph: Annotated[str | None, Query(max_length=256)] = None,
        user: Annotated[str, Query(max_length=256, description="Only of this user of the tenant.")] = "",
        active_since: Annotated[Moment | None, Query(alias="activeSince")] = None,
        active_until: Annotated[Moment | None, Query(alias="activeUntil")] = None,
        tenant: Tenant = None,
        sort: Literal["created", "activity"] = "created",
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Query(max_length=1024, pattern="^[A-Za-z0-9_-]+$")] = None,
    ) -> ThreadsOut:
        """The caller's threads, newest first. Those of another tenant come without what people wrote."""
        owner = threads_owner(caller, tenant)
        if owner is None and user:
            raise Invalid("the tenant of this user is needed", field="tenant")
        before = None if cursor is None else read_cursor(cursor)
        # One more than asked for says whether there is a next page.
        found = await store.find(
            owner if owner is None else of_user(owner, user),
            status=status or (),
            graph=graph,
            active_since=active_since,
            active_until=active_until,
            by_activity=sort == "activity",
            before=before,
            limit=limit + 1,
        )
        page = found[:limit]
        numbers = await numbering.owners(thread.owner for thread in page)
        return ThreadsOut(
            threads=[shown_to(caller, ThreadOut.of(thread, numbers[thread.owner])) for thread in page],
            next=write_cursor(page[-1], by_activity=sort == "activity") if len(found) > limit else None,
        )

    @router.get("/{thread_id}", dependencies=[needs("read")], responses=errors(Invalid, NotFound))
    async def get_thread(caller: Caller, thread_id: ThreadId) -> WholeThreadOut:
        """One thread. Another owner's is not found."""
        thread = await access.at(thread_id, caller.owner)
        return WholeThreadOut.of(thread, await numbering.owner(thread.owner))

    return router


def thread_events_router(store: Store, *, access: ThreadAccess) -> APIRouter:
    router = Router(prefix="/api/threads", tags=["threads"])

    @router.get("/{thread_id}/events", dependencies=[needs("read")], responses=errors(Invalid, NotFound))
    async def list_events(
        caller: Caller,
        thread_id: ThreadId,
        after: Annotated[
            int | None, Query(ge=0, le=MAX_SEQ, description="Only events with a greater seq.")
        ] = None,
        before: Annotated[
            int | None, Query(ge=0, le=MAX_SEQ, description="Only events with a smaller seq.")
        ] = None,
        limit: Annotated[
            int,
            Query(ge=1, le=1000, description="The newest so many; with `after` alone, the oldest so many."),
        ] = 100,
    ) -> EventsOut:
        """The events of a thread in order, the newest `limit` of them.

        Go back with `before` set to the first seq of the page. To read from the beginning, set `after` to 0, and go on
        with `after` set to the last seq of the page.
        """
        thread = await access.at(thread_id, caller.owner)
        events = await store.read(
            thread_id, after=after, before=before, limit=limit, newest=before is not None
        )
        return EventsOut(events=[EventOut.of(thread, event) for event in events], last_seq=thread.last_seq)

    return router


def shown_to(caller: Principal, thread: ThreadOut) -> ThreadOut:
    """An operator sees what is going on in other tenants, not what is said there."""
    if thread.tenant == caller.tenant:
        return thread
    return thread.model_copy(update={"name": "", "pending": {}, "failure_reason": None})


def of_user(owner: Owner, user: str) -> Owner:
    """One user of the tenant. A key of one user has that user's threads alone, so another's are none."""
    if not user or user == owner.user_id:
        return owner
    if owner.user_id:
        raise Invalid("your key belongs to another user", field="user")
    return replace(owner, user_id=user)


def write_cursor(last: Thread | File, *, by_activity: bool = False) -> str:
    """A position in a list. It grants no access: the caller alone decides whose data is listed."""
    at = last.last_active_at if by_activity and isinstance(last, Thread) else last.created_at
    text = f"{at.astimezone(UTC).isoformat()} {last.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        moment, _, thread_id = text.partition(" ")
        created_at = datetime.fromisoformat(moment)
    except (binascii.Error, ValueError):
        raise Invalid("this is not a valid cursor", field="cursor") from None
    if created_at.tzinfo is None or not thread_id or not thread_id.isprintable():
        raise Invalid("this is not a valid cursor", field="cursor")
    return created_at, thread_id
