"""Run context values, as LangGraph's server fills them: the given fields that the graph's schema has, and its defaults."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from clew.domain.events import RunSpec
from clew.graph.position import Graph

# Names a caller may not set in a context: LangGraph's own, and those of an authenticated user.
_RESERVED = ("clew_", "__", "langgraph_auth_")


def context_of(graph: Graph, spec: RunSpec | None) -> dict[str, Any] | None:
    """What the graph's context is made of. None for a round that no client gave one, where the schema needs one."""
    schema: Any = graph.context_schema
    if spec is None:
        return None if _needs_values(schema) else {}
    known = _names(schema)
    return {
        name: value
        for name, value in (spec.context or {}).items()
        if not name.startswith(_RESERVED) and (known is None or name in known)
    }


def _names(schema: Any) -> frozenset[str] | None:
    """What can be given; None if it can be anything."""
    if is_dataclass(schema):
        return frozenset(field.name for field in fields(schema) if field.init)
    if _is_model(schema):
        found = {
            name
            for key, field in schema.model_fields.items()
            for name in (key, field.alias, field.validation_alias)
            if isinstance(name, str)
        }
        return frozenset(found)
    known: Mapping[str, Any] = getattr(schema, "__annotations__", {})
    return frozenset(known) or None


def _needs_values(schema: Any) -> bool:
    if is_dataclass(schema):
        return any(
            field.init and field.default is MISSING and field.default_factory is MISSING
            for field in fields(schema)
        )
    return _is_model(schema) and any(field.is_required() for field in schema.model_fields.values())


def _is_model(schema: Any) -> bool:
    return isinstance(schema, type) and issubclass(schema, BaseModel)
