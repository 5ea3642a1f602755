"""/api/graphs: the graphs a workflow can be started with."""

from collections.abc import Callable, Mapping, Sequence

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
    is_own: bool
    """Whether it is the project's, and not one that comes with an app."""
    fields: Sequence[str]
    """What a start needs beside a prompt."""
    uses_profiles: bool
    """Whether a start may name a profile."""


class BrokenGraphOut(WireModel):
    name: str
    reason: str


class GraphsOut(WireModel):
    graphs: list[GraphOut]
    profiles: list[str]
    broken: list[BrokenGraphOut]
    """Graphs that cannot run here; only for callers with the scope `operator`."""


def graphs_router(
    graphs: Graphs,
    fields: Mapping[str, Sequence[str]],
    *,
    default: str,
    profiles: Sequence[str],
    uses_profiles: Callable[[str], bool],
) -> APIRouter:
    """`fields` has the graphs of apps."""
    router = Router(prefix="/api/graphs", tags=["workflows"])

    @router.get("", dependencies=[needs("read")])
    async def list_graphs(caller: Caller) -> GraphsOut:
        """The graphs that can run here: the default one first, then the project's own."""
        names = sorted(graphs.graphs, key=lambda name: (name != default, name in fields, name))
        return GraphsOut(
            graphs=[
                GraphOut(
                    name=name,
                    is_default=name == default,
                    is_own=name not in fields,
                    fields=fields.get(name, ()),
                    uses_profiles=uses_profiles(name),
                )
                for name in names
            ],
            profiles=list(profiles),
            broken=[
                BrokenGraphOut(name=name, reason=reason)
                for name, reason in sorted(graphs.broken.items())
                if "operator" in caller.scopes
            ],
        )

    return router
