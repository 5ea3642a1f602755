"""Reasoning that a model writes between <think> tags: it is removed from the model's text."""

import re
from typing import Any, TypeVar

_OPEN, _CLOSE = "<think>", "</think>"
_Content = TypeVar("_Content")
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def without_reasoning(text: str) -> str:
    """The text without reasoning. Some servers drop the first tag: then all before the last one is reasoning."""
    said = _THOUGHT.sub("", text)
    return said.rpartition(_CLOSE)[2].strip() if _CLOSE in said else said.strip()


def without_thoughts(content: _Content) -> _Content:
    """The content of a message, a text or a list of parts, without the reasoning in its texts."""
    if isinstance(content, list):
        return [_spoken_part(part) for part in content]  # type: ignore[return-value]
    return _spoken_text(content)  # type: ignore[no-any-return]


def _spoken_part(part: Any) -> Any:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {**part, "text": _spoken_text(part["text"])}
    return _spoken_text(part)


def _spoken_text(text: Any) -> Any:
    has_thoughts = isinstance(text, str) and (_OPEN in text or _CLOSE in text)
    return without_reasoning(text) if has_thoughts else text


class ReasoningFilter:
    """The same for a text that comes in pieces. Part of a tag is held back until it is known to be one."""

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False

    def feed(self, piece: str) -> str:
        """The new part of the text that may be shown now."""
        text, shown = self._held + piece, ""
        while True:
            tag = _CLOSE if self._is_thinking else _OPEN
            before, found, after = text.partition(tag)
            if not found:
                break
            shown += "" if self._is_thinking else before
            self._is_thinking = not self._is_thinking
            text = after
        kept = next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
        self._held = text[len(text) - kept :]
        return shown if self._is_thinking else shown + text[: len(text) - kept]
