"""Run input: what an AG-UI client sends, and what of it is new to a thread."""

from collections.abc import Collection
from dataclasses import dataclass, field

from ag_ui.core import RunAgentInput, ToolMessage
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import from_json

from clew.api.agui.messages import as_input, is_chat
from clew.api.agui.run_events import GIVEN
from clew.domain.errors import Invalid
from clew.domain.questions import is_yes_or_no
from clew.domain.thread import Json, SuspensionKind, Thread

LONGEST_ID = 256
PROPS = "forwardedProps"
# Under this name a node finds the client's `forwardedProps` among what is configurable.
FORWARDED = "forwarded_props"
# What a graph reads as the answer where the user gave none, as LangGraph's own adapter writes it.
CANCELLED = "__agui_cancelled__"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What the thread does not have yet. `values` are the input of its graph, with the client's tools."""

    values: dict[str, Json]
    has_messages: bool
    has_state: bool

    def __bool__(self) -> bool:
        return self.has_messages or self.has_state


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to what a thread asks. One that only says what a client's tools did decides nothing."""

    resume: Json
    is_result: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedProps:
    config: dict[str, Json] = field(default_factory=dict)
    resumes: bool = False
    resume: Json = None


def parsed(body: dict[str, Json]) -> RunAgentInput:
    """Raises RequestValidationError, Invalid."""
    try:
        # Null members count as left out, as in the protocol's older clients.
        given = RunAgentInput.model_validate({name: one for name, one in body.items() if one is not None})
    except ValidationError as exc:
        raise RequestValidationError(
            [{**error, "loc": ("body", *error["loc"])} for error in exc.errors(include_url=False)]
        ) from None
    for name, value in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not value.strip() or len(value) > LONGEST_ID or not value.isprintable():
            raise Invalid(f"expected 1 to {LONGEST_ID} printable characters", field=name)
    if given.state is not None and not isinstance(given.state, dict):
        raise Invalid("expected a JSON object: the state of a graph has names", field="state")
    return given


def forwarded(given: RunAgentInput) -> ForwardedProps:
    """What the client says to LangGraph beside the protocol; a node gets the whole. Raises Invalid."""
    props = given.forwarded_props
    if props is None or props == {}:
        return ForwardedProps()
    told: dict[str, Json] = props if isinstance(props, dict) else {}
    config = told.get("config") or {}
    if not isinstance(config, dict) or not isinstance(config.get("configurable") or {}, dict):
        raise Invalid("expected a JSON object, as LangGraph's config", field=f"{PROPS}.config")
    configurable = {FORWARDED: props, **(config.get("configurable") or {})}
    command = told.get("command") or {}
    if not isinstance(command, dict) or command.keys() - {"resume"}:
        raise Invalid("a command has a `resume` and nothing else here", field=f"{PROPS}.command")
    return ForwardedProps(
        config={**config, "configurable": configurable},
        resumes="resume" in command,
        resume=_json(command.get("resume")),
    )


def answer_of(given: RunAgentInput, props: ForwardedProps, thread: Thread | None) -> Answer | None:
    """The answer that a request gives to what the thread asks; None if it gives none."""
    if given.resume:
        pending = {} if thread is None else thread.pending
        resume: dict[str, Json] = {}
        for entry in given.resume:
            if entry.status == "resolved":
                resume[entry.interrupt_id] = entry.payload
            elif (asked := pending.get(entry.interrupt_id)) and is_yes_or_no(entry.interrupt_id, asked):
                resume[entry.interrupt_id] = {"approved": False}
            else:
                resume[entry.interrupt_id] = {CANCELLED: True, "interrupt_id": entry.interrupt_id}
        return Answer(resume)
    if props.resumes:
        return Answer(props.resume)
    results = {} if thread is None else _results(given, thread)
    return Answer(results, is_result=True) if results else None


def _results(given: RunAgentInput, thread: Thread) -> dict[str, Json]:
    """What the client's tools answered to calls that the thread waits for."""
    return {
        message.tool_call_id: message.content
        if isinstance(message.content, str)
        else [part.model_dump(mode="json", by_alias=True) for part in message.content]
        for message in given.messages
        if isinstance(message, ToolMessage)
        and message.tool_call_id in thread.pending
        and thread.pending[message.tool_call_id].kind is SuspensionKind.CLIENT_EXEC
    }


def news(given: RunAgentInput, values: Json, names: Collection[str] | None) -> News:
    """What is new to a thread with these values, by the names in the input of its graph. Raises Invalid."""
    known = {one.get("id") for one in values["messages"]} if is_chat(values) else set()
    calls = _answered(values)
    messages = [
        one
        for one in as_input(given.messages)
        if one["id"] not in known and one.get("tool_call_id") not in calls
    ]
    now = values if isinstance(values, dict) else {}
    # What is as it was is not sent: a reducer would add it a second time.
    state = {
        name: value
        for name, value in (given.state or {}).items()
        if name not in (*GIVEN, "messages")
        and (names is None or name in names)
        and (name not in now or now[name] != value)
    }
    tools = {name: one for name, one in _tools(given).items() if names is None or name in names}
    return News(
        values={**state, **tools, **({"messages": messages} if messages else {})},
        has_messages=bool(messages),
        has_state=bool(state),
    )


def _answered(values: Json) -> set[str]:
    """The calls of tools that have a result: clients know it by another id."""
    if not is_chat(values):
        return set()
    return {
        one["tool_call_id"] for one in values["messages"] if one["type"] == "tool" and one.get("tool_call_id")
    }


def _tools(given: RunAgentInput) -> dict[str, Json]:
    """The client's tools and context under the names that graphs for AG-UI and CopilotKit read."""
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in given.tools or ()
    ]
    context = [one.model_dump(include={"description", "value"}) for one in given.context or ()]
    return {
        "tools": tools,
        "ag-ui": {"tools": tools, "context": context},
        "copilotkit": {"actions": tools, "context": context},
    }


def _json(resume: Json) -> Json:
    """Older clients send an answer as JSON in a text."""
    if not isinstance(resume, str):
        return resume
    try:
        return from_json(resume)
    except ValueError:
        return resume
