"""/api/queue: what waits and runs, the processes, and two ways to change the order of what waits."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from clew.api.access import needs
from clew.api.credentials import Principal
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.domain.errors import Invalid, InvalidState, NotFound
from clew.domain.thread import Owner
from clew.engine.commands import Commands
from clew.ports.queue import ALIVE, Process, QueueLoad, QueueState, WaitingThread
from clew.ports.threads import Store

ThreadId = Annotated[str, Path(max_length=256)]
Tenant = Annotated[
    str | None, Query(max_length=64, description="Another tenant, or * for all: with scope operator.")
]


class QueueLoadOut(WireModel):
    graph: str
    tenant: str
    waiting: int
    running: int
    queued_behind: int
    """Runs that wait until another run of their thread has ended."""
    oldest_wait_seconds: float

    @classmethod
    def of(cls, one: QueueLoad) -> "QueueLoadOut":
        return cls(
            graph=one.graph,
            tenant=one.tenant,
            waiting=one.waiting,
            running=one.running,
            queued_behind=one.behind,
            oldest_wait_seconds=one.oldest_wait.total_seconds(),
        )


class WaitingThreadOut(WireModel):
    thread_id: str
    tenant: str
    user: str
    graph: str
    priority: int
    is_first: bool
    """Whether it was moved to the front."""
    waited_seconds: float

    @classmethod
    def of(cls, one: WaitingThread) -> "WaitingThreadOut":
        return cls(
            thread_id=one.thread_id,
            tenant=one.owner.tenant,
            user=one.owner.user_id,
            graph=one.graph,
            priority=one.priority,
            is_first=one.is_first,
            waited_seconds=one.waited.total_seconds(),
        )


class ProcessOut(WireModel):
    name: str
    host: str
    version: str
    role: str
    slots: int
    running: int
    graphs: list[str]
    started_at: datetime
    silent_seconds: float
    is_alive: bool

    @classmethod
    def of(cls, one: Process) -> "ProcessOut":
        return cls(
            name=one.name,
            host=one.host,
            version=one.version,
            role=one.role,
            slots=one.slots,
            running=one.running,
            graphs=sorted(one.graphs),
            started_at=one.started_at,
            silent_seconds=one.silent.total_seconds(),
            is_alive=one.silent < ALIVE,
        )


class QueueOut(WireModel):
    waiting: int
    running: int
    queued_behind: int
    oldest_wait_seconds: float
    loads: list[QueueLoadOut]
    """By graph and tenant."""
    next: list[WaitingThreadOut]
    """The threads that are claimed next, first the first."""
    processes: list[ProcessOut]


class QueueChangeOut(WireModel):
    thread_id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRoutes:
    queue: QueueState
    store: Store
    commands: Commands

    def router(self) -> APIRouter:
        router = Router(prefix="/api/queue", tags=["operation"])
        router.get("", dependencies=[needs("admin")], responses=errors(Invalid))(self.show_queue)
        refused = errors(Invalid, NotFound, InvalidState)
        router.post("/{thread_id}/cancel", dependencies=[needs("admin")], responses=refused)(
            self.cancel_waiting
        )
        router.post("/{thread_id}/front", dependencies=[needs("operator")], responses=refused)(
            self.move_to_front
        )
        return router

    async def show_queue(
        self, caller: Caller, tenant: Tenant = None, limit: Annotated[int, Query(ge=0, le=1000)] = 100
    ) -> QueueOut:
        """What waits and runs now, by graph and tenant, and the processes on this database."""
        owner = owner_of(caller, tenant)
        loads = await self.queue.loads(owner)
        return QueueOut(
            waiting=sum(one.waiting for one in loads),
            running=sum(one.running for one in loads),
            queued_behind=sum(one.behind for one in loads),
            oldest_wait_seconds=max((one.oldest_wait.total_seconds() for one in loads), default=0.0),
            loads=[QueueLoadOut.of(one) for one in loads],
            next=[WaitingThreadOut.of(one) for one in await self.queue.waiting(owner, limit=limit)],
            processes=[ProcessOut.of(one) for one in await self.queue.processes()],
        )

    async def cancel_waiting(
        self, caller: Caller, thread_id: ThreadId, tenant: Tenant = None
    ) -> QueueChangeOut:
        """Stop a run that waits. One that runs is left alone."""
        owner = owner_of(caller, tenant)
        await self.queue.require_waiting(thread_id, owner)
        thread = await self.commands.stop(thread_id, owner)
        return QueueChangeOut(thread_id=thread_id, status=thread.status)

    async def move_to_front(
        self, caller: Caller, thread_id: ThreadId, tenant: Tenant = None
    ) -> QueueChangeOut:
        """Start a run that waits before all others, of any priority and tenant."""
        await self.store.move_to_front(thread_id, owner_of(caller, tenant))
        return QueueChangeOut(thread_id=thread_id, status="front")


def owner_of(caller: Principal, tenant: str | None) -> Owner | None:
    """Whose runs are shown; None for those of all tenants. Raises Forbidden."""
    if tenant is None or tenant == caller.tenant:
        return caller.itself
    caller.require("operator")
    return None if tenant == "*" else Owner(tenant=tenant)


def threads_owner(caller: Principal, tenant: str | None) -> Owner | None:
    """The same for threads, of which a caller may see a part of its tenant's."""
    return caller.owner if tenant in (None, caller.tenant) else owner_of(caller, tenant)


def queue_router(queue: QueueState, store: Store, commands: Commands) -> APIRouter:
    return QueueRoutes(queue=queue, store=store, commands=commands).router()
