"""Scrubbing of text for a log: one line, of bounded length, and nothing in it that looks like a credential.

The second line of defence: the first is that no code logs a secret.
"""

import re
from collections.abc import Collection

MAX_CHARACTERS = 2000

# Patterns see no more than this, so that a hostile string costs no more than this either.
_WINDOW = 4 * MAX_CHARACTERS
_SHORTEST_SECRET = 6

_PATTERNS = (
    # scheme://user:password@host
    (re.compile(r"://[^\s/?#]*@"), "://***@"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]+", re.IGNORECASE), r"\1 ***"),
    (
        re.compile(
            r"((?:api[_-]?key|authorization|passw(?:or)?d|pwd|secret|token|dsn)[\"']?\s{0,8}[=:]\s{0,8}[\"']?)[^\s\"'&,;]+",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
    # keys by their shape: OpenAI and Anthropic, GitHub, Slack, our own, AWS, Telegram bots, JSON web tokens
    (re.compile(r"\b(?:sk|gh[opsu]|github_pat|xox[abp])[-_][A-Za-z0-9_-]{12,}"), "***"),
    (re.compile(r"\bclew_[a-z2-7]{8}_[a-z2-7]{32}"), "***"),
    (re.compile(r"\bclew_(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{20,}"), "***"),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), "***"),
    (re.compile(r"(?<![0-9])[0-9]{6,12}:[A-Za-z0-9_-]{30,}"), "***"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"), "***"),
)


class Scrubber:
    """Removes the secrets of this process by value, and other secrets by their format."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        words = sorted({word for word in secrets if len(word) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._words = re.compile("|".join(map(re.escape, words))) if words else None

    def __call__(self, text: str) -> str:
        text = text[:_WINDOW]
        if self._words is not None:
            text = self._words.sub("***", text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        if len(text) > MAX_CHARACTERS:
            text = text[:MAX_CHARACTERS] + "..."
        return one_line(text)


def one_line(text: str) -> str:
    """Line ends, terminal escapes, direction marks and broken Unicode as their escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
