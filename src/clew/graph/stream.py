"""LangGraph's stream, in the words of our log. Pure: one part in, the bodies it means out."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic_core import from_json, to_json, to_jsonable_python

from clew.domain.events import (
    AssistantMessage,
    Body,
    DocumentAdded,
    Marker,
    StageCompleted,
    ToolCall,
    ToolResult,
)

CLEW = "clew"

# A larger output of a node is named in the log, not kept there: it is in the checkpoint.
MAX_OUTPUT = 16_384


def completed(stage: str, result: Any) -> Iterator[Body]:
    """What a node's return means: its messages, its tool calls, and that it is done."""
    yield from said(stage, messages_in(result))
    yield StageCompleted(stage=stage, output=outline(result))


def said(agent: str, messages: Iterable[BaseMessage]) -> Iterator[Body]:
    for message in messages:
        match message:
            case AIMessage():
                yield from _assistant(agent, message)
            case ToolMessage(tool_call_id=call_id):
                ok = message.status != "error"
                content = to_jsonable_python(message.content)
                yield ToolResult(
                    call_id=call_id, ok=ok, result=content if ok else None, error="" if ok else str(content)
                )
            case _:
                pass


def messages_in(result: Any) -> list[BaseMessage]:
    """The messages a node returned, whatever its state calls them."""
    values = result.values() if isinstance(result, Mapping) else [result]
    found: list[BaseMessage] = []
    for value in values:
        items = value if isinstance(value, list | tuple) else [value]
        found += [item for item in items if isinstance(item, BaseMessage)]
    return found


def outline(result: Any) -> Any:
    """A node's return as JSON. Messages stand in the log themselves, so here only their ids do."""
    if isinstance(result, Mapping):
        return {str(key): outline(value) for key, value in result.items()}
    if isinstance(result, BaseMessage):
        return {"message": result.id or ""}
    if isinstance(result, list | tuple):
        return [outline(item) for item in result]
    value = to_jsonable_python(result, fallback=_named)
    return value if len(str(value)) <= MAX_OUTPUT else {"truncated": True, "type": type(result).__name__}


def as_json(values: Any) -> Any:
    """Any state as JSON: bytes as base64, and what JSON has no word for as the name of its type."""
    return from_json(to_json(values, bytes_mode="base64", inf_nan_mode="null", fallback=_named))


def _named(odd: Any) -> str:
    return f"<{type(odd).__name__}>"


def clew_message(
    content: str,
    *,
    id: str,
    agent: str,
    marker: Marker = "step",
    documents: Iterable[str] = (),
    added: Iterable[DocumentAdded] = (),
    tokens: tuple[int, int] = (0, 0),
) -> AIMessage:
    """A message for a node to return that says in the log who spoke, which documents belong to it and which are new."""
    new = [{"id": document.document_id, "name": document.name, "ext": document.ext} for document in added]
    return AIMessage(
        content=content,
        id=id,
        name=agent,
        additional_kwargs={CLEW: {"marker": marker, "documents": list(documents), "added": new}},
        usage_metadata={"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)},
    )


def _assistant(agent: str, message: AIMessage) -> Iterator[Body]:
    usage = message.usage_metadata
    ours = message.additional_kwargs.get(CLEW, {})
    for document in ours.get("added", ()):
        yield DocumentAdded(document_id=document["id"], name=document["name"], ext=document["ext"])
    yield AssistantMessage(
        content=message.content if isinstance(message.content, str) else to_jsonable_python(message.content),
        agent=message.name or agent,
        documents=tuple(ours.get("documents", ())),
        marker=ours.get("marker", "step"),
        ref=message.id or "",
        tokens_in=usage["input_tokens"] if usage else 0,
        tokens_out=usage["output_tokens"] if usage else 0,
    )
    for call in message.tool_calls:
        if call["id"]:
            yield ToolCall(
                call_id=call["id"], name=call["name"], args=to_jsonable_python(call["args"]), agent=agent
            )


def missed(known: set[str], messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Messages of the graph that never reached the log: what came after the last thing a person said."""
    tail: list[BaseMessage] = []
    for message in messages:
        if message.type == "human":
            tail.clear()
        else:
            tail.append(message)
    return [message for message in tail if message.id and message.id not in known]
