"""A thread as a zip: its log, its messages for programs and for people, its documents, its graph's newest state.

The archive is made while it is read, so that a large thread needs no more memory than a small one.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import RawIOBase
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from pydantic_core import to_json

from clew.domain import views
from clew.domain.errors import ClewError, NotFound
from clew.domain.events import MESSAGES, Content, Event, Resolution, Suspension
from clew.domain.records import Document
from clew.domain.redaction import shown_body, shown_documents, without
from clew.domain.thread import Json, Thread
from clew.engine.redaction import redacted_texts
from clew.ports import Files, Store

PAGE = 500
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    store: Store
    files: Files
    # The values of a graph's newest state, by the thread's id.
    latest: Callable[[str], Awaitable[Json]]

    async def zip_of(self, thread: Thread) -> AsyncIterator[bytes]:
        """The archive, piece by piece. What was redacted is not in it."""
        sink = _Sink()
        with ZipFile(sink, "w", ZIP_DEFLATED) as archive:
            names = _Names(archive, thread)
            with names.open("thread.json") as file:
                file.write(_pretty(_described(thread)))
            for name, lines in (
                ("log.jsonl", _as_events),
                ("messages.jsonl", _as_messages),
                ("messages.md", _as_markdown),
            ):
                with names.open(name) as file:
                    async for page in self._pages(thread):
                        for line in lines(thread, page):
                            file.write(line.encode())
                        yield sink.take()
            with names.open("state.json") as file:
                file.write(_pretty(await self._state(thread)))
            async for piece in self._documents(thread, names, sink):
                yield piece
        yield sink.take()

    async def _pages(self, thread: Thread) -> AsyncIterator[Sequence[Event]]:
        """The log as long as it was when the thread was looked up."""
        after = 0
        while after < thread.last_seq:
            page = await self.store.read(thread.id, after=after, before=thread.last_seq + 1, limit=PAGE)
            if not page:
                return
            yield page
            after = page[-1].seq

    async def _state(self, thread: Thread) -> Json:
        try:
            return without(await self.latest(thread.id), await redacted_texts(self.store, thread))
        except ClewError as exc:
            # The rest of the thread is worth having without it.
            return {"error": exc.code}

    async def _documents(self, thread: Thread, names: "_Names", sink: "_Sink") -> AsyncIterator[bytes]:
        found: list[Json] = []
        documents = shown_documents(thread, await self.files.find_documents(thread.id))
        for number, document in enumerate(documents, 1):
            path = f"documents/{number:03}_{_file_name(document)}"
            parts = aiter(self.files.read_bytes(document.sha256))
            try:
                part = await anext(parts)
            except NotFound:
                found.append(asdict(document) | {"path": None})
                continue
            found.append(asdict(document) | {"path": path})
            with names.open(path, ZIP_STORED) as file:
                file.write(part)
                async for part in parts:
                    yield sink.take()
                    file.write(part)
            yield sink.take()
        with names.open("documents.json") as file:
            file.write(_pretty(found))


class _Names:
    """Entries of an archive, all with the thread's own time, so that the same thread is the same archive."""

    def __init__(self, archive: ZipFile, thread: Thread) -> None:
        self._archive = archive
        at = thread.last_active_at
        # A zip knows no time before 1980 nor after 2107.
        self._time = (min(max(at.year, 1980), 2107), at.month, at.day, at.hour, at.minute, at.second)

    def open(self, name: str, method: int = ZIP_DEFLATED) -> IO[bytes]:
        info = ZipInfo(name, self._time)
        info.compress_type = method
        info.external_attr = 0o600 << 16
        return self._archive.open(info, "w", force_zip64=True)


class _Sink(RawIOBase):
    """What was written and not yet taken. It cannot seek, so the archive does not try to."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # a zip writes bytes
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def _described(thread: Thread) -> Json:
    return {
        "id": thread.id,
        "tenant": thread.owner.tenant,
        "user_id": thread.owner.user_id,
        "graph": thread.graph,
        "name": thread.name,
        "status": thread.status,
        "stage": thread.stage,
        "round": thread.round,
        "events": thread.last_seq,
        "failure_reason": thread.failure_reason,
        "settings": thread.settings,
        "stats": asdict(thread.stats),
        "pending": thread.fsm_state["pending"],
        "created_at": thread.created_at,
        "last_active_at": thread.last_active_at,
        "last_accessed_at": thread.last_accessed_at,
        "expires_at": thread.expires_at,
    }


def _as_events(thread: Thread, events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        shown = shown_body(thread, event)
        yield _line(
            {
                "seq": event.seq,
                "id": event.id,
                "round": event.round,
                "type": event.type,
                "at": event.at,
                "content": None if shown is None else asdict(shown),
            }
        )


def _as_messages(thread: Thread, events: Sequence[Event]) -> Iterator[str]:
    return (_line(asdict(message)) for message in views.messages(thread, events))


def _as_markdown(thread: Thread, events: Sequence[Event]) -> Iterator[str]:
    """For people: what was said, asked and answered."""
    if events[0].seq == 1:
        yield f"# {thread.name or thread.id}\n\n{thread.graph}, {thread.created_at:%Y-%m-%d}\n"
    messages = {message.id: message for message in views.messages(thread, events)}
    for event in events:
        match event.body:
            case _ if event.type in MESSAGES:
                if message := messages.get(event.id):
                    who = message.agent or message.role
                    yield f"\n## {who.capitalize()}, {event.at:%Y-%m-%d %H:%M}\n\n{_text(message.content)}\n"
            case Suspension(prompt=prompt):
                yield f"\n## Question, {event.at:%Y-%m-%d %H:%M}\n\n{_prompt(prompt)}\n"
            case Resolution(answer=answer, outcome=outcome):
                said = _prompt(answer) if outcome == "answered" else outcome
                yield f"\n## Answer, {event.at:%Y-%m-%d %H:%M}\n\n{said}\n"
            case _:
                pass


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(str(part["text"]) for part in content if part.get("text"))


def _prompt(prompt: Json) -> str:
    if isinstance(prompt, dict):
        for key in ("message", "question", "text"):
            if isinstance(prompt.get(key), str):
                return str(prompt[key])
    return prompt if isinstance(prompt, str) else f"```json\n{to_json(prompt, fallback=str).decode()}\n```"


def _file_name(document: Document) -> str:
    """Of the document's own name only what can do no harm on anybody's disk."""
    name = f"{document.name}.{document.ext}" if document.ext else document.name
    return _UNSAFE.sub("_", name).lstrip(".")[-100:] or "document"


def _line(value: Json) -> str:
    return to_json(value, inf_nan_mode="null", fallback=str).decode() + "\n"


def _pretty(value: Json) -> bytes:
    return to_json(value, indent=2, inf_nan_mode="null", fallback=str) + b"\n"
