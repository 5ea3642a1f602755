"""/api/webhooks: webhooks of runs that were given up, to be called again or dismissed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Query, Response

from clew.api.access import needs
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.queue import Tenant, owner_of
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import FailedWebhook
from clew.ports.run_hooks import FailedWebhooks

RunId = Annotated[str, Path(max_length=256)]


class FailedWebhookOut(WireModel):
    run_id: str
    thread_id: str
    tenant: str
    user: str
    url: str
    """Its scheme and host. The rest of an address may be a secret."""
    attempts: int
    reason: str
    failed_at: datetime

    @classmethod
    def of(cls, one: FailedWebhook) -> "FailedWebhookOut":
        address = urlsplit(one.url)
        return cls(
            run_id=one.run_id,
            thread_id=one.thread_id,
            tenant=one.owner.tenant,
            user=one.owner.user_id,
            url=f"{address.scheme}://{address.netloc}",
            attempts=one.attempts,
            reason=one.reason,
            failed_at=one.failed_at,
        )


class FailedWebhooksOut(WireModel):
    webhooks: list[FailedWebhookOut]


class WebhookChangeOut(WireModel):
    run_id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRoutes:
    webhooks: FailedWebhooks

    def router(self) -> APIRouter:
        router = Router(prefix="/api/webhooks", tags=["operation"])
        router.get("/failed", dependencies=[needs("admin")], responses=errors(Invalid))(self.failed_webhooks)
        refused = errors(Invalid, NotFound)
        router.post("/{run_id}/retry", dependencies=[needs("admin")], responses=refused)(self.retry_webhook)
        router.delete("/{run_id}", dependencies=[needs("admin")], responses=refused, status_code=204)(
            self.dismiss_webhook
        )
        return router

    async def failed_webhooks(
        self, caller: Caller, tenant: Tenant = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> FailedWebhooksOut:
        """Webhooks of runs that were given up, the most recent first."""
        found = await self.webhooks.failed(owner_of(caller, tenant), limit=limit)
        return FailedWebhooksOut(webhooks=[FailedWebhookOut.of(one) for one in found])

    async def retry_webhook(self, caller: Caller, run_id: RunId, tenant: Tenant = None) -> WebhookChangeOut:
        """Call a webhook that was given up again, with all its attempts."""
        await self.webhooks.call_again(run_id, owner_of(caller, tenant))
        return WebhookChangeOut(run_id=run_id, status="due")

    async def dismiss_webhook(self, caller: Caller, run_id: RunId, tenant: Tenant = None) -> Response:
        """Forget a webhook that was given up."""
        await self.webhooks.dismiss(run_id, owner_of(caller, tenant))
        return Response(status_code=204)


def webhooks_router(webhooks: FailedWebhooks) -> APIRouter:
    return WebhookRoutes(webhooks=webhooks).router()
