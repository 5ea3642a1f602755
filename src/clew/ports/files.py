"""Files: uploads, documents, and the extractor that reads them."""

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Sequence,
)
from datetime import datetime
from typing import Protocol

from clew.domain.documents import Extraction
from clew.domain.records import (
    ContentItem,
    Document,
    File,
)
from clew.domain.thread import Owner


class Files(Protocol):
    """Uploads and documents. Bytes are kept once per content, in parts, and are deleted when no file refers to them."""

    async def require_room(self, owner: Owner, size: int) -> None:
        """Raises QuotaExceeded if the owner's tenant may not store so many bytes more."""
        ...

    async def add_part(self, sha256: str, part: int, data: bytes, *, now: datetime) -> None:
        """Keep one part of a content; the same part twice changes nothing."""
        ...

    async def add_file(self, file: File) -> None:
        """Make the upload visible. Raises Conflict if parts of its content are missing."""
        ...

    async def get_file(self, file_id: str, owner: Owner | None = None) -> File:
        """Raises NotFound."""
        ...

    async def find_files(
        self, owner: Owner | None = None, *, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> Sequence[File]:
        """Uploads, newest first; `before` is the creation time and id of the last one already seen."""
        ...

    async def delete_file(self, file_id: str, owner: Owner | None = None) -> None:
        """Raises NotFound. Documents made of it keep its bytes."""
        ...

    def read_bytes(self, sha256: str) -> AsyncIterator[bytes]:
        """The parts of a content in order. Raises NotFound before the first one."""
        ...

    async def add_document(self, document: Document, contents: Sequence[ContentItem]) -> None:
        """Raises NotFound if the thread was deleted."""
        ...

    async def get_document(self, thread_id: str, document_id: str) -> Document:
        """Raises NotFound."""
        ...

    async def find_documents(self, thread_id: str) -> Sequence[Document]: ...

    async def contents(self, thread_id: str, document_id: str) -> Sequence[ContentItem]: ...

    async def collect(self, *, older_than: datetime, limit: int = 100) -> int:
        """Remove contents that no file and no document refers to; returns how many."""
        ...


class Extractor(Protocol):
    """Reads the contents of an untrusted file."""

    async def extract(
        self,
        name: str,
        parts: AsyncIterable[bytes],
        *,
        tenant: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> Extraction:
        """What the file of this tenant holds; tenants take turns. `progress` is called now and then with how much of it is done, and of how much.

        A file that is damaged, malicious or too large gives what could be read of it, and warnings for a person.
        Raises Transient or Permanent only for what is not the file's fault.
        """
        ...
