"""Wire formats shared by the SDK API's routes: times, pages, and bodies whose fields are all accounted for."""

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema
from starlette.responses import Response

from clew.domain.thread import Json

logger = logging.getLogger(__name__)

TOTAL = "X-Pagination-Total"
NEXT = "X-Pagination-Next"

# As LangGraph Server writes it, with an offset: what ends in Z is not a time to every client.
Moment = Annotated[
    datetime,
    PlainSerializer(datetime.isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

# Fields without a meaning that were logged. A client sends the same ones with every request.
_LOGGED: set[tuple[str, str]] = set()
MOST_LOGGED = 100
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}", re.ASCII)


class RequestBody(BaseModel):
    """A body whose unknown fields are named in a warning: clients of newer servers send more."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_unknown(cls, data: Any) -> Any:
        if isinstance(data, dict):
            _name_unknown(cls, {name: value for name, value in data.items() if value is not None})
        return data


class Lenient(RequestBody):
    """A body in which null fields count as left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Each field that can be left out may be null."""
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema)
        fields = described["properties"]
        for name in fields.keys() - set(described.get("required", ())):
            fields[name] = _or_null(fields[name])
        return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = schema.get("anyOf", ())
    if {"type": "null"} in kinds or not schema.keys() - {"title", "default"}:
        return schema
    about = {name: value for name, value in schema.items() if name in ("title", "description", "default")}
    kind = {name: value for name, value in schema.items() if name not in about}
    return {**about, "anyOf": [*(kinds or [kind]), {"type": "null"}]}


def _name_unknown(body: type[BaseModel], given: Mapping[str, Any]) -> None:
    for name in given.keys() - body.model_fields.keys():
        # Only what looks like the name of a field: anything else may be private.
        if (body.__name__, name) in _LOGGED or len(_LOGGED) == MOST_LOGGED or not _NAME.fullmatch(str(name)):
            continue
        _LOGGED.add((body.__name__, name))
        logger.warning("the field %r of a request (%s) has no effect: unknown", name, body.__name__)


def without_effect(name: str, why: str) -> AfterValidator:
    """A field that changes nothing of the run itself. The log names it once."""

    def warn(value: Json) -> Json:
        if value and ("", name) not in _LOGGED:
            _LOGGED.add(("", name))
            logger.warning("the field %r of a request has no effect: %s", name, why)
        return value

    return AfterValidator(warn)


def tell_page(response: Response, *, offset: int, limit: int, total: int) -> None:
    """How many there are in all, and where the next page begins if there is one."""
    response.headers[TOTAL] = str(total)
    if offset + limit < total:
        response.headers[NEXT] = str(offset + limit)
