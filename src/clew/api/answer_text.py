"""Answer text: what the models of a run said, from its stream parts and its output, and what it cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic_core import from_json, to_json

from clew.domain.records import StreamPart
from clew.domain.thread import Json

_OF_THE_MODEL = ("ai", "AIMessageChunk")
# Between two messages.
APART = "\n\n"


@dataclass(slots=True)
class AnswerText:
    """What the models of a run said so far, by message, and their tokens."""

    texts: dict[str, str] = field(default_factory=dict)
    tokens_in: int = 0
    tokens_out: int = 0

    def hear(self, part: StreamPart) -> str:
        """What a stream part adds to the answer."""
        if part.name != "messages":
            return ""
        message, _ = from_json(part.data)
        if message.get("type") not in _OF_THE_MODEL:
            return ""
        usage = message.get("usage_metadata") or {}
        self.tokens_in += usage.get("input_tokens", 0)
        self.tokens_out += usage.get("output_tokens", 0)
        text = text_of(message.get("content"))
        key = message.get("id") or ""
        apart = APART if text and not self.texts.get(key) and any(self.texts.values()) else ""
        self.texts[key] = self.texts.get(key, "") + text
        return apart + text

    def whole(self, output: Json) -> str:
        """The answer as the graph's state has it: after a crash a part may have been streamed twice."""
        messages = output.get("messages") if isinstance(output, dict) else None
        if not isinstance(messages, list):
            streamed = [text for text in self.texts.values() if text]
            return APART.join(streamed) if streamed else to_json(output).decode()
        said = [message for message in messages if message.get("type") == "ai"]
        heard = [message for message in said if message.get("id") in self.texts]
        found = [text_of(message.get("content")) for message in heard or _newest(messages)]
        return APART.join(text for text in found if text)

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.tokens_in,
            "completion_tokens": self.tokens_out,
            "total_tokens": self.tokens_in + self.tokens_out,
        }


def _newest(messages: list[Json]) -> list[Json]:
    """What models said after the last message of the user."""
    users = [index for index, message in enumerate(messages) if message.get("type") == "human"]
    newest = messages[users[-1] + 1 :] if users else messages
    return [message for message in newest if message.get("type") == "ai"]


def text_of(content: Json) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if _is_text(part)]
    return "".join(text for text in texts if isinstance(text, str))


def _is_text(part: Json) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")
