"""Stream parts of LangGraph as events of our log. Pure: one part in, its event bodies out."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages
from langgraph.graph.message import add_messages
from langgraph.types import Overwrite
from pydantic import BaseModel
from pydantic_core import from_json, to_json

from clew.domain.events import (
    AssistantMessage,
    Body,
    Content,
    DocumentAdded,
    Event,
    Marker,
    StageCompleted,
    ToolCall,
    ToolResult,
)

CLEW = "clew"

# A larger output of a node is named in the log, not kept there: it is in the checkpoint.
MAX_OUTPUT = 16_384
MODEL_LENGTH = 200
# Deeper than a reader needs, and well within what can be parsed again.
MAX_DEPTH = 50


def completed(stage: str, result: Any, given: Any = None, channels: Collection[str] = ()) -> Iterator[Body]:
    """What a node's return means: the messages it did not have before, its tool calls, and that it is done."""
    messages = messages_in(result, channels)
    if len(messages) > 1:
        # Some nodes return the whole conversation and what they add to it.
        old = {message.id for message in messages_in(given) if message.id}
        messages = [message for message in messages if message.id not in old]
    yield from said(stage, messages)
    yield StageCompleted(stage=stage, output=outline(result))


def said(agent: str, messages: Iterable[BaseMessage]) -> Iterator[Body]:
    for message in messages:
        match message:
            case AIMessage():
                yield from _assistant(agent, message)
            case ToolMessage(tool_call_id=call_id):
                ok = message.status != "error"
                content = storable(message.content)
                yield ToolResult(
                    call_id=call_id, ok=ok, result=content if ok else None, error="" if ok else str(content)
                )
            case _:
                pass


def message_channels(channels: Mapping[str, Any]) -> frozenset[str]:
    """Those with LangGraph's reducer of messages, which makes them of texts, pairs and dicts."""
    reducers = {name: getattr(channel, "operator", None) for name, channel in channels.items()}
    return frozenset(
        name
        for name, reducer in reducers.items()
        # `add_messages`, or a partial of it.
        if getattr(getattr(reducer, "func", reducer), "__module__", "") == add_messages.__module__
    )


def messages_in(result: Any, channels: Collection[str] = ()) -> list[BaseMessage]:
    """The messages in a state or in what a node returned, each once, whatever it calls them.

    `channels` are those in which a node may write a message in any form that `add_messages` takes.
    """
    found: dict[int | str, BaseMessage] = {}
    for name, value in result.items() if isinstance(result, Mapping) else [("", result)]:
        for message in _converted(value) if name in channels else _messages(value):
            found.setdefault(message.id or id(message), message)
    return list(found.values())


def with_others(messages: Sequence[BaseMessage], others: Iterable[BaseMessage]) -> list[BaseMessage]:
    """And those of the others that are not among them: by id, or if they have none yet by what they say."""
    ids = {message.id for message in messages}
    contents = [message.content for message in messages]
    return [*messages, *(m for m in others if (m.id not in ids if m.id else m.content not in contents))]


def _messages(value: Any) -> Iterator[BaseMessage]:
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, BaseMessage))
    elif isinstance(value, Overwrite):
        yield from _messages(value.value)
    elif isinstance(value, Mapping):
        # More than one write to the same channel, as LangGraph shows them.
        for written in value.get("$writes", ()):
            yield from _messages(written)


def _converted(value: Any) -> list[BaseMessage]:
    if isinstance(value, Overwrite):
        return _converted(value.value)
    if isinstance(value, Mapping) and "$writes" in value:
        return [message for written in value["$writes"] for message in _converted(written)]
    try:
        return convert_to_messages(value if isinstance(value, list) else [value])
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError):
        # The reducer says what is wrong with it. A tuple of messages is no pair.
        return [*_messages(value)]


def outline(result: Any) -> Any:
    """A node's return as JSON. Messages are in the log already, so only their ids are kept here."""
    if isinstance(result, Mapping):
        return {str(key): outline(value) for key, value in result.items()}
    if isinstance(result, BaseMessage):
        return {"message": result.id or ""}
    if isinstance(result, list | tuple):
        return [outline(item) for item in result]
    value = storable(result)
    return value if len(str(value)) <= MAX_OUTPUT else {"truncated": True, "type": type(result).__name__}


def named(odd: Any) -> str:
    return f"<{type(odd).__name__}>"


def as_json(values: Any, odd: Callable[[Any], str] = named) -> Any:
    """Any state as JSON: bytes as base64, and what JSON cannot encode as `odd` returns it. Raises ValueError."""
    try:
        return from_json(to_json(values, bytes_mode="base64", inf_nan_mode="null", fallback=odd))
    except ValueError:
        whole = _without_halves(values, MAX_DEPTH)
        return from_json(to_json(whole, bytes_mode="base64", inf_nan_mode="null", fallback=odd))


