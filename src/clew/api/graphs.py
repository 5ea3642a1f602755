"""/api/graphs: the graphs a workflow can be started with."""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter

from clew.api.access import needs
from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.ports.graphs import Graphs


class GraphOut(WireModel):
    name: str
    is_default: bool
    """Whether a workflow has this graph when it names none."""
    fields: Sequence[str]
    """What a start needs beside a prompt."""


class GraphsOut(WireModel):
    graphs: list[GraphOut]


def graphs_router(graphs: Graphs, fields: Mapping[str, Sequence[str]], *, default: str) -> APIRouter:
    router = Router(prefix="/api/graphs", tags=["workflows"])

    @router.get("", dependencies=[needs("read")])
    async def list_graphs(caller: Caller) -> GraphsOut:  # noqa: ARG001 - every caller sees the same
        """The graphs that can run here, the default one first."""
        names = sorted(graphs.graphs, key=lambda name: (name != default, name))
        return GraphsOut(
            graphs=[
                GraphOut(name=name, is_default=name == default, fields=fields.get(name, ())) for name in names
            ]
        )

    return router
