"""Answers of the OpenAI-compatible API: the text of a run, as chunks and as a whole, and what it cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from clew.domain.questions import is_yes_or_no, question_text
from clew.domain.records import StreamPart
from clew.domain.thread import Json, SuspensionKind, Thread

_OF_THE_MODEL = ("ai", "AIMessageChunk")
APART = "\n\n"
CHUNK = "chat.completion.chunk"
DONE = b"data: [DONE]\n\n"
YES_OR_NO = "Please answer yes or no."
BY_ID = "Answer all of them with one JSON object of answers by these ids."
LOST = "This conversation is not kept, so no answer can follow. Send the header X-Clew-Thread to keep it."
ELSEWHERE = "It is answered through the API, not in this conversation."


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


def questions_text(thread: Thread, *, is_kept: bool) -> str:
    """What a blocked thread asks, and how to answer it here; empty for a thread that asks nothing."""
    asked = [*thread.pending.items()]
    if not asked:
        return ""
    if len(asked) > 1:
        lines = [f"{call_id}: {question_text(pending.prompt)}" for call_id, pending in asked]
        return APART.join([*lines, BY_ID if is_kept else LOST])
    ((call_id, pending),) = asked
    how = LOST
    if is_kept and pending.kind in (SuspensionKind.CLIENT_EXEC, SuspensionKind.IN_DOUBT):
        how = ELSEWHERE
    elif is_kept:
        how = YES_OR_NO if is_yes_or_no(call_id, pending) else ""
    return APART.join(part for part in (question_text(pending.prompt), how) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer in OpenAI's form: as a whole, or as chunks that are server-sent events."""

    id: str
    created: int
    model: str
    includes_usage: bool = False

    def whole(self, text: str, usage: Mapping[str, int]) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**self._shell("chat.completion"), "choices": [choice], "usage": usage}

    def first(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, delta: str) -> bytes:
        return self._chunk({"content": delta})

    def last(self, usage: Mapping[str, int]) -> bytes:
        frames = self._chunk({}, finish="stop")
        if self.includes_usage:
            frames += event({**self._shell(CHUNK), "choices": [], "usage": usage})
        return frames + DONE

    def _chunk(self, delta: Mapping[str, Json], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self.includes_usage else {}
        return event({**self._shell(CHUNK), "choices": [choice], **usage})

    def _shell(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.id}", "object": kind, "created": self.created, "model": self.model}


def event(data: Mapping[str, Json]) -> bytes:
    return b"data: " + to_json(data) + b"\n\n"
