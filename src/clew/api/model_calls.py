"""/api/threads/{id}/model-calls: the exact requests sent to models, where they are recorded."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from clew.api.access import needs
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.api.thread_access import ThreadAccess
from clew.api.threads import ThreadId
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import ModelCall
from clew.domain.thread import Json
from clew.ports.model_calls import ModelCalls


class ModelCallOut(WireModel):
    id: str
    turn_ref: int
    status: str
    model: str
    redacted: bool
    """Whether a message or a document was deleted that the request may have contained."""
    rendered_context: Json
    """Null for what was redacted."""
    error: str
    """What the provider or the program answered, if the call failed. Keys are masked."""
    usage: Json
    latency_ms: int
    summary_version: str | None
    evictions: Json
    created_at: datetime

    @classmethod
    def of(cls, call: ModelCall) -> "ModelCallOut":
        return cls(
            id=call.id,
            turn_ref=call.turn_ref,
            status=call.status,
            model=call.model,
            redacted=call.rendered_context is None,
            rendered_context=call.rendered_context,
            error=call.error,
            usage=call.usage,
            latency_ms=call.latency_ms,
            summary_version=call.summary_version,
            evictions=call.evictions,
            created_at=call.created_at,
        )


class ModelCallsOut(WireModel):
    model_calls: list[ModelCallOut]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRoutes:
    audit: ModelCalls
    access: ThreadAccess

    def router(self) -> APIRouter:
        router = Router(prefix="/api/threads", tags=["threads"])
        router.get(
            "/{thread_id}/model-calls", dependencies=[needs("read")], responses=errors(Invalid, NotFound)
        )(self.list_model_calls)
        return router

    async def list_model_calls(
        self, caller: Caller, thread_id: ThreadId, limit: Annotated[int, Query(ge=1, le=200)] = 50
    ) -> ModelCallsOut:
        """The newest model calls of a thread, newest first: those that failed, and all if they are recorded
        (CLEW_MODEL_CALLS_RECORD)."""
        await self.access.at(thread_id, caller.owner)
        calls = await self.audit.find(thread_id, limit=limit)
        return ModelCallsOut(model_calls=[ModelCallOut.of(call) for call in calls])


def audit_router(audit: ModelCalls, *, access: ThreadAccess) -> APIRouter:
    return AuditRoutes(audit=audit, access=access).router()
