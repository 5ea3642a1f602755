"""Token stream: the output of one run's models, on its way to subscribed clients."""

from collections import defaultdict
from typing import Any

from langchain_core.messages import AIMessageChunk

from clew.domain.thread import Thread
from clew.domain.views import Token
from clew.ports.streams import Tokens
from clew.texts.reasoning import ReasoningFilter


class TokenStream:
    """Reads the `messages` of LangGraph's stream. Whole messages are not repeated: they are in the log."""

    def __init__(self, thread: Thread, live: Tokens) -> None:
        self._thread = thread
        self._live = live
        self._said: dict[str, int] = {}  # characters so far, by message
        self._filters: defaultdict[str, ReasoningFilter] = defaultdict(ReasoningFilter)

    def hear(self, part: tuple[Any, dict[str, Any]]) -> None:
        chunk, described = part
        if not isinstance(chunk, AIMessageChunk) or not chunk.id:
            return
        text = self._filters[chunk.id].feed(str(chunk.text))
        if not text:
            return
        before = self._said.get(chunk.id, 0)
        self._said[chunk.id] = before + len(text)
        self._live.say(
            Token(
                thread_id=self._thread.id,
                owner=self._thread.owner,
                message=chunk.id,
                agent=str(described.get("langgraph_node", "")),
                offset=before,
                text=text,
            )
        )
