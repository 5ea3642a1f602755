"""State of the thread protocol: values and updates with their messages in the protocol's form."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

TYPES = {
    "human": "human",
    "user": "human",
    "ai": "ai",
    "assistant": "ai",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "remove": "remove",
}
BLOCKS = frozenset(
    {
        "text",
        "reasoning",
        "tool_call",
        "tool_call_chunk",
        "invalid_tool_call",
        "server_tool_call",
        "server_tool_call_chunk",
        "server_tool_call_result",
        "image",
        "audio",
        "video",
        "file",
        "non_standard",
    }
)
INTERRUPT = "__interrupt__"


def protocol_state(value: Any) -> Any:
    """What a state holds, with messages in the protocol's form and without interrupts."""
    if isinstance(value, list):
        return [protocol_state(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") in TYPES and "content" in value:
        return protocol_message(value)
    return {name: protocol_state(each) for name, each in value.items() if name != INTERRUPT}


def protocol_message(message: Mapping[str, Any]) -> dict[str, Any]:
    kind = TYPES[message["type"]]
    shown: dict[str, Any] = {"type": kind, "content": _content(message.get("content", ""))}
    shown |= {name: message[name] for name in ("id", "name") if isinstance(message.get(name), str)}
    if message.get("response_metadata"):
        shown["response_metadata"] = message["response_metadata"]
    if kind == "tool":
        shown |= {
            name: message[name]
            for name in ("tool_call_id", "status", "artifact")
            if message.get(name) is not None
        }
    if kind == "ai":
        shown |= _calls(message)
    return shown


def _calls(message: Mapping[str, Any]) -> dict[str, Any]:
    more = message.get("additional_kwargs") or {}
    calls: list[Any] = []
    invalid: list[Any] = list(message.get("invalid_tool_calls") or ())
    for call in message.get("tool_calls") or more.get("tool_calls") or ():
        named = call.get("function") or call
        name, args = named.get("name"), named.get("args", named.get("arguments"))
        about = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
        try:
            args = from_json(args or "{}") if isinstance(args, str) else args or {}
        except ValueError:
            invalid.append({"name": name, "args": args, "error": "Malformed args.", **about})
        else:
            calls.append({"type": "tool_call", "name": name, "args": args, **about})
    told: dict[str, Any] = {"tool_calls": calls} if calls else {}
    if invalid:
        told["invalid_tool_calls"] = [{**call, "type": "invalid_tool_call"} for call in invalid]
    return told


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [{"type": "text", "text": block} if isinstance(block, str) else _block(block) for block in content]


def _block(block: Any) -> Any:
    match block:
        case {"type": str(kind)} if kind in BLOCKS:
            return block
        case {"type": "image_url", "image_url": str(url) | {"url": str(url)}}:
            return {"type": "image", "url": url}
        case {"type": "input_audio", "input_audio": dict(audio)}:
            return {"type": "audio", **{name: audio[name] for name in ("data", "mime_type") if name in audio}}
        case _:
            return {"type": "non_standard", "value": block}
