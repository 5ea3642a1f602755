"""Reasoning that a model writes between <think> tags: it is taken out of what the model says."""

import re

_OPEN, _CLOSE = "<think>", "</think>"
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def without_reasoning(text: str) -> str:
    """The text without its thoughts. Some servers swallow the first tag: then all before the last one is a thought."""
    said = _THOUGHT.sub("", text)
    return said.rpartition(_CLOSE)[2].strip() if _CLOSE in said else said.strip()


class ReasoningFilter:
    """The same for a text that comes in pieces. Part of a tag is held back until it is known to be one."""

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False

    def feed(self, piece: str) -> str:
        """What of the text so far may be shown now and was not before."""
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
