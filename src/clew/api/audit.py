"""Audit trail over HTTP: every change a caller asks for, and what callers read of threads, is recorded and can be listed."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.types import Message, Scope, Send

from clew.api.access import RouteRule, needs
from clew.api.credentials import PRINCIPAL, Principal
from clew.api.guard import RULE, Caller
from clew.api.numbers import MandateId, Numbering, OwnerNumbers, UserNumber
from clew.api.observe import REQUEST
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.domain.errors import ClewError, Invalid, NotFound
from clew.domain.thread import Owner
from clew.ports.audit import AuditEntry, AuditQuery, AuditTrail
from clew.ports.clock import Clock

logger = logging.getLogger(__name__)

# A client that polls one thread is recorded this often.
READ_GRAIN = timedelta(minutes=1)
RETRY_SECONDS = 1.0
# Entries in one transaction, entries that wait for a database, and reads that are remembered.
AT_ONCE = 200
MOST_WAITING = 10_000
REMEMBERED = 10_000
_LONGEST_PATH = 500
_THREADS = ("thread_id", "workflow_id")

_started: ContextVar[list[str] | None] = ContextVar("clew_audit_thread", default=None)


def note_thread(thread_id: str) -> None:
    """The request being handled is about this thread, which its path does not name: it has just been created."""
    if (noted := _started.get()) is not None:
        noted[:] = [thread_id]


class AuditWriter:
    """Writes entries in batches. What a database does not take is kept and written when it answers again."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        self._waiting: deque[tuple[AuditEntry, asyncio.Future[None]]] = deque()
        self._new = asyncio.Event()

    async def add(self, entry: AuditEntry, *, seconds: float) -> None:
        """Waits until the entry is written, at most this long."""
        if len(self._waiting) >= MOST_WAITING:
            logger.error("an audit entry is lost: the database has not taken any for long")
            return
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, written))
        self._new.set()
        if seconds > 0:
            await asyncio.wait((written,), timeout=seconds)

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[None]:
        """Inside the block entries are written; the last ones at its end."""
        writing = asyncio.create_task(self._write_forever())
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._write()

    async def _write_forever(self) -> None:
        while True:
            await self._new.wait()
            self._new.clear()
            await self._write()

    async def _write(self) -> None:
        while batch := [*self._waiting][:AT_ONCE]:
            try:
                await self._trail.add([entry for entry, _ in batch])
            except ClewError as exc:
                logger.warning("audit entries wait", extra={"count": len(self._waiting), "code": exc.code})
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._new.set)
                return
            for _, written in batch:
                self._waiting.popleft()
                written.set_result(None)


class Audit:
    """Records a request before its answer is sent: what a client was told has happened is in the trail.

    Changes are always recorded, refused ones too; reads of a thread once a minute for each caller and path."""

    def __init__(
        self,
        *,
        writer: AuditWriter,
        clock: Clock,
        new_id: Callable[[], str],
        records_local: bool,
        wait_seconds: float = 2.0,
    ) -> None:
        """`records_local`: also callers on this machine that need no key."""
        self._writer = writer
        self._clock = clock
        self._new_id = new_id
        self._records_local = records_local
        self._wait_seconds = wait_seconds
        self._read: dict[tuple[str, str, str], datetime] = {}  # the oldest first

    @contextmanager
    def recording(self, scope: Scope, send: Send) -> Generator[Send]:
        """Inside the block the request is handled, and its answer goes through what this returns."""
        thread: list[str] = []
        token = _started.set(thread)

        async def answer(message: Message) -> None:
            status = _status(message)
            if status is not None:
                await self._record(scope, status, thread)
            await send(message)

        try:
            yield answer
        finally:
            _started.reset(token)

    async def _record(self, scope: Scope, status: int, thread: list[str]) -> None:
        rule: RouteRule | None = scope.get(RULE)
        caller: Principal | None = scope.get(PRINCIPAL)
        if rule is None or caller is None:
            return
        if not (caller.key_id or caller.user_id or self._records_local):
            return
        named = next((scope["path_params"][name] for name in _THREADS if name in scope["path_params"]), "")
        now = self._clock()
        is_read = rule.access.scope in ("read", "metrics")
        if is_read and not (named and self._is_new_read(caller, scope["path"], now)):
            return
        entry = AuditEntry(
            id=self._new_id(),
            at=now,
            tenant=caller.tenant,
            user_id=caller.user_id,
            actor=caller.key_id or "local",
            action=rule.context.name or "",
            method=scope.get("method", "WEBSOCKET"),
            path=scope["path"][:_LONGEST_PATH],
            thread_id=thread[0] if thread else named,
            status=status,
            request_id=scope.get(REQUEST, ""),
        )
        # A read changed nothing, and after an outage of the database the client was told of none.
        waits = not is_read and status < 500
        await self._writer.add(entry, seconds=self._wait_seconds if waits else 0)

    def _is_new_read(self, caller: Principal, path: str, now: datetime) -> bool:
        key = (caller.tenant, caller.key_id, path)
        last = self._read.pop(key, None)
        is_new = last is None or now - last >= READ_GRAIN
        self._read[key] = now if is_new or last is None else last
        if len(self._read) > REMEMBERED:
            del self._read[next(iter(self._read))]
        return is_new


