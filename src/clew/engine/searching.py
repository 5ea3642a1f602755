"""Search: keeps the words of messages indexed, and finds threads by them with what the messages say now."""

import asyncio
import logging
import re
import unicodedata
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from clew.domain.errors import ClewError, Corrupt, Invalid, NotFound
from clew.domain.events import AssistantMessage, Content, Event, Redacted, UserMessage
from clew.domain.lifecycle import Change
from clew.domain.thread import Owner, Status, Thread
from clew.engine.sweeper import Chore
from clew.ports.search import IndexedText, MessageSearch, Terms
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.3
PAGE = 500
# Words of one message that are indexed; Postgres takes a megabyte.
MOST_WORDS = 20_000
LONGEST_WORD = 64
MOST_TERMS = 16
MATCHES_PER_THREAD = 3
EXCERPT = 160
# Looks for threads that were at rest when their process died.
CATCH_UP_SECONDS = 600.0
INDEXED = frozenset({UserMessage.type, AssistantMessage.type, Redacted.type})

_WORD = re.compile(r"[^\W_]+")
# Scripts that are written without spaces: each character is a word of its own.
_UNSPACED = re.compile(r"([\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    event_id: str
    role: Literal["user", "assistant", "name"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundThread:
    thread: Thread
    matches: list[Match] = field(default_factory=list)


def words_of(text: str) -> list[str]:
    """Without case and accents."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return [word[:LONGEST_WORD] for word in _WORD.findall(_UNSPACED.sub(r" \1 ", plain))[:MOST_WORDS]]


def terms_of(query: str) -> Terms:
    """What is between spaces is a term, whose words stand in a row. Raises Invalid if there is no word."""
    terms = [words for part in query.split() if (words := words_of(part))]
    if not terms:
        raise Invalid("q: give at least one word")
    if len(terms) > MOST_TERMS:
        raise Invalid(f"q: at most {MOST_TERMS} words")
    return terms


class FullTextSearch:
    def __init__(self, store: Store, index: MessageSearch) -> None:
        self._store = store
        self._index = index
        self._changed: dict[str, None] = {}
        self._wordless: dict[str, int] = {}  # threads in which nothing was said, and where their logs end
        self._woken = asyncio.Event()

    async def find(self, owner: Owner | None, query: str, *, limit: int) -> list[FoundThread]:
        """The most recently active threads with all words of the query in one message, or in their name.

        One that cannot be read is shown with the reason, and without its matches."""
        terms = terms_of(query)
        hits = await self._index.find(owner, terms, limit=limit * MATCHES_PER_THREAD)
        found: dict[str, FoundThread] = {}
        for hit in hits:
            with suppress(NotFound, Corrupt):
                if hit.thread_id not in found:
                    if len(found) == limit:
                        break
                    listed = await self._store.get_listed(hit.thread_id, owner)
                    found[hit.thread_id] = FoundThread(thread=listed)
                one = found[hit.thread_id]
                if len(one.matches) < MATCHES_PER_THREAD:
                    one.matches.extend(
                        [m async for m in self._matches(one.thread, hit.event_id, hit.seq, terms)]
                    )
        return [one for one in found.values() if one.matches or not one.thread.is_readable]

    async def _matches(self, thread: Thread, event_id: str, seq: int, terms: Terms) -> AsyncGenerator[Match]:
        """What the message says now: one that was redacted says nothing."""
        if not event_id:
            if _has(thread.name, terms):
                yield Match(event_id="", role="name", text=thread.name)
            return
        if event_id in thread.redacted:
            return
        for event in await self._store.read(thread.id, after=seq - 1, before=seq + 1, limit=1):
            if event.id == event_id and isinstance(event.body, UserMessage | AssistantMessage):
                text = _text(event.body.content)
                yield Match(
                    event_id=event_id,
                    role="user" if isinstance(event.body, UserMessage) else "assistant",
                    text=excerpt(text, terms),
                )

    def committed(self, change: Change) -> None:
        """Index the thread soon, if it came to rest. Never waits."""
        thread = change.thread
        if thread.status is Status.RUNNING:
            return
        if thread.name or thread.stats.messages:
            self._changed[thread.id] = None
        else:
            self._wordless[thread.id] = thread.last_seq
        self._woken.set()

    def chore(self) -> Chore:
        return Chore(name="index_messages", seconds=CATCH_UP_SECONDS, do=self.catch_up)

    async def catch_up(self) -> bool:
        """Index threads that were left behind."""
        after = ""
        while behind := await self._index.behind(after=after, limit=PAGE):
            for thread_id in behind:
                await self._update_if_possible(thread_id)
            after = behind[-1]
        return False

    @asynccontextmanager
    async def indexing(self) -> AsyncGenerator[None]:
        """Inside the block threads that come to rest are indexed."""
        task = asyncio.create_task(self._index_forever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _index_forever(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(GATHER_SECONDS)
            changed, self._changed = self._changed, {}
            wordless, self._wordless = self._wordless, {}
            for thread_id in changed:
                await self._update_if_possible(thread_id)
            if wordless:
                await self._pass_over(wordless)

    async def _pass_over(self, wordless: Mapping[str, int]) -> None:
        """All at once: there is nothing to read."""
        try:
            await self._index.pass_over(wordless)
        except ClewError as exc:
            logger.warning("threads cannot be passed over", extra={"count": len(wordless), "code": exc.code})
        except Exception:
            logger.exception("threads cannot be passed over")

    async def _update_if_possible(self, thread_id: str) -> None:
        """A thread that cannot be indexed keeps no other from it. The next time it comes to rest, or the chore, finds it."""
        try:
            await self.update(thread_id)
        except ClewError as exc:
            logger.warning("a thread cannot be indexed", extra={"thread_id": thread_id, "code": exc.code})
        except Exception:
            logger.exception("a thread cannot be indexed", extra={"thread_id": thread_id})

    async def update(self, thread_id: str) -> None:
        """Index what the log has more than the index."""
        try:
            thread = await self._store.get(thread_id)
            done = await self._index.position(thread_id)
            events = await self._store.read(thread_id, after=done, before=thread.last_seq + 1, types=INDEXED)
        except NotFound:
            return
        texts = [
            IndexedText(event_id=event.id, seq=event.seq, words=words_of(_text(event.body.content)))
            for event in events
            if isinstance(event.body, UserMessage | AssistantMessage) and event.id not in thread.redacted
        ]
        name = IndexedText(event_id="", seq=0, words=words_of(thread.name))
        await self._index.index(
            thread_id, [name, *texts], upto=thread.last_seq, without=list(_redacted(events))
        )


def _redacted(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if isinstance(event.body, Redacted) and not event.body.document_id:
            yield event.body.message_id


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(text for part in content if isinstance(text := part.get("text"), str))


def _has(text: str, terms: Terms) -> bool:
    """Whether it has them, roughly: an index that is behind must not bring back a name that was taken away."""
    words = words_of(text)
    return all(any(word.startswith(term[-1]) for word in words) for term in terms)


def excerpt(text: str, terms: Terms) -> str:
    """A piece of the text around the first word that was asked for."""
    starts = {term[0] for term in terms}
    at = 0
    for found in re.finditer(r"\S+", text):
        if any(word.startswith(start) for word in words_of(found[0]) for start in starts):
            at = found.start()
            break
    begin = max(0, at - EXCERPT // 3)
    piece = " ".join(text[begin : begin + EXCERPT].split())
    return f"{'…' if begin else ''}{piece}{'…' if begin + EXCERPT < len(text) else ''}"
