"""Messages of AG-UI and of LangChain, each in the form of the other."""

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from ag_ui.core import (
    AssistantMessage,
    AudioPart,
    ContentPart,
    DataSource,
    DeveloperMessage,
    DocumentPart,
    FileSource,
    FunctionCall,
    ImagePart,
    Message,
    PartSource,
    ReasoningMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
    VideoPart,
)
from pydantic_core import from_json, to_json

from clew.api.answer_text import text_of
from clew.domain.errors import Invalid
from clew.domain.thread import Json

# LangChain's names for parts of AG-UI.
_BLOCKS = {"image": "image", "audio": "audio", "video": "video", "document": "file"}
_PARTS = {"image": ImagePart, "audio": AudioPart, "video": VideoPart, "file": DocumentPart}
# A tool message of AG-UI says in words what failed; LangChain has a status.
_FAILED = "error"


def as_input(messages: Iterable[Message]) -> list[dict[str, Json]]:
    """As a graph takes them. Reasoning and activities are for display: a graph has no such messages."""
    return [given for message in messages if (given := _as_input(message)) is not None]


def _as_input(message: Message) -> dict[str, Json] | None:
    match message:
        case UserMessage(id=id, content=content):
            return {"type": "human", "id": id, "content": _as_blocks(content), **_named(message.name)}
        case AssistantMessage(id=id, content=content):
            calls = [_as_call(call) for call in message.tool_calls or ()]
            return {"type": "ai", "id": id, "content": content or "", "tool_calls": calls}
        case SystemMessage(id=id, content=content) | DeveloperMessage(id=id, content=content):
            return {"type": "system", "id": id, "content": content}
        case ToolMessage(id=id, content=content, tool_call_id=call_id, error=error):
            status = "error" if error else "success"
            said = _as_blocks(content) or error or ""
            return {"type": "tool", "id": id, "content": said, "tool_call_id": call_id, "status": status}
        case _:
            return None


def _named(name: str | None) -> dict[str, Json]:
    return {} if name is None else {"name": name}


def _as_call(call: ToolCall) -> dict[str, Json]:
    try:
        args = from_json(call.function.arguments) if call.function.arguments else {}
    except ValueError:
        raise Invalid(f"the arguments of the tool call {call.id!r} are no JSON", field="messages") from None
    return {"type": "tool_call", "id": call.id, "name": call.function.name, "args": args}


def _as_blocks(content: str | Sequence[ContentPart]) -> Json:
    return content if isinstance(content, str) else [_as_block(part) for part in content]


def _as_block(part: ContentPart) -> dict[str, Json]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(source=DataSource(value=value, mime_type=kind)):
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{value}"}}
        case ImagePart(source=UrlSource(value=value)):
            return {"type": "image_url", "image_url": {"url": value}}
        case _:
            source = part.source
            key = {"data": "base64", "url": "url", "file": "file_id"}[source.type]
            block = {"type": _BLOCKS[part.type], key: source.value}
            return block if source.mime_type is None else {**block, "mime_type": source.mime_type}


def is_chat(values: Json) -> bool:
    """Whether the values of a graph have messages, as LangChain shows them."""
    messages = values.get("messages") if isinstance(values, dict) else None
    return isinstance(messages, list) and all(
        isinstance(one, dict) and isinstance(one.get("type"), str) for one in messages
    )


def as_shown(messages: Iterable[dict[str, Json]]) -> list[Message]:
    """As AG-UI's clients show them. The reasoning of a message is a message before it."""
    shown: list[Message] = []
    for index, message in enumerate(messages):
        key = message.get("id") or f"message-{index}"
        if thought := reasoning_of(message):
            shown.append(ReasoningMessage(id=reasoning_id(key), content=thought))
        shown.append(_as_shown(key, message))
    return shown


def _as_shown(key: str, message: dict[str, Json]) -> Message:
    content = message.get("content")
    match message["type"]:
        case "human":
            return UserMessage(id=key, content=_as_parts(content), name=message.get("name"))
        case "system":
            return SystemMessage(id=key, content=text_of(content))
        case "tool":
            error = _FAILED if message.get("status") == "error" else None
            call_id = str(message.get("tool_call_id"))
            return ToolMessage(id=key, content=result_text(content), tool_call_id=call_id, error=error)
        case _:
            calls = [shown_call(call) for call in message.get("tool_calls") or ()]
            return AssistantMessage(id=key, content=text_of(content), tool_calls=calls or None)


def shown_call(call: dict[str, Json]) -> ToolCall:
    arguments = to_json(call.get("args") or {}).decode()
    return ToolCall(
        id=str(call.get("id")), function=FunctionCall(name=str(call["name"]), arguments=arguments)
    )


def result_text(content: Json) -> str:
    """What a tool answered, as a text."""
    if isinstance(content, str):
        return content
    return text_of(content) or to_json(content).decode()


def _as_parts(content: Json) -> str | list[ContentPart]:
    if not isinstance(content, list):
        return text_of(content)
    return [part for block in content if (part := _as_part(block)) is not None]


def _as_part(block: Json) -> ContentPart | None:
    match block:
        case str():
            return TextPart(text=block)
        case {"type": "text", "text": str() as text}:
            return TextPart(text=text)
        case {"type": "image_url", "image_url": {"url": str() as url}} | {
            "type": "image_url",
            "image_url": str() as url,
        }:
            return ImagePart(source=_source_of(url))
        case {"type": "image" | "audio" | "video" | "file" as kind}:
            source = _block_source(block)
            return None if source is None else _PARTS[kind](source=source)
        case _:
            return None


def _source_of(url: str) -> PartSource:
    header, comma, data = url.partition(",")
    if not (url.startswith("data:") and comma):
        return UrlSource(value=url)
    kind = header.removeprefix("data:").partition(";")[0]
    return DataSource(value=data, mime_type=kind or "application/octet-stream")


def _block_source(block: dict[str, Json]) -> PartSource | None:
    kind = block.get("mime_type")
    if _is_text(data := block.get("base64") or block.get("data")):
        return DataSource(value=data, mime_type=kind or "application/octet-stream")
    if _is_text(url := block.get("url")):
        return UrlSource(value=url, mime_type=kind)
    if _is_text(file := block.get("file_id")):
        return FileSource(value=file, mime_type=kind)
    return None


def _is_text(value: Json) -> TypeGuard[str]:
    return isinstance(value, str)


def reasoning_id(message_id: str) -> str:
    """The id of what a model thought before it said a message."""
    return f"{message_id}-reasoning"


def reasoning_of(message: dict[str, Json]) -> str:
    """What a model thought, in any of the forms in which providers send it."""
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    thoughts = [_thought(block) for block in blocks]
    more = (message.get("additional_kwargs") or {}).get("reasoning_content")
    return "".join([*thoughts, more if isinstance(more, str) else ""])


def _thought(block: dict[str, Json]) -> str:
    match block:
        case {"type": "reasoning", "reasoning": str() as text} | {
            "type": "thinking",
            "thinking": str() as text,
        }:
            return text
        case {"type": "reasoning", "summary": [*parts]}:
            return "\n".join(
                str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text")
            )
        case {"type": "reasoning_content", "reasoning_content": {"text": str() as text}}:
            return text
        case _:
            return ""
