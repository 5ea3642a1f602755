"""Redacted text of a thread, for code that must not repeat it."""

from clew.domain.errors import NotFound
from clew.domain.events import AssistantMessage, UserMessage
from clew.domain.redaction import texts_of
from clew.domain.thread import Thread
from clew.ports.threads import Store


async def redacted_texts(store: Store, thread: Thread) -> list[str]:
    """The texts of wholly redacted messages, the longest first: one may contain another."""
    texts: set[str] = set()
    for record_id in thread.redacted:
        try:
            seq = await store.seq_of(thread.id, record_id)
        except NotFound:
            continue  # a document
        for event in await store.read(thread.id, after=seq - 1, before=seq + 1):
            if isinstance(event.body, UserMessage | AssistantMessage):
                texts |= texts_of(event.body.content)
    return sorted(texts, key=len, reverse=True)
