"""Messages with their whole documents, written as a stream: memory use does not grow with their size."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel
from pydantic_core import to_json

from clew.api.numbers import Numbering
from clew.api.workflow_schemas import DocumentOut, MessageOut, documents_of
from clew.documents.documents import TaskContent, contents_for
from clew.domain import views
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import Document
from clew.domain.thread import Thread
from clew.ports.files import Files

INCLUDED = ("data", "contents")
Include = Annotated[
    str | None,
    Query(
        max_length=64,
        description="What to show of the documents beside their names: `data`, `contents`, or `data,contents`.",
    ),
]


def read_include(text: str | None) -> frozenset[str]:
    """Raises Invalid for what cannot be included."""
    found = frozenset(word.strip() for word in text.split(",")) if text is not None else frozenset()
    if unknown := sorted(found - set(INCLUDED)):
        raise Invalid(f"no {unknown[0]!r} to include; there are {', '.join(INCLUDED)}", field="include")
    return found


async def whole_messages(
    thread: Thread,
    messages: Sequence[views.MessageView],
    files: Files,
    numbering: Numbering,
    include: Collection[str],
) -> AsyncIterator[bytes]:
    """A JSON list of messages."""
    documents = await files.find_documents(thread.id)
    numbers = await numbering.files_of(thread.owner, documents)
    yield b"["
    for number, message in enumerate(messages):
        head = object_without(MessageOut.of(thread, message, (), {}), "documents")
        yield (b"," if number else b"") + head + b',"documents":['
        for position, document in enumerate(documents_of(message, documents)):
            yield b"," if position else b""
            async for piece in _whole(thread, document, numbers, files, include):
                yield piece
        yield b"]}"
    yield b"]"


def object_without(model: BaseModel, *fields: str) -> bytes:
    """The JSON of a model without these fields and without its end, so that more can be written behind it."""
    shown: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude=set(fields))
    return to_json(shown)[:-1]


async def document_pieces(
    document: DocumentOut, parts: AsyncIterator[bytes] | None, contents: Sequence[TaskContent] | None
) -> AsyncIterator[bytes]:
    """A WholeDocumentOut, without what is not given."""
    head = to_json(document, by_alias=True)[:-1]
    if parts is not None:
        head += b',"data":"'
        left = b""
        async for part in parts:
            data = left + part
            # Three bytes are four letters; what is left over waits for the next part.
            end = len(data) - len(data) % 3
            yield head + b64encode(data[:end])
            head, left = b"", data[end:]
        head += b64encode(left) + b'"'
    if contents is not None:
        head += b',"contents":['
        for number, content in enumerate(contents):
            yield head + (b"," if number else b"") + to_json(content)
            head = b""
        head += b"]"
    yield head + b"}"


async def _whole(
    thread: Thread, document: Document, numbers: Mapping[str, int], files: Files, include: Collection[str]
) -> AsyncIterator[bytes]:
    contents = None
    if "contents" in include:
        items = await files.contents(thread.id, document.id)
        contents = await asyncio.to_thread(contents_for, items, None)
    shown = DocumentOut.of(document, numbers)
    parts = await _begun(files.read_bytes(document.sha256)) if "data" in include else None
    async for piece in document_pieces(shown, parts, contents):
        yield piece


async def _begun(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes] | None:
    """The parts, once it is certain that they exist; a document without them is shown without `data`."""
    try:
        first = await anext(parts)
    except (NotFound, StopAsyncIteration):
        return None

    async def all_of_them() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return all_of_them()
