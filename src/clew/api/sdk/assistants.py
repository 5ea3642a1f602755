"""/assistants: graphs with a configuration, as LangGraph's clients know them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.wire import Moment, RequestBody, tell_page
from clew.domain.assistants import Assistant, AssistantPatch, Schemas, Search, SortKey
from clew.domain.errors import Conflict, Contradictory, Invalid, InvalidState, NotFound
from clew.engine.assistants import AssistantCatalog
from clew.ports.graphs import GraphIntrospection

MAX_OFFSET = 2**31 - 1

AssistantId = Annotated[str, Path(max_length=256)]
Object = dict[str, Any]
Limit = Annotated[int, Field(ge=1, le=1000, strict=True)]
Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET, strict=True)]
Column = Literal[
    "assistant_id",
    "graph_id",
    "name",
    "description",
    "config",
    "context",
    "metadata",
    "version",
    "created_at",
    "updated_at",
]


class ConfigIn(BaseModel):
    model_config = ConfigDict(extra="allow")

    tags: list[str] | None = None
    recursion_limit: int | None = None
    configurable: Object | None = None


class AssistantChangeIn(RequestBody):
    graph_id: str | None = None
    config: ConfigIn | None = None
    context: Object | None = None
    metadata: Object | None = None
    name: str | None = None
    description: str | None = None

    def wish(self) -> AssistantPatch:
        """Raises Invalid."""
        return AssistantPatch(
            graph=self.graph_id,
            name=self.name,
            description=self.description,
            config=None if self.config is None else self.config.model_dump(exclude_unset=True),
            context=self.context,
            metadata=self.metadata,
        )


class AssistantIn(AssistantChangeIn):
    graph_id: str
    assistant_id: UUID | None = None
    if_exists: Literal["raise", "do_nothing"] = "raise"


class AssistantCountIn(RequestBody):
    metadata: Object | None = None
    graph_id: str | None = None
    name: str | None = None


class AssistantSearchIn(AssistantCountIn):
    limit: Limit = 10
    offset: Offset = 0
    sort_by: SortKey | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[Column] | None = None

    def search(self) -> Search:
        return Search(
            graph=self.graph_id,
            name=self.name,
            metadata=self.metadata,
            sort_by=self.sort_by or "created_at",
            descending=self.sort_order != "asc",
            limit=self.limit,
            offset=self.offset,
        )


class AssistantVersionsIn(RequestBody):
    metadata: Object | None = None
    limit: Limit = 10
    offset: Offset = 0


class AssistantLatestIn(RequestBody):
    version: Annotated[int, Field(ge=1, le=MAX_OFFSET, strict=True)]


class AssistantVersionOut(BaseModel):
    assistant_id: str
    graph_id: str
    name: str
    description: str | None
    config: Object
    context: Object
    metadata: Object
    version: int
    created_at: Moment

    @classmethod
    def of(cls, assistant: Assistant) -> Self:
        return cls(**_fields(assistant))


class AssistantOut(AssistantVersionOut):
    updated_at: Moment


class AssistantPartOut(BaseModel):
    """An assistant, or the fields of it that were asked for."""

    assistant_id: str = ""
    graph_id: str = ""
    name: str = ""
    description: str | None = None
    config: Object = {}
    context: Object = {}
    metadata: Object = {}
    version: int = 1
    created_at: Moment | None = None
    updated_at: Moment | None = None

    @classmethod
    def of(cls, assistant: Assistant, select: list[Column] | None) -> Self:
        return cls(
            **{name: value for name, value in _fields(assistant).items() if not select or name in select}
        )


class SchemasOut(BaseModel):
    input_schema: Object | None
    output_schema: Object | None
    state_schema: Object | None
    config_schema: Object | None
    context_schema: Object | None

    @classmethod
    def of(cls, schemas: Schemas, **more: str) -> Self:
        return cls(
            input_schema=schemas.input,
            output_schema=schemas.output,
            state_schema=schemas.state,
            config_schema=schemas.config,
            context_schema=schemas.context,
            **more,
        )


class GraphSchemasOut(SchemasOut):
    graph_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantsRoutes:
    roster: AssistantCatalog
    introspection: GraphIntrospection

    def router(self) -> APIRouter:
        router = Router(prefix="/assistants", tags=["langgraph"])
        router.post(
            "", dependencies=[needs("write")], responses=errors(Contradictory, Invalid, NotFound, Conflict)
        )(self.create_assistant)
        router.post(
            "/search",
            dependencies=[needs("read")],
            responses=errors(Invalid, NotFound),
            response_model_exclude_unset=True,
        )(self.search_assistants)
        router.post("/count", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.count_assistants
        )
        router.get("/{assistant_id}", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.get_assistant
        )
        router.patch(
            "/{assistant_id}",
            dependencies=[needs("write")],
            responses=errors(Contradictory, Invalid, NotFound, InvalidState),
        )(self.update_assistant)
        router.delete(
            "/{assistant_id}",
            dependencies=[needs("write")],
            status_code=204,
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.delete_assistant)
        router.post(
            "/{assistant_id}/versions", dependencies=[needs("read")], responses=errors(Invalid, NotFound)
        )(self.list_versions)
        router.post(
            "/{assistant_id}/latest",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.set_latest)
        router.get(
            "/{assistant_id}/graph", dependencies=[needs("read")], responses=errors(Invalid, NotFound)
        )(self.draw_graph)
        router.get(
            "/{assistant_id}/schemas", dependencies=[needs("read")], responses=errors(Invalid, NotFound)
        )(self.get_schemas)
        router.get(
            "/{assistant_id}/subgraphs", dependencies=[needs("read")], responses=errors(Invalid, NotFound)
        )(self.get_subgraphs)
        router.get(
            "/{assistant_id}/subgraphs/{namespace}",
            dependencies=[needs("read")],
            responses=errors(Invalid, NotFound),
        )(self.get_subgraph)
        return router

    async def create_assistant(self, caller: Caller, body: AssistantIn) -> AssistantOut:
        """Create an assistant of a graph."""
        made = await self.roster.create(
            caller.owner,
            body.graph_id,
            body.wish(),
            assistant_id=None if body.assistant_id is None else str(body.assistant_id),
            keeps=body.if_exists == "do_nothing",
        )
        return AssistantOut.of(made)

    async def search_assistants(
        self, caller: Caller, body: AssistantSearchIn, response: Response
    ) -> list[AssistantPartOut]:
        """The caller's assistants and those of the system, by default the newest first."""
        found, total = await self.roster.find(caller.owner, body.search())
        tell_page(response, offset=body.offset, limit=body.limit, total=total)
        return [AssistantPartOut.of(assistant, body.select) for assistant in found]

    async def count_assistants(self, caller: Caller, body: AssistantCountIn) -> int:
        """How many a search would find."""
        wanted = Search(graph=body.graph_id, name=body.name, metadata=body.metadata)
        _, total = await self.roster.find(caller.owner, wanted)
        return total

    async def get_assistant(self, caller: Caller, assistant_id: AssistantId) -> AssistantOut:
        """One assistant, by its id or by its graph's name. Another owner's is not found."""
        return AssistantOut.of(await self.roster.get(assistant_id, caller.owner))

    async def update_assistant(
        self, caller: Caller, assistant_id: AssistantId, body: AssistantChangeIn
    ) -> AssistantOut:
        """Create a new version of it. Metadata is merged; other fields are replaced."""
        return AssistantOut.of(await self.roster.revise(assistant_id, caller.owner, body.wish()))

    async def delete_assistant(
        self, caller: Caller, assistant_id: AssistantId, delete_threads: bool = False
    ) -> None:
        """Delete it with all its versions; with `delete_threads`, also the caller's threads that it ran last."""
        await self.roster.delete(assistant_id, caller.owner, with_threads=delete_threads)

    async def list_versions(
        self, caller: Caller, assistant_id: AssistantId, body: AssistantVersionsIn
    ) -> list[AssistantVersionOut]:
        """Its versions, the newest first."""
        found = await self.roster.versions(
            assistant_id, caller.owner, metadata=body.metadata or {}, limit=body.limit, offset=body.offset
        )
        return [AssistantVersionOut.of(version) for version in found]

    async def set_latest(
        self, caller: Caller, assistant_id: AssistantId, body: AssistantLatestIn
    ) -> AssistantOut:
        """Set the version that runs use from now on."""
        return AssistantOut.of(await self.roster.set_latest(assistant_id, caller.owner, body.version))

    async def draw_graph(
        self,
        caller: Caller,
        assistant_id: AssistantId,
        xray: Annotated[Annotated[int, Field(ge=1, le=100)] | bool, Query()] = False,
    ) -> Object:
        """The nodes and edges of its graph; with `xray` those of subgraphs too, so many levels deep."""
        assistant = await self.roster.get(assistant_id, caller.owner)
        drawing: Object = await self.introspection.drawing(assistant, caller.owner, xray=xray)
        return drawing

    async def get_schemas(self, caller: Caller, assistant_id: AssistantId) -> GraphSchemasOut:
        """The input, output, state and config schemas of its graph, as JSON Schema."""
        assistant = await self.roster.get(assistant_id, caller.owner)
        schemas = await self.introspection.schemas(assistant, caller.owner)
        return GraphSchemasOut.of(schemas, graph_id=assistant.graph)

    async def _subgraphs(
        self, caller: Caller, assistant_id: str, namespace: str | None, recurse: bool
    ) -> dict[str, SchemasOut]:
        assistant = await self.roster.get(assistant_id, caller.owner)
        found = await self.introspection.subgraphs(
            assistant, caller.owner, namespace=namespace, recurse=recurse
        )
        return {name: SchemasOut.of(schemas) for name, schemas in found.items()}

    async def get_subgraphs(
        self, caller: Caller, assistant_id: AssistantId, recurse: bool = False
    ) -> dict[str, SchemasOut]:
        """The schemas of its graph's subgraphs by namespace; with `recurse`, also of those inside of them."""
        return await self._subgraphs(caller, assistant_id, None, recurse)

    async def get_subgraph(
        self,
        caller: Caller,
        assistant_id: AssistantId,
        namespace: Annotated[str, Path(max_length=1024)],
        recurse: bool = False,
    ) -> dict[str, SchemasOut]:
        """The same for one namespace."""
        return await self._subgraphs(caller, assistant_id, namespace, recurse)


def assistants_router(roster: AssistantCatalog, introspection: GraphIntrospection) -> APIRouter:
    return AssistantsRoutes(roster=roster, introspection=introspection).router()


def _fields(assistant: Assistant) -> dict[str, Any]:
    return {
        "assistant_id": assistant.id,
        "graph_id": assistant.graph,
        "name": assistant.name,
        "description": assistant.description,
        "config": assistant.config,
        "context": assistant.context,
        "metadata": assistant.metadata,
        "version": assistant.version,
        "created_at": assistant.created_at,
        "updated_at": assistant.updated_at,
    }
