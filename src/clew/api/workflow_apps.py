"""Workflow apps: what an app adds to starting and showing a workflow, as the HTTP API sees it."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, TypeVar, Union

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError, WithJsonSchema, create_model

from clew.api.schemas import field_names
from clew.api.workflow_schemas import StartIn
from clew.domain.errors import Invalid
from clew.domain.thread import Json, Owner, Status, Thread

_WORD = re.compile(r"[A-Za-z0-9]+")


class NoFields(BaseModel):
    """The start fields of an app that has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCall:
    """A start or a next round as an app sees it: its own fields validated, the rest as the request has it."""

    fields: Any
    """An instance of the app's start model; None in a next round, which takes no such fields."""
    prompt: str | None
    input: Json
    documents: tuple[str, ...]
    """Ids of the caller's files."""
    profile: str
    owner: Owner
    is_local: bool
    """Whether the caller needed no API key, and so is on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a round begins with."""

    graph_input: Json = None
    """The input of the graph; None gives it the prompt as a message."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """Kept with the thread and never changed. No other input writes there."""
    reservations: Mapping[str, str] = field(default_factory=dict)
    """Keys by kind that no other active thread may hold."""
    name: str | None = None
    """The name of the thread, unless the request has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An app's own fields of the workflow object.

    `fields` gets the thread, the values of its graph's state without redacted texts, and when its last round ended.
    None shows the workflow without them.
    """

    model: type[BaseModel]
    fields: Callable[[Thread, Json, datetime | None], Mapping[str, Any] | None]


@dataclass(frozen=True, kw_only=True)
class WorkflowApp:
    """One app. Without `prepare` its start fields are the input of its graph."""

    name: str
    start: type[BaseModel] = NoFields
    prepare: Callable[[StartCall], Awaitable[Prepared]] | None = None
    next_round: Callable[[StartCall, Thread], Awaitable[Prepared | None]] | None = None
    """None, or a function that returns None, gives the graph the prompt or the input as it is."""
    show: View | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it starts as any graph does."""
        return self.prepare is None and not self.start.model_fields

    @property
    def required(self) -> tuple[str, ...]:
        """The wire names of what a start needs beside a prompt."""
        fields = self.start.model_fields.items()
        return tuple(field_names(name, info)[0] for name, info in fields if info.is_required())

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """Wire names by the names in the model."""
        return {name: field_names(name, info)[0] for name, info in self.start.model_fields.items()}

    def read(self, given: Mapping[str, Json]) -> BaseModel:
        """The start fields, validated. Raises RequestValidationError, and Invalid for one that is missing."""
        try:
            return self.start.model_validate(dict(given))
        except ValidationError as exc:
            errors = exc.errors(include_url=False)
            first = errors[0]
            if first["type"] == "missing":
                raise self._needs(str(first["loc"][0])) from None
            raise RequestValidationError(
                [{**error, "loc": ("body", *error["loc"])} for error in errors]
            ) from None

    def _needs(self, wire_name: str) -> Invalid:
        names = {wire: name for name, wire in self.fields.items()}
        info = self.start.model_fields.get(names.get(wire_name, wire_name))
        what = info.description if info is not None and info.description else "this"
        return Invalid(f"a {self.name} workflow needs {what}", field=wire_name)


@dataclass(frozen=True, kw_only=True)
class WorkflowApps:
    """The apps that run here by their graph, and the graph of a workflow that names none."""

    default: str
    apps: Mapping[str, WorkflowApp] = field(default_factory=dict)
    statuses: Mapping[str, Callable[[Status], str]] = field(default_factory=dict)
    """How the clients of a graph know a status; others know it as it is."""
    closed: Collection[str] = ()
    """Graphs that say themselves that a round was stopped."""

    def status(self, thread: Thread, at: Status | None = None) -> str:
        worded = self.statuses.get(thread.graph, str)
        return worded(thread.status if at is None else at)

    def meant_by(self, given: Collection[str]) -> str:
        """The graph of a start that names none: that of the one app these fields belong to, else the default one."""
        owners = [app.name for app in self.apps.values() if any(name in app.fields for name in given)]
        return owners[0] if len(owners) == 1 else self.default

    def having(self, name: str) -> str:
        """The apps whose start has this field, in words."""
        return " or ".join(app.name for app in self.apps.values() if name in app.fields)

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """All start fields of apps: wire names by names in the model."""
        return {name: wire for app in self.apps.values() for name, wire in app.fields.items()}

    def start_model(self) -> type[StartIn]:
        """The body of a start. It knows the fields of all apps by name; each app validates its own."""
        fields: dict[str, Any] = {}
        for app in self.apps.values():
            properties = app.start.model_json_schema().get("properties", {}) if app.start.model_fields else {}
            for name, info in app.start.model_fields.items():
                schema = _flat(properties.get(field_names(name, info)[0], {}))
                alias = info.validation_alias
                fields[name] = (
                    Annotated[Any, WithJsonSchema(schema)],
                    Field(default=None, alias=name)
                    if alias is None
                    else Field(default=None, validation_alias=alias),
                )
        return create_model("StartIn", __base__=StartIn, **fields) if fields else StartIn


Shown = TypeVar("Shown", bound=BaseModel)


def out_models(apps: WorkflowApps, base: type[Shown], name: str) -> Mapping[str, type[Shown]]:
    """The model of an answer by graph: the base, with the fields that the graph's app shows. `name` has a {}."""
    return {
        app.name: create_model(name.format(_title(app.name)), __base__=_bases(base, app.show))
        for app in apps.apps.values()
        if app.show is not None
    }


def any_of(base: type[BaseModel], models: Mapping[str, type[BaseModel]]) -> Any:
    """A type for the description: the base, or one of the apps' models."""
    return Union[base, *models.values()]


def _bases(base: type[Shown], view: View) -> Any:
    return (base, view.model)


def _title(name: str) -> str:
    return "".join(word.capitalize() for word in _WORD.findall(name))


def _flat(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without references: those lead to definitions that stay behind with the app's own model."""
    return {} if "$ref" in str(schema) else dict(schema)
