"""/api/optimize/cleanup: deletes due threads. Field names are those its callers use."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest

from clew.api.access import PUBLIC
from clew.api.cleanup_auth import CleanupAuth
from clew.api.errors import OutOfRange
from clew.api.numbers import MandateId, Numbering, UserNumber
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.thread_access import ThreadAccess
from clew.domain import retention
from clew.domain.errors import Invalid, InvalidState, NotFound, Unauthenticated, Unavailable
from clew.domain.thread import Owner
from clew.ports.clock import Clock
from clew.retention.cleanup import Cleanup, CleanupOutcome

logger = logging.getLogger(__name__)

CLEANUP = "/api/optimize/cleanup"
# A cleanup may exceed its budget by the time of one portion; cron services disconnect after ten seconds.
SLACK_SECONDS = 1.5

DAYS_OLD = range(1, 366)
MOST_DIGITS = 20  # of a number that is looked at

DaysOld = Annotated[
    str | None,
    Query(
        description="Delete threads not accessed for so many days, 1 to 365; left out, expired threads.",
    ),
]

DryRun = Annotated[bool, Query(description="Only report what would be deleted.")]
Soft = Annotated[bool, Query(description="Soft delete: threads can be restored for seven days.")]
Force = Annotated[bool, Query(description="Delete even if the clock jumped recently.")]
Tenant = Annotated[str | None, Query(max_length=256, description="Only this tenant's.")]
UserId = Annotated[
    str | None, Query(max_length=256, description="Only this user's, of that tenant or of `default`.")
]


@dataclass(frozen=True, slots=True)
class CleanupQuery:
    """What the address of a cleanup says: how old, how, and of which tenant and user, each by name or by number."""

    days_old: DaysOld = None
    dry_run: DryRun = False
    soft: Soft = False
    force: Force = False
    tenant: Tenant = None
    user_id: UserId = None
    mandate_id: MandateId = None
    user_number: UserNumber = None


class CleanupOut(BaseModel):
    status: Literal["completed", "more", "already_running", "dry_run"]
    deleted: int
    preserved: int
    errors: int
    due: int
    """How many are left to be deleted."""
    more: bool
    """Whether the rest is deleted in the background."""
    continuation: str | None
    """The cleanup that continues in the background."""
    thread_ids: list[str]
    """Up to a thousand of them; all are in the log."""
    message: str

    @classmethod
    def of(cls, outcome: CleanupOutcome, what: str) -> Self:
        job = outcome.job
        return cls(
            status=outcome.status,
            deleted=job.deleted if job else 0,
            preserved=outcome.preserved,
            errors=job.failed if job else 0,
            due=outcome.due,
            more=outcome.more,
            continuation=job.id if job and outcome.more else None,
            thread_ids=list(outcome.thread_ids),
            message=_MESSAGES[outcome.status].format(what),
        )


_MESSAGES = {
    "completed": "{}",
    "more": "{}; the rest continues in the background",
    "already_running": "A cleanup is under way already",
    "dry_run": "Nothing was deleted: a dry run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """How the cleanup endpoint runs one."""

    cleanup: Cleanup
    access: ThreadAccess
    gate: CleanupAuth
    numbering: Numbering
    clock: Clock
    is_memory: bool

    async def __call__(
        self,
        days_old: int | None,
        *,
        owner: Owner | None,
        dry_run: bool,
        soft: bool,
        force: bool,
    ) -> CleanupOut:
        await self.access.flush()
        wanted = retention.selection(now=self.clock(), days_old=days_old, owner=owner, soft=soft)
        if self.is_memory:
            what = "No database configured, memory-only cleanup"
        elif days_old is None:
            what = "Cleaned up expired threads"
        else:
            what = f"Cleaned up threads not accessed in {days_old} days"
        if dry_run:
            return CleanupOut.of(await self.cleanup.preview(wanted), what)
        return CleanupOut.of(await self.cleanup.run(wanted, force=force), what)

    async def owner(
        self, tenant: str | None, mandate_id: int | None, user: str | None, user_number: int | None
    ) -> Owner | None:
        """Whose threads; None for everyone's. Names and numbers of any tenant: its callers have no tenant."""
        tenant = await self.numbering.named("tenant", None, mandate_id, tenant)
        user = await self.numbering.named("user", tenant or Owner().tenant, user_number, user)
        if tenant is None:
            return Owner(user_id=user) if user else None
        return Owner(tenant=tenant, user_id=user or "")

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None]:
        """The caller is answered before its own timeout, with Unavailable at the latest."""
        try:
            async with asyncio.timeout(self.cleanup.budget_seconds + SLACK_SECONDS):
                yield
        except TimeoutError:
            raise Unavailable(
                "the database is slow; a cleanup that has begun continues in the background"
            ) from None


def cleanup_router(sweep: Sweep) -> APIRouter:
    router = Router(prefix="/api/optimize", tags=["optimize"])
    refusals = errors(Unauthenticated, Invalid, NotFound, OutOfRange, InvalidState, Unavailable)

    @router.post("/cleanup", dependencies=[PUBLIC], responses=refusals)
    async def clean_up(request: HttpRequest, query: Annotated[CleanupQuery, Depends()]) -> CleanupOut:
        """Delete threads that are due. Asks for CLEANUP_API_KEY or CRON_SECRET, not for an API key of a caller."""
        return await _cleaned_up(sweep, request, query)

    @router.get("/cleanup", dependencies=[PUBLIC], responses=refusals)
    async def clean_up_by_cron(request: HttpRequest, query: Annotated[CleanupQuery, Depends()]) -> CleanupOut:
        """The same as POST, for cron services that can only send GET."""
        return await _cleaned_up(sweep, request, query)

    return router


async def _cleaned_up(sweep: Sweep, request: HttpRequest, query: CleanupQuery) -> CleanupOut:
    sent = request.url.query
    target = f"{CLEANUP}?{sent}" if sent else CLEANUP
    try:
        async with sweep.in_time():
            await sweep.gate.admit(request.headers, request.method, target)
            owner = await sweep.owner(query.tenant, query.mandate_id, query.user_id, query.user_number)
            return await sweep(
                _days(query.days_old),
                owner=owner,
                dry_run=query.dry_run,
                soft=query.soft,
                force=query.force,
            )
    except Unavailable as exc:
        logger.error("no cleanup: %s", exc, extra={"code": exc.code})  # noqa: TRY400 - it says enough
        raise


def _days(text: str | None) -> int | None:
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    if not is_number or int(text) not in DAYS_OLD:
        raise OutOfRange("expected a whole number from 1 to 365", field="days_old")
    return int(text)
