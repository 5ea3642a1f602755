"""Assistants: a graph with a configuration, under a name. Every change is a version, and one of them counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from clew.domain.errors import Contradictory
from clew.domain.events import RunSpec
from clew.domain.items import contains
from clew.domain.runs import without_auth
from clew.domain.thread import Json

Object: TypeAlias = Mapping[str, Json]
SortKey: TypeAlias = Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"]

UNTITLED = "Untitled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    id: str
    graph: str
    name: str
    created_at: datetime
    updated_at: datetime
    description: str | None = None
    version: int = 1
    config: Object = field(default_factory=dict)
    context: Object = field(default_factory=dict)
    metadata: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantPatch:
    """A client's change to an assistant. Fields that are None stay as they are."""

    graph: str | None = None
    name: str | None = None
    description: str | None = None
    config: Object | None = None
    context: Object | None = None
    metadata: Object | None = None

    def __post_init__(self) -> None:
        require_one_context(self.config or {}, self.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search for assistants: filters, sort order and page."""

    graph: str | None = None
    name: str | None = None
    metadata: Object | None = None
    sort_by: SortKey = "created_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0

    def wants(self, assistant: Assistant) -> bool:
        return (
            (self.graph is None or assistant.graph == self.graph)
            and (self.name is None or self.name.lower() in assistant.name.lower())
            and contains(assistant.metadata, self.metadata or {})
        )

    def page(self, assistants: Iterable[Assistant]) -> list[Assistant]:
        """What is equal in the order stays in the order it is given in."""
        ordered = sorted(assistants, key=lambda one: _sort_key(one, self.sort_by), reverse=self.descending)
        return ordered[self.offset : self.offset + self.limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemas:
    """What goes into a graph and comes out of it, as JSON Schema. None is what cannot be said that way."""

    input: Json = None
    output: Json = None
    state: Json = None
    config: Json = None
    context: Json = None


def new_assistant(assistant_id: str, graph: str, wish: AssistantPatch, *, now: datetime) -> Assistant:
    blank = Assistant(id=assistant_id, graph=graph, name=UNTITLED, created_at=now, updated_at=now)
    return revised(blank, wish, now=now)


def revised(assistant: Assistant, wish: AssistantPatch, *, now: datetime) -> Assistant:
    """The assistant as it is wished for. Which version that makes is for the store to say."""
    config, context = _in_step(assistant, wish)
    return replace(
        assistant,
        graph=assistant.graph if wish.graph is None else wish.graph,
        name=wish.name or assistant.name,
        description=assistant.description if wish.description is None else wish.description,
        config=config,
        context=context,
        metadata={**assistant.metadata, **(wish.metadata or {})},
        updated_at=now,
    )


def require_one_context(config: Object, context: Object | None) -> None:
    """Raises Contradictory. LangGraph has two names for the same thing, and keeps them alike."""
    if context and config.get("configurable"):
        raise Contradictory("config.configurable and context are the same thing: give one of them")


def furnished(spec: RunSpec, assistant: Assistant) -> RunSpec:
    """With what the assistant brings along; what the spec says counts more. Neither says who is calling.

    What is configurable is the context too. The other way round a run's graph decides: it knows what it takes.
    """
    context = without_auth({**assistant.context, **_configurable(spec.config), **(spec.context or {})})
    configurable = without_auth({**_configurable(assistant.config), **_configurable(spec.config)})
    config = {**assistant.config, **spec.config, "configurable": configurable}
    return described(replace(spec, config=config, context=context or None), assistant.metadata)


def described(spec: RunSpec, metadata: Object) -> RunSpec:
    """With this metadata of what it runs in, for its checkpoints; what the spec says counts more."""
    said = spec.config.get("metadata")
    merged = without_auth({**metadata, **(said if isinstance(said, Mapping) else {})})
    return replace(spec, config={**spec.config, "metadata": merged}) if merged else spec


def _configurable(config: Object) -> Object:
    value = config.get("configurable")
    return value if isinstance(value, Mapping) else {}


def _in_step(assistant: Assistant, wish: AssistantPatch) -> tuple[Object, Object]:
    """A new `configurable` is the new context too, and the other way round."""
    config = wish.config or assistant.config
    if wish.config and wish.config.get("configurable"):
        return config, wish.config["configurable"]
    if wish.context:
        return {**config, "configurable": wish.context}, wish.context
    return config, assistant.context if wish.context is None else wish.context


def _sort_key(assistant: Assistant, by: SortKey) -> Any:
    match by:
        case "assistant_id":
            return assistant.id
        case "graph_id":
            return assistant.graph.lower()
        case "name":
            return assistant.name.lower()
        case "created_at":
            return assistant.created_at
        case "updated_at":
            return assistant.updated_at


def schema_fields(schema: Json) -> frozenset[str] | None:
    """The names in a JSON schema of an object; None where it does not say them."""
    if not isinstance(schema, dict):
        return None
    if isinstance(ref := schema.get("$ref"), str):
        schema = schema.get("$defs", {}).get(ref.rpartition("/")[2], {})
    properties = schema.get("properties")
    return frozenset(properties) if isinstance(properties, dict) else None
