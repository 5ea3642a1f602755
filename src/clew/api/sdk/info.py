"""/info and /ok: what a client of LangGraph's asks first."""

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from clew.api.access import public
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
    flags: FlagsOut = FlagsOut()
    host: HostOut = HostOut()


class OkOut(BaseModel):
    ok: bool = True


def info_router(*, version: str, langgraph_version: str) -> APIRouter:
    router = Router()

    @router.head("/info", include_in_schema=False)
    @needs("read")
    async def info_head() -> Response:
        return Response()

    @router.head("/ok", include_in_schema=False)
    @public
    async def ok_head() -> Response:
        """For what looks every few seconds whether a server is there."""
        return Response()

    @router.get("/info", tags=["langgraph"])
    @needs("read")
    async def info() -> InfoOut:
        """Which server this is, and what it can do."""
        return InfoOut(version=version, langgraph_py_version=langgraph_version)

    @router.get("/ok", tags=["health"])
    @public
    async def ok() -> OkOut:
        """The process is alive; says nothing about the database."""
        return OkOut()

    return router
