"""Answers of the OpenAI-compatible API: a text as a whole or as chunks, and questions in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from clew.api.answer_text import APART
from clew.domain.questions import is_for_programs, is_yes_or_no, question_text
from clew.domain.thread import Json, Thread

CHUNK = "chat.completion.chunk"
DONE = b"data: [DONE]\n\n"
YES_OR_NO = "Please answer yes or no."
BY_ID = "Answer all of them with one JSON object of answers by these ids."
LOST = "This conversation is not kept, so no answer can follow. Send the header X-Clew-Thread to keep it."
ELSEWHERE = "It is answered through the API, not in this conversation."


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
    if is_kept and is_for_programs(pending):
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
