"""/api/workflows/{id}/documents: list, read and download the documents a workflow was given or made."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import StreamingResponse

from clew.api.access import needs
from clew.api.files import download_headers
from clew.api.guard import Caller
from clew.api.numbers import Numbering
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.api.thread_access import ThreadAccess
from clew.api.whole_messages import document_pieces
from clew.api.workflow_schemas import DocumentOut, WholeDocumentOut, WorkflowId
from clew.documents.documents import contents_for, extracts
from clew.domain.documents import UNKNOWN
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import Document
from clew.domain.redaction import shown_documents
from clew.domain.thread import Thread
from clew.ports.files import Files

DocumentId = Annotated[str, Path(max_length=256)]

_BYTES: Mapping[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes of the document.",
        "content": {UNKNOWN: {"schema": {"type": "string", "format": "binary"}}},
    }
}


class DocumentsOut(WireModel):
    documents: list[DocumentOut]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsRoutes:
    files: Files
    access: ThreadAccess
    numbering: Numbering

    def router(self) -> APIRouter:
        router = Router(prefix="/api/workflows/{workflow_id}/documents", tags=["documents"])
        router.get("", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(self.list_documents)
        router.get(
            "/{document_id}",
            dependencies=[needs("read")],
            response_class=StreamingResponse,
            responses={**_BYTES, **errors(Invalid, NotFound)},
        )(self.download_document)
        router.get(
            "/{document_id}/contents",
            dependencies=[needs("read")],
            response_class=StreamingResponse,
            response_model=WholeDocumentOut,
            responses=errors(Invalid, NotFound),
        )(self.read_document)
        return router

    async def list_documents(self, caller: Caller, workflow_id: WorkflowId) -> DocumentsOut:
        """The documents of a workflow, in the order they were added."""
        thread = await self.access.at(workflow_id, caller.owner)
        found = shown_documents(thread, await self.files.find_documents(thread.id))
        numbers = await self.numbering.files_of(thread.owner, found)
        return DocumentsOut(documents=[DocumentOut.of(document, numbers) for document in found])

    async def download_document(
        self, caller: Caller, workflow_id: WorkflowId, document_id: DocumentId
    ) -> StreamingResponse:
        """The bytes of a document, sent as an attachment."""
        thread = await self.access.at(workflow_id, caller.owner)
        document = await self._shown(thread, document_id)
        return StreamingResponse(
            self.files.read_bytes(document.sha256),
            media_type=UNKNOWN,
            headers=download_headers(full_name(document), document.size),
        )

    async def read_document(
        self,
        caller: Caller,
        workflow_id: WorkflowId,
        document_id: DocumentId,
        prompt: Annotated[
            str | None,
            Query(max_length=2000, description="What it is read for: adds `dataExtracted` to every text."),
        ] = None,
    ) -> StreamingResponse:
        """All there is of a document: the file itself, and what was found in it."""
        thread = await self.access.at(workflow_id, caller.owner)
        document = await self._shown(thread, document_id)
        items = await self.files.contents(thread.id, document.id)
        extracted = None if prompt is None else await asyncio.to_thread(extracts, items, prompt)
        contents = contents_for(items, extracted)
        numbers = await self.numbering.files_of(thread.owner, [document])
        shown_as = DocumentOut.of(document, numbers)
        pieces = document_pieces(shown_as, self.files.read_bytes(document.sha256), contents)
        # With the first piece it is certain that the bytes are there; after it, it is too late for a 404.
        first = await anext(pieces)
        return StreamingResponse(_after(first, pieces), media_type="application/json")

    async def _shown(self, thread: Thread, document_id: str) -> Document:
        if document_id in thread.redacted:
            raise NotFound(f"no document {document_id!r} in thread {thread.id!r}")
        return await self.files.get_document(thread.id, document_id)


def documents_router(files: Files, *, access: ThreadAccess, numbering: Numbering) -> APIRouter:
    return DocumentsRoutes(files=files, access=access, numbering=numbering).router()


async def _after(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def full_name(document: Document) -> str:
    return f"{document.name}.{document.ext}" if document.ext else document.name
