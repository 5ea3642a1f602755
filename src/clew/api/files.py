"""/api/files: uploads. A file name is never used as a path; a file is never served under the type it claims."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Self
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import StreamingResponse

from clew.api.access import needs
from clew.api.credentials import Principal
from clew.api.errors import TooLarge
from clew.api.guard import Caller
from clew.api.multipart import ALLOWANCE_SECONDS, PIECE_SECONDS, FileForm
from clew.api.numbers import Numbering
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import HealthOut, WireModel
from clew.api.threads import read_cursor, write_cursor
from clew.documents.uploads import Uploads
from clew.domain.documents import UNKNOWN
from clew.domain.errors import Invalid, NotFound, StorageFull
from clew.domain.records import File
from clew.ports.files import Files

FIELD = "file"

_FORM: Mapping[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "properties": {FIELD: {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}
_BYTES: Mapping[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes as they were uploaded.",
        "content": {UNKNOWN: {"schema": {"type": "string", "format": "binary"}}},
    }
}

FileId = Annotated[str, Path(max_length=256, description="The file's `id`, or its `fileId`.")]


class FileOut(WireModel):
    id: str
    file_id: int
    """The number of the file; taken wherever its id is."""
    name: str
    mime_type: str
    """The type detected from its first bytes and its name; the file is not served under it."""
    size: int
    sha256: str
    created_at: datetime

    @classmethod
    def of(cls, file: File, numbers: Mapping[str, int]) -> Self:
        return cls(
            id=file.id,
            file_id=numbers[file.id],
            name=file.name,
            mime_type=file.mime,
            size=file.size,
            sha256=file.sha256,
            created_at=file.created_at,
        )


class FilesOut(WireModel):
    files: list[FileOut]
    next: str | None
    """The cursor of the next page, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRoutes:
    files: Files
    uploads: Uploads
    numbering: Numbering
    piece_seconds: float = PIECE_SECONDS
    allowance_seconds: float = ALLOWANCE_SECONDS

    def router(self) -> APIRouter:
        router = Router(prefix="/api/files", tags=["files"])
        router.post(
            "",
            dependencies=[needs("write", body="stream")],
            openapi_extra=dict(_FORM),
            responses=errors(Invalid, TooLarge, StorageFull),
        )(self.upload_file)
        router.get("", dependencies=[needs("read")], responses=errors(Invalid))(self.list_files)
        router.get("/{file_id}", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.get_file
        )
        router.get(
            "/{file_id}/content",
            dependencies=[needs("read")],
            response_class=StreamingResponse,
            responses={**_BYTES, **errors(Invalid, NotFound)},
        )(self.download_file)
        router.delete("/{file_id}", dependencies=[needs("write")], responses=errors(Invalid, NotFound))(
            self.delete_file
        )
        return router

    async def upload_file(self, caller: Caller, request: Request) -> FileOut:
        """Store a file, sent as the form field `file`. Its bytes are kept unchanged."""
        form = FileForm(
            request,
            field=FIELD,
            max_bytes=self.uploads.max_bytes,
            piece_seconds=self.piece_seconds,
            allowance_seconds=self.allowance_seconds,
        )
        return await self._shown(await self.uploads.add(await form.name(), form.data(), owner=caller.itself))

    async def list_files(
        self,
        caller: Caller,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Query(max_length=1024)] = None,
    ) -> FilesOut:
        """The caller's files, newest first."""
        before = None if cursor is None else read_cursor(cursor)
        # One more than asked for says whether there is a next page.
        found = await self.files.find_files(caller.itself, before=before, limit=limit + 1)
        page = found[:limit]
        numbers = await self.numbering.files(caller.tenant, [file.id for file in page])
        return FilesOut(
            files=[FileOut.of(file, numbers) for file in page],
            next=write_cursor(page[-1]) if len(found) > limit else None,
        )

    async def get_file(self, caller: Caller, file_id: FileId) -> FileOut:
        """What is known about a file. Another owner's is not found."""
        return await self._shown(await self._find(caller, file_id))

    async def download_file(self, caller: Caller, file_id: FileId) -> StreamingResponse:
        """The bytes of a file, sent as an attachment."""
        file = await self._find(caller, file_id)
        return StreamingResponse(
            self.files.read_bytes(file.sha256),
            media_type=UNKNOWN,
            headers=download_headers(file.name, file.size),
        )

    async def delete_file(self, caller: Caller, file_id: FileId) -> HealthOut:
        """Delete a file. Documents made of it keep its bytes."""
        await self.files.delete_file(await self.numbering.file_id(caller.tenant, file_id), caller.itself)
        return HealthOut(status="deleted")

    async def _find(self, caller: Principal, file_id: str) -> File:
        return await self.files.get_file(await self.numbering.file_id(caller.tenant, file_id), caller.itself)

    async def _shown(self, file: File) -> FileOut:
        return FileOut.of(file, await self.numbering.files(file.owner.tenant, [file.id]))


def files_router(
    files: Files,
    uploads: Uploads,
    *,
    numbering: Numbering,
    piece_seconds: float = PIECE_SECONDS,
    allowance_seconds: float = ALLOWANCE_SECONDS,
) -> APIRouter:
    return FilesRoutes(
        files=files,
        uploads=uploads,
        numbering=numbering,
        piece_seconds=piece_seconds,
        allowance_seconds=allowance_seconds,
    ).router()


def download_headers(name: str, size: int) -> dict[str, str]:
    """Headers that make a browser save the bytes, and neither show nor run them."""
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "_" for letter in name)
    plain = plain.replace("\\", "_").replace('"', "_").replace("%", "_")
    return {
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Length": str(size),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }
