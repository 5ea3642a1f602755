"""OpenAPI description: every status a route can answer with, the error bodies of its API, and how to send a key."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import RouteContext
from pydantic import BaseModel
from starlette.routing import BaseRoute

from clew.api.access import RouteRule
from clew.api.errors import OURS, Internal, TooLarge, TooMany, TooSlow, Wording
from clew.api.routing import LazyRoute
from clew.domain.errors import ClewError, Forbidden, Invalid, Unauthenticated, Unavailable

_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]
_SCHEMAS = "#/components/schemas/"
# What any route may answer before or instead of its own code.
ANYWHERE: tuple[type[ClewError], ...] = (Invalid, TooSlow, TooLarge, TooMany, Internal, Unavailable)
BEHIND_A_KEY: tuple[type[ClewError], ...] = (Unauthenticated, Forbidden)


def errors(*refusals: type[ClewError], wording: Wording = OURS) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route in FastAPI's form; those that every route has are added for all."""
    # Not by their model: FastAPI would build a serializer for each of them, and most of a start is spent on that.
    return {wording.status_of(refusal): _response(refusal, wording) for refusal in refusals}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySchemes:
    """How a project's own authentication handler wants callers to authenticate, as `auth.openapi` says it."""

    schemes: Mapping[str, Any] = field(default_factory=dict)
    security: Sequence[Mapping[str, Any]] = ()
    paths: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]] = field(default_factory=dict)

    def of(self, path: str, method: str) -> list[Mapping[str, Any]]:
        return list(self.paths.get(path, {}).get(method.lower(), self.security))


def describe(
    app: FastAPI, rules: Collection[RouteRule], own: SecuritySchemes | None = None
) -> dict[str, Any]:
    """The whole description. FastAPI would list a 422 that Clew never sends."""
    routes = [_described(rule.context) for rule in rules]
    document = get_openapi(title="Clew", version=app.version, description=app.description, routes=routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for model in {rule.access.wording.model.__name__: rule.access.wording.model for rule in rules}.values():
        _add_schema(schemas, model)
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API key: clew keys create"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        **(own.schemes if own else {}),
    }
    for rule in rules:
        for method in rule.methods:
            operation = document["paths"].get(rule.path, {}).get(method.lower())
            if operation is not None:
                _complete(operation, rule)
                if own is not None and "security" in operation:
                    operation["security"] += own.of(rule.path, method)
    return document


def add_custom(document: dict[str, Any], custom: dict[str, Any], *, is_guarded: bool) -> None:
    """Add the description of a project's own app. A schema of the same name as another one of Clew's is renamed."""
    ours = document["components"]
    theirs = custom.get("components", {})
    schemas = theirs.get("schemas", {})
    renamed = {
        f"{_SCHEMAS}{name}": f"{_SCHEMAS}Custom{name}"
        for name in schemas
        if ours["schemas"].get(name, schemas[name]) != schemas[name]
    }
    for name, schema in schemas.items():
        shown = renamed.get(_SCHEMAS + name, _SCHEMAS + name).removeprefix(_SCHEMAS)
        ours["schemas"][shown] = _with_refs(schema, renamed)
    ours["securitySchemes"] = theirs.get("securitySchemes", {}) | ours["securitySchemes"]
    for path, operations in custom.get("paths", {}).items():
        shown = _with_refs(operations, renamed)
        for operation in shown.values():
            if is_guarded and isinstance(operation, dict):
                operation.setdefault("security", _SECURITY)
        document["paths"][path] = document["paths"].get(path, {}) | shown


def _with_refs(value: Any, renamed: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {
                name: renamed.get(inner, inner)
                if name == "$ref" and isinstance(inner, str)
                else _with_refs(inner, renamed)
                for name, inner in value.items()
            }
        case list():
            return [_with_refs(inner, renamed) for inner in value]
        case _:
            return value


def _described(context: RouteContext) -> BaseRoute | RouteContext:
    route = context.original_route
    return route.built if isinstance(route, LazyRoute) else context


def _add_schema(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    name = model.__name__
    schemas.setdefault(name, model.model_json_schema(ref_template="#/components/schemas/{model}"))
    schemas.update(schemas[name].pop("$defs", {}))


def _complete(operation: dict[str, Any], rule: RouteRule) -> None:
    responses = operation["responses"]
    wording = rule.access.wording
    if wording.model.__name__ not in str(responses.get("422")):
        responses.pop("422", None)
    refusals = ANYWHERE
    if rule.access.scope is not None:
        refusals += BEHIND_A_KEY
        operation["security"] = _SECURITY
        operation["x-scope"] = rule.access.scope
    for refusal in refusals:
        responses.setdefault(str(wording.status_of(refusal)), _response(refusal, wording))
    operation["responses"] = dict(sorted(responses.items()))


def _response(refusal: type[ClewError], wording: Wording) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{wording.model.__name__}"}
    return {"description": _sentence(refusal), "content": {"application/json": {"schema": schema}}}


def _sentence(refusal: type[ClewError]) -> str:
    return str(refusal.__doc__).partition("\n")[0]
