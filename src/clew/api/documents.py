"""/api/workflows/{id}/documents: what a workflow was given and what it made, to be listed and saved."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import StreamingResponse

from clew.api.access import needs
from clew.api.files import download_headers
from clew.api.guard import Caller
from clew.api.looks import Looks
from clew.api.openapi import errors
from clew.api.schemas import Wire
from clew.api.workflow_schemas import DocumentOut, WorkflowId
from clew.domain.documents import UNKNOWN
from clew.domain.errors import Invalid, NotFound
from clew.domain.records import Document
from clew.ports import Files

DocumentId = Annotated[str, Path(max_length=256)]

_BYTES: Mapping[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes of the document.",
        "content": {UNKNOWN: {"schema": {"type": "string", "format": "binary"}}},
    }
}


class DocumentsOut(Wire):
    documents: list[DocumentOut]


def documents_router(files: Files, *, looks: Looks) -> APIRouter:
    router = APIRouter(prefix="/api/workflows/{workflow_id}/documents", tags=["documents"])

    @router.get("", responses=errors(Invalid, NotFound))
    @needs("read")
    async def list_documents(caller: Caller, workflow_id: WorkflowId) -> DocumentsOut:
        """The documents of a workflow, in the order they came."""
        thread = await looks.at(workflow_id, caller.owner)
        found = await files.find_documents(thread.id)
        return DocumentsOut(documents=[DocumentOut.of(document) for document in found])

    @router.get(
        "/{document_id}",
        response_class=StreamingResponse,
        responses={**_BYTES, **errors(Invalid, NotFound)},
    )
    @needs("read")
    async def download_document(
        caller: Caller, workflow_id: WorkflowId, document_id: DocumentId
    ) -> StreamingResponse:
        """The bytes of a document, to be saved and not to be shown."""
        thread = await looks.at(workflow_id, caller.owner)
        document = await files.get_document(thread.id, document_id)
        return StreamingResponse(
            files.read_bytes(document.sha256),
            media_type=UNKNOWN,
            headers=download_headers(full_name(document), document.size),
        )

    return router


def full_name(document: Document) -> str:
    return f"{document.name}.{document.ext}" if document.ext else document.name
