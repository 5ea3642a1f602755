"""/info and /ok: the first requests of a LangGraph client."""

from collections.abc import Collection
from dataclasses import dataclass

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from clew.api.access import PUBLIC
from clew.api.routing import Router
from clew.api.sdk.errors import needs


class FlagsOut(BaseModel):
    assistants: bool = True
    crons: bool = True
    langsmith: bool = False


class HostOut(BaseModel):
    kind: str = "self-hosted"


class InfoOut(BaseModel):
    version: str
    langgraph_py_version: str
    flags: FlagsOut
    host: HostOut = HostOut()


class OkOut(BaseModel):
    ok: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoRoutes:
    version: str
    langgraph_version: str
    flags: FlagsOut

    def router(self) -> APIRouter:
        router = Router()
        router.head("/info", dependencies=[needs("read")], include_in_schema=False)(self.info_head)
        router.head("/ok", dependencies=[PUBLIC], include_in_schema=False)(self.ok_head)
        router.get("/info", dependencies=[needs("read")], tags=["langgraph"])(self.info)
        router.get("/ok", dependencies=[PUBLIC], tags=["health"])(self.ok)
        return router

    async def info_head(self) -> Response:
        return Response()

    async def ok_head(self) -> Response:
        """For health checks that poll every few seconds."""
        return Response()

    async def info(self) -> InfoOut:
        """Which server this is, and what it can do."""
        return InfoOut(version=self.version, langgraph_py_version=self.langgraph_version, flags=self.flags)

    async def ok(self) -> OkOut:
        """The process is alive; says nothing about the database."""
        return OkOut()


def info_router(*, version: str, langgraph_version: str, disabled: Collection[str] = ()) -> APIRouter:
    """`disabled`: what `http.disable_*` of langgraph.json switches off."""
    flags = FlagsOut(assistants="assistants" not in disabled, crons="runs" not in disabled)
    return InfoRoutes(version=version, langgraph_version=langgraph_version, flags=flags).router()
