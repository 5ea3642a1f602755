"""Documents: a file as one thread uses it, with its contents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from clew.documents.passages import relevant, relevant_rows
from clew.domain.documents import split_name
from clew.domain.errors import NotFound
from clew.domain.records import ContentItem, Document, File
from clew.domain.thread import Json
from clew.ports.clock import Clock
from clew.ports.files import Extractor, Files
from clew.ports.numbers import Numbers

TABLES = frozenset({"text/csv", "text/tab-separated-values"})
# In the metadata of a text that was recognized in a picture.
OCR = "ocr"
# What a task gets of an item beside the item itself.
EXTRACTED_CHARACTERS = 4_000


class TaskContent(TypedDict):
    sequenceNr: int
    name: str
    ext: str
    contentType: str
    data: str
    dataExtracted: NotRequired[str]
    metadata: dict[str, Json]
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """A document and its contents; `warnings` say to a person what of the file could not be read."""

    document: Document
    contents: Sequence[ContentItem]
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    files: Files
    extractor: Extractor
    clock: Clock
    numbers: Numbers

    async def take_in(
        self,
        document_id: str,
        thread_id: str,
        file: File,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> TakenIn:
        """Read the file into a document of the thread. One that is there already under this id is not read again.

        A file that cannot be read becomes a document all the same, without contents and with a warning.
        Raises NotFound if the thread or the bytes are gone, Transient or Permanent if no file can be read now.
        """
        try:
            known = await self.files.get_document(thread_id, document_id)
        except NotFound:
            pass
        else:
            return TakenIn(document=known, contents=await self.files.contents(thread_id, document_id))
        found = await self.extractor.extract(
            file.name,
            self.files.read_bytes(file.sha256),
            tenant=file.owner.tenant,
            progress=progress,
        )
        name, ext = split_name(file.name)
        document = Document(
            id=document_id,
            thread_id=thread_id,
            file_id=file.id,
            name=name,
            ext=ext,
            mime=file.mime,
            size=file.size,
            sha256=file.sha256,
            created_at=self.clock(),
        )
        await self.files.add_document(document, found.contents)
        return TakenIn(document=document, contents=found.contents, warnings=found.warnings)


def texts_in(items: Sequence[ContentItem]) -> list[tuple[str, bool]]:
    """The items a task may need a part of, each with whether it is a table."""
    return [(item.data, item.content_type in TABLES) for item in items if item.metadata.get("isText")]


def extracts(items: Sequence[ContentItem], task_prompt: str) -> list[str]:
    """The parts of `texts_in` that a task needs; slow on long texts."""
    return [
        (relevant_rows if is_table else relevant)(text, task_prompt, limit=EXTRACTED_CHARACTERS)
        for text, is_table in texts_in(items)
    ]


def contents_for(items: Sequence[ContentItem], extracted: Sequence[str] | None = None) -> list[TaskContent]:
    """The items in the words of the contract; for a task with what of each text it needs."""
    contents: list[TaskContent] = []
    parts = iter(extracted or ())
    for item in items:
        content: TaskContent = {
            "sequenceNr": item.sequence_nr,
            "name": item.name,
            "ext": item.ext,
            "contentType": item.content_type,
            "data": item.data,
            "metadata": dict(item.metadata),
            "summary": item.summary,
        }
        if extracted is not None and item.metadata.get("isText"):
            content["dataExtracted"] = next(parts)
        contents.append(content)
    return contents
