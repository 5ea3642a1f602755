"""Switched-off routes: what `http.disable_*` of langgraph.json removes from the server, by path."""

import re
from collections.abc import Collection

# The first pattern that fits decides; a route is gone if one of its words is switched off. Clew's own API reads threads
# and starts runs with the same requests, so each of both switches it off: otherwise it would be a way around them.
_OWN = ("threads", "runs")
_WORDS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"/assistants(/.*)?", ("assistants",)),
        (r"/runs(/.*)?|/threads/\{thread_id\}/runs(/.*)?", ("runs",)),
        (r"/threads/\{thread_id\}/(commands|stream/events)", ("runs", "event_streaming")),
        (r"/threads(/.*)?", ("threads",)),
        (r"/store(/.*)?", ("store",)),
        (r"/mcp(/.*)?", ("mcp",)),
        (r"/v1(/.*)?|/agui(/.*)?", ("runs",)),
        (r"/info|/metrics|/openapi\.json|/docs", ("meta",)),
        (r"/api/(audit|optimize/cleanup)(/.*)?", ()),
        (r"/ok|/health|/ready|/channels/.*", ()),
        (r"/api/graphs", ("assistants", *_OWN)),
    )
)


def words_of(path: str) -> tuple[str, ...]:
    """What switches a route off. One that no line is about goes with Clew's own API."""
    return next((words for pattern, words in _WORDS if pattern.fullmatch(path)), _OWN)


def is_disabled(path: str, disabled: Collection[str]) -> bool:
    return any(word in disabled for word in words_of(path))
