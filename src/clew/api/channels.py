"""Webhooks of chat providers: each asks for a proof of its own, and is answered as soon as what it brought is safe."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from clew.api.access import public
from clew.api.openapi import errors
from clew.api.schemas import DeliveredOut
from clew.api.strict_json import JSON
from clew.domain.errors import Duplicate, Unauthenticated
from clew.domain.records import Delivery
from clew.ports import Became, Door

Name = Annotated[str, Path(max_length=64, description="The bot's name in the settings.")]
# What WeCom wants to hear, whatever became of it.
SUCCESS = "success"

TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}


def channels_router(doors: Mapping[str, Door]) -> APIRouter:
    """`doors` by their channel and name, as in `telegram:support`."""
    router = APIRouter(prefix="/channels", tags=["channels"])

    @router.post("/telegram/{bot}", responses=errors(Unauthenticated, Duplicate))
    @public
    async def telegram(request: Request, bot: Name) -> DeliveredOut:
        """Telegram's webhook. Asks for the bot's secret token, not for an API key."""
        return DeliveredOut(status=await received(request, f"telegram:{bot}"))

    @router.post("/wecom/{app}", responses=errors(Unauthenticated, Duplicate) | TEXT, response_class=Response)
    @public
    async def wecom(request: Request, app: Name) -> PlainTextResponse:
        """WeCom's callback. Asks for its signature, not for an API key."""
        await received(request, f"wecom:{app}")
        return PlainTextResponse(SUCCESS)

    @router.get("/wecom/{app}", responses=errors(Unauthenticated) | TEXT, response_class=Response)
    @public
    async def wecom_check(request: Request, app: Name) -> PlainTextResponse:
        """WeCom makes sure of us: what it sealed in `echostr` comes back opened."""
        return PlainTextResponse(door(f"wecom:{app}").greet(_delivery(request, b"")))

    async def received(request: Request, source: str) -> Became:
        asked = door(source)
        return await asked.receive(_delivery(request, await request.body()))

    def door(source: str) -> Door:
        # Which bots there are is nobody's business who cannot speak for one.
        if source not in doors:
            raise Unauthenticated("no proof that this comes from the provider")
        return doors[source]

    return router


def _delivery(request: Request, body: bytes) -> Delivery:
    return Delivery(
        headers=dict(request.headers),
        query=dict(request.query_params),
        body=body,
        json=request.scope.get(JSON),
    )