def _status(message: Message) -> int | None:
    match message["type"]:
        case "http.response.start" | "websocket.http.response.start":
            return int(message["status"])
        case "websocket.accept":
            return 101
        case _:
            return None


class AuditEntryOut(WireModel):
    id: str
    at: datetime
    mandate_id: int
    """The number of the tenant."""
    user_id: int
    """The number of the user; 0 without a user."""
    tenant: str
    user: str
    actor: str
    action: str
    method: str
    path: str
    thread_id: str
    status: int
    request_id: str

    @classmethod
    def of(cls, entry: AuditEntry, numbers: OwnerNumbers) -> "AuditEntryOut":
        return cls(
            id=entry.id,
            at=entry.at,
            mandate_id=numbers.tenant,
            user_id=numbers.user,
            tenant=entry.tenant,
            user=entry.user_id,
            actor=entry.actor,
            action=entry.action,
            method=entry.method,
            path=entry.path,
            thread_id=entry.thread_id,
            status=entry.status,
            request_id=entry.request_id,
        )


class AuditOut(WireModel):
    entries: list[AuditEntryOut]
    next: str | None
    """The `before` of the next page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTrailRoutes:
    trail: AuditTrail
    numbering: Numbering

    def router(self) -> APIRouter:
        router = Router(prefix="/api/audit", tags=["operation"])
        router.get("", dependencies=[needs("admin")], responses=errors(Invalid, NotFound))(
            self.list_audit_entries
        )
        return router

    async def list_audit_entries(
        self,
        caller: Caller,
        tenant: Annotated[
            str | None, Query(max_length=64, description="Another tenant, or * for all: with scope operator.")
        ] = None,
        user: Annotated[str | None, Query(max_length=256)] = None,
        mandate_id: MandateId = None,
        user_number: UserNumber = None,
        thread_id: Annotated[str, Query(alias="threadId", max_length=256)] = "",
        action: Annotated[str, Query(max_length=100)] = "",
        before: Annotated[str, Query(max_length=64, description="Entries older than this one.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> AuditOut:
        """Who did what, newest first: requests that changed something, and reads of threads."""
        whose = None if "operator" in caller.scopes else caller.tenant
        tenant = await self.numbering.named("tenant", whose, mandate_id, tenant)
        if tenant is None:
            tenant = caller.tenant
        elif tenant != caller.tenant:
            caller.require("operator")
        whose = None if tenant == "*" else tenant
        if whose is None and user_number is not None:
            raise Invalid("a user number belongs to one tenant; name the tenant", field="userId")
        user = await self.numbering.named("user", whose, user_number, user)
        found = await self.trail.find(
            AuditQuery(
                tenant=whose,
                user_id=caller.user_id or user or "",
                thread_id=thread_id,
                action=action,
                before=before,
                limit=limit,
            )
        )
        owners = [Owner(tenant=entry.tenant, user_id=entry.user_id) for entry in found]
        numbers = await self.numbering.owners(owners)
        return AuditOut(
            entries=[
                AuditEntryOut.of(entry, numbers[owner]) for entry, owner in zip(found, owners, strict=True)
            ],
            next=found[-1].id if len(found) == limit else None,
        )


def audit_trail_router(trail: AuditTrail, *, numbering: Numbering) -> APIRouter:
    return AuditTrailRoutes(trail=trail, numbering=numbering).router()
