"""Chat documents: the user's files, the files agents made, and the form in which a task gets them."""

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Literal
from uuid import NAMESPACE_URL, uuid5

from clew.apps.chat.plan import Produced, TaskDocument
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose
from clew.apps.drivers.replies import json_in
from clew.apps.prompts import prompt
from clew.documents.documents import (
    EXTRACTED_CHARACTERS,
    TABLES,
    Documents,
    TakenIn,
    TaskContent,
    contents_for,
    texts_in,
)
from clew.documents.passages import cut
from clew.documents.uploads import PART_BYTES
from clew.domain.documents import media_type, split_name
from clew.domain.errors import Invalid, NotFound, Permanent
from clew.domain.events import DocumentAdded
from clew.domain.records import ContentItem, File
from clew.domain.thread import Json, Thread

# What a task needs of texts, each given with whether it is a table.
Extract = Callable[[Sequence[tuple[str, bool]], str], Awaitable[Sequence[str]]]

# Shorter documents are given to a task whole; the model does not select parts of them.
LONG_DOCUMENT = 6_000
# How much of one document a model gets when it selects parts.
_ASKED_CHARACTERS = 48_000
_SUMMARY_CHARACTERS = 400
_WARNING_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A document of the thread under the label by which plans name it."""

    id: str
    label: str
    kind: Literal["text", "table", "picture", "other"]
    origin: Literal["user", "agent"]
    round: int
    size: int
    summary: str = ""
    # How many tables a text has in it, and what of the file could not be read.
    tables: int = 0
    warning: str = ""

    @property
    def described(self) -> dict[str, Json]:
        """For the project manager."""
        named = ("label", "kind", "origin", "round", "summary", "tables", "warning")
        return {name: getattr(self, name) for name in named}

    @property
    def added(self) -> DocumentAdded:
        name, ext = split_name(self.label)
        return DocumentAdded(document_id=self.id, name=name, ext=ext)

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


def entries(stored: Iterable[dict[str, Json]]) -> list[Entry]:
    return [Entry(**one) for one in stored]


def by_label(found: Iterable[Entry]) -> dict[str, Entry]:
    """The newest document under each label."""
    return {entry.label: entry for entry in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDocuments:
    documents: Documents

    async def take_in(
        self,
        thread: Thread,
        file_id: str,
        taken: Iterable[str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Entry, Sequence[str]]:
        """A file the user uploaded, and the warnings about it. Raises NotFound if it was deleted."""
        file = await self.documents.files.get_file(file_id, thread.owner)
        # The same file is the same document, however often a client sends it.
        document_id = f"doc_{uuid5(NAMESPACE_URL, f'{thread.id}/{file_id}')}"
        read = await self.documents.take_in(document_id, thread.id, file, progress=progress)
        label = _free(file.name, taken)
        return _entry(read, label, "user", thread.round), read.warnings

    async def put(self, thread: Thread, place: str, produced: Produced) -> Entry:
        """Keep what an agent made. The same content of the same task is kept once, however often the task runs."""
        digest = sha256(produced.content).hexdigest()
        name = f"{thread.id}/{thread.round}/{place}/{produced.label}/{digest}"
        file = File(
            # A document made here is its own file: clients fetch it by that id, and it is deleted with its thread.
            id=f"doc_{uuid5(NAMESPACE_URL, name)}",
            owner=thread.owner,
            name=produced.label,
            mime=media_type(produced.label, produced.content[:4096]),
            size=len(produced.content),
            sha256=digest,
            created_at=self.documents.clock(),
        )
        files = self.documents.files
        for number in range(0, max(1, len(produced.content)), PART_BYTES):
            part = produced.content[number : number + PART_BYTES]
            await files.add_part(digest, number // PART_BYTES, part, now=file.created_at)
        try:
            await files.get_file(file.id)
        except NotFound:
            await files.add_file(file)
        read = await self.documents.take_in(file.id, thread.id, file)
        return _entry(read, produced.label, "agent", thread.round)

    async def contents(self, thread: Thread, entry: Entry) -> list[TaskContent]:
        """The items of a document, whole."""
        items = await self.documents.files.contents(thread.id, entry.id)
        return contents_for(items, ["" for _ in texts_in(items)])

    async def shown(
        self, thread: Thread, entry: Entry, task_prompt: str, driver: Driver, extract: Extract
    ) -> TaskDocument:
        """A document as an agent is given it: whole, in items, and of each item what its task needs."""
        files = self.documents.files
        document = await files.get_document(thread.id, entry.id)
        data = b"".join([part async for part in _parts(files.read_bytes(document.sha256))])
        items = await files.contents(thread.id, entry.id)
        contents = contents_for(items, await extract(texts_in(items), task_prompt))
        if driver.can(Purpose.EXTRACT) and sum(len(item.data) for item in _readable(items)) > LONG_DOCUMENT:
            await _ask_what_matters(contents, task_prompt, driver)
        name, ext = split_name(entry.label)
        numbers = await self.documents.numbers.of("file", thread.owner.tenant, [document.file_id])
        return {
            "id": document.id,
            "fileId": numbers[document.file_id],
            "name": name,
            "ext": ext,
            "data": b64encode(data).decode(),
            "contents": contents,
        }


async def _parts(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield part


async def _ask_what_matters(contents: list[TaskContent], task_prompt: str, driver: Driver) -> None:
    """Let the model select the parts a task needs. If it fails, the selection by rules stays."""
    asked = [content for content in contents if content["metadata"].get("isText")]
    share = _ASKED_CHARACTERS // max(1, len(asked))
    inquiry = Inquiry(
        purpose=Purpose.EXTRACT,
        role=prompt("extract"),
        prompt=task_prompt,
        material=tuple(
            Material(label=str(content["sequenceNr"]), text=cut(content["data"], share)) for content in asked
        ),
        wants_json=True,
    )
    try:
        picked = json_in((await driver.ask(inquiry)).text)
    except (Permanent, Invalid):
        return
    if not isinstance(picked, dict):
        return
    for content in asked:
        matters = picked.get(str(content["sequenceNr"]), "")
        content["dataExtracted"] = cut(
            matters if isinstance(matters, str) else str(matters), EXTRACTED_CHARACTERS
        )
        content["metadata"]["aiProcessed"] = True


def _entry(read: TakenIn, label: str, origin: Literal["user", "agent"], round: int) -> Entry:
    summaries = " ".join(item.summary for item in read.contents[:10] if item.summary)
    return Entry(
        id=read.document.id,
        label=label,
        kind=_kind(read.contents),
        origin=origin,
        round=round,
        size=read.document.size,
        summary=cut(summaries, _SUMMARY_CHARACTERS),
        tables=sum(item.content_type in TABLES and bool(item.data.strip()) for item in read.contents),
        warning=cut("; ".join(read.warnings), _WARNING_CHARACTERS),
    )


def _kind(items: Sequence[ContentItem]) -> Literal["text", "table", "picture", "other"]:
    readable = _readable(items)
    if readable:
        return "table" if all(item.content_type in TABLES for item in readable) else "text"
    return "picture" if any(item.content_type.startswith("image/") for item in items) else "other"


def _readable(items: Sequence[ContentItem]) -> list[ContentItem]:
    return [item for item in items if item.metadata.get("isText") and item.data.strip()]


def _free(name: str, taken: Iterable[str]) -> str:
    """Two files of one round may have one name; plans must tell them apart."""
    stem, ext = split_name(name)
    labels = set(taken)
    label, number = name, 2
    while label in labels:
        label = f"{stem} ({number}).{ext}" if ext else f"{stem} ({number})"
        number += 1
    return label