def _without_halves(value: Any, depth: int) -> Any:
    """Models may generate halves of surrogate pairs, which JSON cannot encode. Raises ValueError if it is too deep."""
    if depth == 0:
        raise ValueError("nested too deeply")
    match value:
        case str():
            return _whole(value)
        case BaseModel():
            return _without_halves(value.model_dump(), depth - 1)
        case Mapping():
            return {
                _whole(key) if isinstance(key, str) else key: _without_halves(item, depth - 1)
                for key, item in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_without_halves(item, depth - 1) for item in value]
        case _:
            return value


def storable(value: Any, odd: Callable[[Any], str] = named) -> Any:
    """The value as JSON that any database keeps. What cannot be kept is replaced, for a log must not end a round."""
    if isinstance(value, str):
        return _whole(value)
    try:
        return as_json(value, odd)
    except ValueError:
        return _mended(value, odd, MAX_DEPTH)


def _mended(value: Any, odd: Callable[[Any], str], depth: int) -> Any:
    if isinstance(value, str):
        return _whole(value)
    if depth and isinstance(value, Mapping):
        return {_whole(str(key)): _mended(item, odd, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_mended(item, odd, depth - 1) for item in value]
    try:
        return as_json(value, odd)
    except ValueError:
        return named(value)


def _whole(text: str) -> str:
    """Without halves of surrogate pairs, which models and documents are known to leave behind."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clew_message(
    content: str,
    *,
    id: str,
    agent: str,
    marker: Marker = "step",
    documents: Iterable[str] = (),
    added: Iterable[DocumentAdded] = (),
    tokens: tuple[int, int] = (0, 0),
    model: str = "",
) -> AIMessage:
    """A message for a node to return that says in the log who spoke, which documents belong to it and which are new."""
    new = [{"id": document.document_id, "name": document.name, "ext": document.ext} for document in added]
    return AIMessage(
        content=content,
        id=id,
        name=agent,
        additional_kwargs={CLEW: {"marker": marker, "documents": list(documents), "added": new}},
        usage_metadata={"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)},
        response_metadata={"model_name": model} if model else {},
    )


def _assistant(agent: str, message: AIMessage) -> Iterator[Body]:
    usage = message.usage_metadata
    ours = message.additional_kwargs.get(CLEW, {})
    for document in ours.get("added", ()):
        yield DocumentAdded(document_id=document["id"], name=document["name"], ext=document["ext"])
    yield AssistantMessage(
        content=_content(message),
        agent=message.name or agent,
        documents=tuple(ours.get("documents", ())),
        marker=ours.get("marker", "step"),
        ref=message.id or "",
        tokens_in=usage["input_tokens"] if usage else 0,
        tokens_out=usage["output_tokens"] if usage else 0,
        model=_model(message) if usage else "",
    )
    for call in message.tool_calls:
        if call["id"]:
            yield ToolCall(call_id=call["id"], name=call["name"], args=storable(call["args"]), agent=agent)


def _model(message: AIMessage) -> str:
    """Its name as the provider says it: LangChain's integrations have two places for it."""
    told = message.response_metadata
    name = told.get("model_name") or told.get("model") or ""
    return _whole(name)[:MODEL_LENGTH] if isinstance(name, str) else ""


def missed(log: Sequence[Event], messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Messages of the graph that never reached this round's log: what came after the last thing a person said.

    Some messages get their ids later than we see them, at every reading anew, or never: those are known by what
    they say.
    """
    tail: list[BaseMessage] = []
    for message in messages:
        if message.type == "human":
            tail.clear()
        else:
            tail.append(message)
    logged = [event.body for event in log if isinstance(event.body, AssistantMessage)]
    found = unknown(log, tail)
    names = {(message.id, _key(_content(message))) for message in tail if isinstance(message, AIMessage)}
    spare = Counter(_key(body.content) for body in logged if (body.ref, _key(body.content)) not in names)
    return [message for message in found if not _takes(spare, message)]


def unknown(log: Sequence[Event], messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Messages that this log does not have by their ids."""
    named = {
        (event.body.ref, _key(event.body.content))
        for event in log
        if isinstance(event.body, AssistantMessage) and event.body.ref
    }
    answered = {event.body.call_id for event in log if isinstance(event.body, ToolResult)}
    return [
        message
        for message in messages
        if not (isinstance(message, AIMessage) and (message.id, _key(_content(message))) in named)
        and not (isinstance(message, ToolMessage) and message.tool_call_id in answered)
    ]


def _takes(spare: Counter[bytes], message: BaseMessage) -> bool:
    if not isinstance(message, AIMessage) or not spare[_key(_content(message))]:
        return False
    spare[_key(_content(message))] -= 1
    return True


def _content(message: AIMessage) -> Content:
    """Its text or its parts. LangChain allows plain texts among the parts; the log has objects."""
    content: Any = storable(message.content)
    if isinstance(content, list):
        return [part if isinstance(part, dict) else {"type": "text", "text": str(part)} for part in content]
    return content  # type: ignore[no-any-return]


def _key(content: Content) -> bytes:
    return content.encode() if isinstance(content, str) else to_json(content)
