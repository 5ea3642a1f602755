"""Model replies: parsing of untrusted answers."""

import json
import re

from clew.domain.errors import Invalid
from clew.domain.thread import Json

_FENCE = re.compile(r"```(?:json)?(.*?)```", re.DOTALL | re.IGNORECASE)
_MAX_DEPTH = 32


def json_in(text: str) -> Json:
    """The JSON value in an answer, also inside text or a code fence. Raises Invalid."""
    for candidate in (text, *_FENCE.findall(text)[:3], text[text.find("{") : text.rfind("}") + 1]):
        if candidate.strip() and _depth(candidate) <= _MAX_DEPTH:
            try:
                return json.loads(candidate)
            except (ValueError, RecursionError):
                continue
    raise Invalid("expected JSON and nothing else", "answer")


def _depth(text: str) -> int:
    """How deep brackets go, roughly: what is in strings counts too, which only makes it stricter."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
