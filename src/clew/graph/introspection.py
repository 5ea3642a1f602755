"""Graph introspection: a graph's drawing, and the schemas of its input and output."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, TypeAlias

from langchain_core.runnables import RunnableConfig
from langchain_core.utils.pydantic import create_model_v2
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

from clew.domain.assistants import Assistant, Schemas
from clew.domain.errors import Invalid, NotFound
from clew.domain.thread import Json, Owner
from clew.graph.factories import GraphFactory
from clew.graph.position import Graph
from clew.graph.run_config import free_config
from clew.graph.stream import as_json
from clew.history.graph_store import GraphStore

logger = logging.getLogger(__name__)
AnyGraph: TypeAlias = Pregel[Any, Any, Any, Any]

# What LangGraph calls a graph without a name.
UNNAMED = "LangGraph"


class LangGraphIntrospection:
    """The GraphIntrospection port. Schemas of large states take a while, so they are made beside the event loop."""

    def __init__(self, graphs: Mapping[str, Graph | GraphFactory], store: GraphStore) -> None:
        self._graphs = graphs
        self._store = store

    def title(self, graph: str) -> str:
        found = self._graph(graph)
        return graph if isinstance(found, GraphFactory) or found.name == UNNAMED else found.name

    async def drawing(self, assistant: Assistant, owner: Owner, *, xray: bool | int = False) -> Json:
        async with self._opened(assistant, owner) as graph:
            return await asyncio.to_thread(_drawing, graph, xray)

    async def schemas(self, assistant: Assistant, owner: Owner) -> Schemas:
        async with self._opened(assistant, owner) as graph:
            return await asyncio.to_thread(_schemas, graph)

    async def subgraphs(
        self, assistant: Assistant, owner: Owner, *, namespace: str | None = None, recurse: bool = False
    ) -> Mapping[str, Schemas]:
        async with self._opened(assistant, owner) as graph:
            return await asyncio.to_thread(_subgraphs, graph, namespace, recurse)

    def _opened(self, assistant: Assistant, owner: Owner) -> AbstractAsyncContextManager[Graph]:
        found = self._graph(assistant.graph)
        if not isinstance(found, GraphFactory):
            return nullcontext(found)
        names = {"assistant_id": assistant.id, "graph_id": assistant.graph}
        config: RunnableConfig = {"configurable": names, "metadata": dict(names)}
        return found.opened(
            "assistants.read",
            free_config(config, assistant.config, assistant.context),
            store=self._store.for_owner(owner),
        )

    def _graph(self, graph: str) -> Graph | GraphFactory:
        try:
            return self._graphs[graph]
        except KeyError:
            raise NotFound(f"no graph {graph!r} is registered here") from None


def _drawing(graph: Graph, xray: bool | int) -> Json:
    try:
        drawing = graph.get_graph(xray=xray).to_json()
    except NotImplementedError:
        raise Invalid("this graph cannot be drawn") from None
    for node in drawing["nodes"]:
        if isinstance(node.get("data"), dict):
            node["data"].pop("id", None)  # where in our process its code is
    return as_json(drawing)


def _subgraphs(graph: Graph, namespace: str | None, recurse: bool) -> dict[str, Schemas]:
    return {
        name: _schemas(inner) for name, inner in graph.get_subgraphs(namespace=namespace, recurse=recurse)
    }


def _schemas(graph: object) -> Schemas:
    if not isinstance(graph, Pregel):
        return Schemas()  # it runs elsewhere
    context = _said(graph.get_context_jsonschema)
    return Schemas(
        input=_said(graph.get_input_jsonschema) or _said(lambda: _fields_of(graph, "Input")),
        output=_said(graph.get_output_jsonschema) or _said(lambda: _fields_of(graph, "Output")),
        state=_said(lambda: _model(graph, "State", graph.stream_channels_list)),
        config=context or {},
        context=context,
    )


def _said(schema: Callable[[], Json]) -> Json:
    try:
        return schema()
    except Exception as exc:  # noqa: BLE001 - user types that no schema can be made of raise anything
        logger.debug("a part of a graph has no JSON schema: %s", type(exc).__name__)
        return None


def _fields_of(graph: AnyGraph, which: Literal["Input", "Output"]) -> Json:
    """Field by field, for a type that cannot be said as a whole: `typing.TypedDict` is one up to Python 3.11."""
    if not isinstance(graph, CompiledStateGraph):
        return None
    builder = graph.builder
    fields = builder.schemas[builder.input_schema if which == "Input" else builder.output_schema]
    return _model(graph, which, [name for name in fields if name in builder.channels])


def _model(graph: AnyGraph, what: str, names: Iterable[str]) -> Json:
    channels: Mapping[str, Any] = graph.channels
    fields = {name: (_kind(name, channels[name].UpdateType), None) for name in names}
    return create_model_v2(graph.get_name(what), field_definitions=fields).model_json_schema()


def _kind(name: str, kind: Any) -> Any:
    """The type of a channel; Any where no schema can be made of it, so that the other channels have theirs."""
    try:
        create_model_v2(name, field_definitions={name: (kind, None)}).model_json_schema()
    except Exception:  # noqa: BLE001 - the same
        return Any
    return kind
