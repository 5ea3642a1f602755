"""Thread export as a zip: its log, its messages for programs and for people, its documents, its newest state.

The archive is made while it is read, so that a large thread needs no more memory than a small one.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from io import RawIOBase
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from pydantic_core import to_json

from clew.domain import views
from clew.domain.errors import ClewError, Corrupt, NotFound
from clew.domain.events import MESSAGES, Content, DocumentAdded, Event, Resolution, Suspension
from clew.domain.records import Document
from clew.domain.redaction import shown_body, shown_documents, without
from clew.domain.thread import Json, Thread
from clew.engine.redaction import redacted_texts
from clew.ports.files import Files
from clew.ports.threads import Store
from clew.retention.salvage import Problem, Stretch, legible

PROBLEMS = "problems.json"
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    store: Store
    files: Files
    # The values of a graph's newest state, by the thread's id.
    latest: Callable[[str], Awaitable[Json]]

    def zip_of(self, thread: Thread) -> "Archive":
        return Archive(self, thread)


class Archive:
    """The zip of one thread, piece by piece. What was redacted is not in it.

    Unreadable parts are left out and listed in `problems`, which the zip then contains too.
    """

    def __init__(self, export: Export, thread: Thread) -> None:
        self._export = export
        self._thread = thread
        # In the order they were met, each once: the log is read more than once.
        self._problems: dict[Problem, None] = {}
        # What the log knows of documents, for when their own table cannot be read.
        self._documents_in_log: dict[str, None] = {}

    @property
    def problems(self) -> list[Problem]:
        """All of them once the last piece was taken."""
        return list(self._problems)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        thread = self._thread
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
                    async for stretch in legible(self._export.store, thread):
                        self._learn(stretch)
                        for line in lines(thread, stretch):
                            file.write(line.encode())
                        yield sink.take()
            with names.open("state.json") as file:
                file.write(_pretty(await self._state()))
            async for piece in self._documents(names, sink):
                yield piece
            if self._problems:
                with names.open(PROBLEMS) as file:
                    file.write(_pretty([problem.told() for problem in self._problems]))
        yield sink.take()

    def _learn(self, stretch: Stretch) -> None:
        if isinstance(stretch, Problem):
            self._meet(stretch)
            return
        for event in stretch:
            if isinstance(event.body, DocumentAdded):
                self._documents_in_log[event.body.document_id] = None

    def _meet(self, problem: Problem) -> None:
        self._problems[problem] = None

    async def _state(self) -> Json:
        store, thread = self._export.store, self._thread
        try:
            return without(await self._export.latest(thread.id), await redacted_texts(store, thread))
        except ClewError as exc:
            # The export continues without it.
            self._meet(Problem(table="checkpoints", code=exc.code, reason=str(exc)))
            return {"error": exc.code}

    async def _documents(self, names: "_Names", sink: "_Sink") -> AsyncIterator[bytes]:
        found: list[Json] = []
        documents = shown_documents(self._thread, await self._find_documents())
        for number, document in enumerate(documents, 1):
            path = f"documents/{number:03}_{_file_name(document)}"
            parts = _checked(self._export.files.read_bytes(document.sha256), document.sha256)
            try:
                part = await anext(parts)
            except (NotFound, Corrupt) as exc:
                self._meet(Problem(table="blobs", code=exc.code, reason=str(exc), id=document.id))
                found.append(asdict(document) | {"path": None})
                continue
            found.append(asdict(document) | {"path": path})
            with names.open(path, ZIP_STORED) as file:
                file.write(part)
                try:
                    async for part in parts:
                        yield sink.take()
                        file.write(part)
                except Corrupt as exc:
                    self._meet(Problem(table="blobs", code=exc.code, reason=str(exc), id=document.id))
            yield sink.take()
        with names.open("documents.json") as file:
            file.write(_pretty(found))

    async def _find_documents(self) -> Sequence[Document]:
        files, thread_id = self._export.files, self._thread.id
        try:
            return await files.find_documents(thread_id)
        except Corrupt as exc:
            self._meet(Problem(table="documents", code=exc.code, reason=str(exc)))
        # One corrupt row fails the whole read: the documents the log names are read one by one.
        found: list[Document] = []
        for document_id in self._documents_in_log:
            try:
                found.append(await files.get_document(thread_id, document_id))
            except (NotFound, Corrupt) as exc:
                self._meet(Problem(table="documents", code=exc.code, reason=str(exc), id=document_id))
        return found


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


async def _checked(parts: AsyncIterator[bytes], digest: str) -> AsyncIterator[bytes]:
    """The same bytes. Raises Corrupt at their end if they are not those that were stored."""
    found = sha256()
    async for part in parts:
        found.update(part)
        yield part
    if found.hexdigest() != digest:
        raise Corrupt("its bytes are not those that were stored")


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


def _as_events(thread: Thread, stretch: Stretch) -> Iterator[str]:
    for event in _events(stretch):
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


def _as_messages(thread: Thread, stretch: Stretch) -> Iterator[str]:
    return (_line(asdict(message)) for message in views.messages(thread, _events(stretch)))


def _as_markdown(thread: Thread, stretch: Stretch) -> Iterator[str]:
    """For people: what was said, asked and answered, and where something of it is missing."""
    if _first_seq(stretch) == 1:
        yield f"# {thread.name or thread.id}\n\n{thread.graph}, {thread.created_at:%Y-%m-%d}\n"
    if isinstance(stretch, Problem):
        yield f"\n*Here {_which(stretch)} could not be read back, see {PROBLEMS}.*\n"
    events = _events(stretch)
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


def _events(stretch: Stretch) -> Sequence[Event]:
    return () if isinstance(stretch, Problem) else stretch


def _first_seq(stretch: Stretch) -> int | None:
    return stretch.from_seq if isinstance(stretch, Problem) else stretch[0].seq


def _which(problem: Problem) -> str:
    if problem.from_seq == problem.to_seq:
        return f"event {problem.from_seq}"
    return f"events {problem.from_seq} to {problem.to_seq}"


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
    """The document's own name without characters that are unsafe on any file system."""
    name = f"{document.name}.{document.ext}" if document.ext else document.name
    return _UNSAFE.sub("_", name).lstrip(".")[-100:] or "document"


def _line(value: Json) -> str:
    return to_json(value, inf_nan_mode="null", fallback=str).decode() + "\n"


def _pretty(value: Json) -> bytes:
    return to_json(value, indent=2, inf_nan_mode="null", fallback=str) + b"\n"
