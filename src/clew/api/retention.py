"""/api/threads, retention: usage, export, delete, undelete, cleanup."""

import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response, StreamingResponse

from clew.api.access import DELETION_SECONDS, needs
from clew.api.cleanup import DryRun, Force, Soft
from clew.api.credentials import Principal
from clew.api.guard import Caller
from clew.api.numbers import MandateId, Numbering, UserNumber
from clew.api.openapi import errors
from clew.api.queue import Tenant, threads_owner
from clew.api.retention_schemas import (
    BinnedListOut,
    BinnedOut,
    CountsOut,
    DeletedThreadsOut,
    ThreadCleanupOut,
    ThreadDeletedOut,
    UsageOut,
)
from clew.api.routing import Router
from clew.api.schemas import ThreadOut
from clew.api.thread_access import ThreadAccess
from clew.domain import retention
from clew.domain.errors import Corrupt, Invalid, InvalidState, NotFound
from clew.domain.retention import Selection
from clew.engine.commands import Commands
from clew.ports.clock import Clock
from clew.ports.retention import Trash
from clew.retention.cleanup import Cleanup
from clew.retention.export import Archive, Export
from clew.telemetry import Metrics

logger = logging.getLogger(__name__)

ThreadId = Annotated[str, Path(max_length=256)]
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRoutes:
    """Its fixed paths must be added before `/api/threads/{thread_id}`, which would match them as ids."""

    commands: Commands
    trash: Trash
    cleanup: Cleanup
    export: Export
    access: ThreadAccess
    numbering: Numbering
    clock: Clock
    metrics: Metrics

    def router(self) -> APIRouter:
        router = Router(prefix="/api/threads", tags=["threads"])
        router.get("/counts", dependencies=[needs("read")])(self.thread_counts)
        router.get("/usage", dependencies=[needs("read")])(self.thread_usage)
        router.get("/deleted", dependencies=[needs("read")], responses=errors(Invalid))(self.deleted_threads)
        router.post("/cleanup", dependencies=[needs("admin")], responses=errors(Invalid, InvalidState))(
            self.clean_up_threads
        )
        router.delete("", dependencies=[needs("admin")], responses=errors(Invalid, NotFound, InvalidState))(
            self.delete_threads
        )
        router.get(
            "/{thread_id}/export",
            dependencies=[needs("read")],
            response_class=Response,
            responses={**errors(Invalid, NotFound), 200: {"content": {"application/zip": {}}}},
        )(self.export_thread)
        router.delete(
            "/{thread_id}",
            dependencies=[needs("write", seconds=DELETION_SECONDS)],
            responses=errors(Invalid, NotFound),
        )(self.delete_thread)
        router.post(
            "/{thread_id}/undelete",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.undelete_thread)
        return router

    async def thread_counts(self, caller: Caller, tenant: Tenant = None) -> CountsOut:
        """How many of the caller's threads have each status."""
        owner = threads_owner(caller, tenant)
        return CountsOut(by_status=await self.cleanup.space.by_status(owner))

    async def thread_usage(self, caller: Caller) -> UsageOut:
        """Usage of the caller's threads, and how many a cleanup would delete."""
        wanted = retention.selection(now=self.clock(), days_old=None, owner=caller.owner)
        is_operator = "operator" in caller.scopes
        return UsageOut.of(
            await self.cleanup.space.usage(wanted),
            await self.cleanup.space.sizes() if is_operator else None,
            await self.cleanup.rows.last() if is_operator else None,
        )

    async def deleted_threads(
        self, caller: Caller, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> BinnedListOut:
        """Soft-deleted threads, the most recently deleted first."""
        found = await self.trash.find(caller.owner, limit=limit)
        numbers = await self.numbering.owners(thread.owner for thread in found)
        return BinnedListOut(threads=[BinnedOut.of(thread, numbers[thread.owner]) for thread in found])

    async def clean_up_threads(
        self,
        caller: Caller,
        days_old: Annotated[int | None, Query(ge=1, le=365)] = None,
        dry_run: DryRun = False,
        soft: Soft = False,
        force: Force = False,
    ) -> ThreadCleanupOut:
        """Delete the caller's due threads, as /api/optimize/cleanup does for all owners."""
        await self.access.flush()
        wanted = retention.selection(now=self.clock(), days_old=days_old, owner=caller.owner, soft=soft)
        outcome = await (self.cleanup.preview(wanted) if dry_run else self.cleanup.run(wanted, force=force))
        return ThreadCleanupOut.of(outcome)

    async def delete_threads(
        self,
        caller: Caller,
        tenant: Annotated[
            str | None, Query(max_length=256, description="The caller's own tenant: all its threads.")
        ] = None,
        user_id: Annotated[
            str | None, Query(max_length=256, description="A user of the caller's tenant: all their threads.")
        ] = None,
        mandate_id: MandateId = None,
        user_number: UserNumber = None,
    ) -> DeletedThreadsOut:
        """Delete all threads of the caller's tenant, or of one of its users, whatever their age and status.

        What does not fit into the budget of a cleanup is deleted in the background.
        """
        tenant = await self.numbering.named("tenant", caller.tenant, mandate_id, tenant)
        user_id = await self.numbering.named("user", caller.tenant, user_number, user_id)
        outcome = await self.cleanup.delete_all(_owned(caller, tenant, user_id))
        logger.info(
            "threads of an owner deleted",
            extra={"tenant": caller.tenant, "count": len(outcome.thread_ids), "key_id": caller.key_id},
        )
        return DeletedThreadsOut.of(outcome)

    async def export_thread(self, caller: Caller, thread_id: ThreadId) -> Response:
        """The whole thread as a zip: log, messages, documents, and the newest state of its graph.

        Parts that cannot be read are left out and listed in `problems.json`.
        """
        thread = await self.access.at(thread_id, caller.owner)
        name = f"thread-{_PLAIN.sub('_', thread_id)}.zip"
        return StreamingResponse(
            _watched(self.export.zip_of(thread), thread_id),
            media_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    async def delete_thread(
        self, caller: Caller, thread_id: ThreadId, soft: Soft = False
    ) -> ThreadDeletedOut:
        """Delete a thread with everything that belongs to it."""
        await (self.commands.soft_delete if soft else self.commands.delete)(thread_id, caller.owner)
        self.metrics.deleted_threads.labels("request").inc()
        logger.info("thread deleted", extra={"thread_id": thread_id, "key_id": caller.key_id})
        return ThreadDeletedOut(id=thread_id)

    async def undelete_thread(self, caller: Caller, thread_id: ThreadId) -> ThreadOut:
        """Restore a soft-deleted thread. A run that was under way continues."""
        thread = await self.commands.restore(thread_id, caller.owner)
        return ThreadOut.of(thread, await self.numbering.owner(thread.owner))


def retention_router(
    commands: Commands,
    trash: Trash,
    cleanup: Cleanup,
    export: Export,
    *,
    access: ThreadAccess,
    numbering: Numbering,
    clock: Clock,
    metrics: Metrics,
) -> APIRouter:
    return RetentionRoutes(
        commands=commands,
        trash=trash,
        cleanup=cleanup,
        export=export,
        access=access,
        numbering=numbering,
        clock=clock,
        metrics=metrics,
    ).router()


def _owned(caller: Principal, tenant: str | None, user_id: str | None) -> Selection:
    if tenant is None and user_id is None:
        raise Invalid("say whose threads: `tenant`, or `user_id`", field="tenant")
    if tenant not in (None, caller.tenant):
        raise NotFound(f"no tenant {tenant!r}")
    # A key of one user sees only that user's data: neither the tenant nor its other users.
    if caller.user_id and user_id != caller.user_id:
        raise NotFound(f"no tenant {tenant!r}" if user_id is None else f"no user {user_id!r}")
    return retention.owned_by(caller.tenant, user_id)


async def _watched(archive: Archive, thread_id: str) -> AsyncIterator[bytes]:
    """The status was sent with the first piece, so missing parts are listed in the zip and in the log."""
    async for piece in archive:
        yield piece
    if archive.problems:
        logger.warning(
            "an export is incomplete",
            extra={"thread_id": thread_id, "code": Corrupt.code, "count": len(archive.problems)},
        )
