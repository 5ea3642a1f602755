"""Webhooks of chat providers: each checks the provider's own proof and answers once the delivery is stored."""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from clew.api.access import PUBLIC
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import DeliveredOut
from clew.api.strict_json import JSON
from clew.domain.errors import Duplicate, Unauthenticated
from clew.domain.records import Delivery
from clew.ports.channels import Became, WebhookReceiver

logger = logging.getLogger(__name__)

Name = Annotated[str, Path(max_length=64, description="The bot's name in the settings.")]

NO_PROOF = "no proof that this request comes from the provider"
TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelsRoutes:
    """`doors` are the webhook receivers by channel and name, as in `telegram:support`."""

    doors: Mapping[str, WebhookReceiver]

    def router(self) -> APIRouter:
        router = Router(prefix="/channels", tags=["channels"])
        router.post("/telegram/{bot}", dependencies=[PUBLIC], responses=errors(Unauthenticated, Duplicate))(
            self.telegram
        )
        router.post(
            "/wecom/{app}",
            dependencies=[PUBLIC],
            responses=errors(Unauthenticated, Duplicate) | TEXT,
            response_class=Response,
        )(self.wecom)
        router.get(
            "/wecom/{app}",
            dependencies=[PUBLIC],
            responses=errors(Unauthenticated) | TEXT,
            response_class=Response,
        )(self.wecom_check)
        return router

    async def telegram(self, request: Request, bot: Name) -> DeliveredOut:
        """Telegram's webhook. Asks for the bot's secret token, not for an API key."""
        return DeliveredOut(status=await self._received(request, f"telegram:{bot}"))

    async def wecom(self, request: Request, app: Name) -> PlainTextResponse:
        """WeCom's callback. Asks for its signature, not for an API key."""
        source = f"wecom:{app}"
        await self._received(request, source)
        return PlainTextResponse(self.doors[source].thanks)

    async def wecom_check(self, request: Request, app: Name) -> PlainTextResponse:
        """WeCom verifies the callback URL: the answer is `echostr`, decrypted."""
        with self._at_door(f"wecom:{app}") as door:
            return PlainTextResponse(door.greet(_delivery(request, b"")))

    async def _received(self, request: Request, source: str) -> Became:
        body = await request.body()
        with self._at_door(source) as door:
            return await door.receive(_delivery(request, body))

    @contextmanager
    def _at_door(self, source: str) -> Generator[WebhookReceiver]:
        """Which bots exist, and what was wrong with a proof, is logged and not sent to the caller."""
        if source not in self.doors:
            raise Unauthenticated(NO_PROOF)
        try:
            yield self.doors[source]
        except Unauthenticated as exc:
            logger.info("a delivery was refused: %s", exc, extra={"source": source, "code": exc.code})
            raise Unauthenticated(NO_PROOF) from None


def channels_router(doors: Mapping[str, WebhookReceiver]) -> APIRouter:
    return ChannelsRoutes(doors=doors).router()


def _delivery(request: Request, body: bytes) -> Delivery:
    return Delivery(
        headers=dict(request.headers),
        query=dict(request.query_params),
        body=body,
        json=request.scope.get(JSON),
    )
