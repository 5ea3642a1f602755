"""/agui/{assistant}: the AG-UI protocol over HTTP. A request is a run, or the state of a thread that it names."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from starlette.responses import Response, StreamingResponse

from clew.api.access import needs
from clew.api.followed_runs import FollowedRuns
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.domain.errors import Forbidden, Invalid, InvalidState, NotFound
from clew.domain.thread import Json
from clew.ports.graphs import GraphIntrospection

_EVENTS: Mapping[int | str, dict[str, Any]] = {
    200: {"description": "The events of the run.", "content": {"text/event-stream": {"schema": {}}}}
}


class AguiRoutes:
    def __init__(self, runs: FollowedRuns, introspection: GraphIntrospection) -> None:
        self._runs = runs
        self._introspection = introspection

    def router(self) -> APIRouter:
        router = Router(prefix="/agui", tags=["agui"])
        router.post(
            "/{assistant}",
            dependencies=[needs("write")],
            response_class=StreamingResponse,  # for the description: it lets errors be JSON
            responses={**_EVENTS, **errors(Invalid, Forbidden, NotFound, InvalidState)},
        )(self.run_agent)
        return router

    async def run_agent(
        self,
        caller: Caller,
        assistant: Annotated[str, Path(max_length=256)],
        body: dict[str, Json],
        on_disconnect: Literal["cancel", "continue"] = "continue",
    ) -> Response:
        """Run the graph with an AG-UI RunAgentInput. Without anything new, send where its thread is."""
        from clew.api.agui.agent import AguiAgent  # noqa: PLC0415 - the protocol's types take 0.3 s to import

        try:
            found = await self._runs.assistants.resolve(assistant, caller.owner)
        except Invalid:
            raise NotFound(f"no assistant {assistant!r}") from None
        schemas = await self._introspection.schemas(found, caller.owner)
        agent = AguiAgent(
            runs=self._runs,
            caller=caller,
            assistant=found,
            schemas=schemas,
            cancels=on_disconnect == "cancel",
        )
        return await agent.answer(body)
