"""Files, documents and the bytes they share."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from clew.domain.errors import Conflict, Corrupt, NotFound
from clew.domain.records import ContentItem, Document, File
from clew.domain.thread import Owner
from clew.stores.codec import dump, legible, load, micros, moment
from clew.stores.sql.existence import hold
from clew.stores.sql.ownership import owned
from clew.stores.sql.private import START
from clew.stores.sql.quotas import StoredBytes
from clew.stores.sql.work import Many, Row, Statement, Tables, Work, placeholders, reads, writes

FILE_COLUMNS = "id, tenant, user_id, name, mime, size, sha256, created_at"
DOCUMENT_COLUMNS = "id, thread_id, file_id, name, ext, mime, size, sha256, created_at"


class FileRows(Tables):
    """The Files port on a SQL database."""

    stored: StoredBytes | None = None
    """The quota of bytes; None where there is none."""

    @writes
    def add_part(self, sha256: str, part: int, data: bytes, *, now: datetime) -> Work[None]:
        # Adding again renews the part's age, so that garbage collection leaves an upload in progress alone.
        yield Statement(
            "INSERT INTO blobs (sha256, part, data, added_at) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (sha256, part) DO UPDATE SET added_at = excluded.added_at",
            (sha256, part, data, micros(now)),
        )

    async def require_room(self, owner: Owner, size: int) -> None:
        if self.stored is not None:
            await self.stored.require(owner.tenant, size)

    @writes
    def add_file(self, file: File) -> Work[None]:
        if (yield from self._size_of(file.sha256)) != file.size:
            raise Conflict(f"the content of file {file.id!r} is not complete")
        yield Statement(
            f"INSERT INTO files ({FILE_COLUMNS}) VALUES ({placeholders(1, 8)})",
            (
                file.id,
                file.owner.tenant,
                file.owner.user_id,
                file.name,
                file.mime,
                file.size,
                file.sha256,
                micros(file.created_at),
            ),
        )

    @reads
    def get_file(self, file_id: str, owner: Owner | None = None) -> Work[File]:
        mine, args = owned(owner, 2)
        rows = yield Statement(
            f"SELECT {FILE_COLUMNS} FROM files WHERE id = $1{mine}",
            (file_id, *args),
        )
        if not rows:
            raise NotFound(f"no file {file_id!r}")
        return _file(rows[0])

    @reads
    def find_files(
        self, owner: Owner | None = None, *, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> Work[list[File]]:
        mine, args = owned(owner, 2)
        if before is not None:
            mine += f" AND (created_at, id) < (${len(args) + 2}, ${len(args) + 3})"
            args += (micros(before[0]), before[1])
        rows = yield Statement(
            f"SELECT {FILE_COLUMNS} FROM files WHERE 1 = 1{mine} ORDER BY created_at DESC, id DESC LIMIT $1",
            (limit, *args),
        )
        return legible(rows, _file, "files")

    @writes
    def delete_file(self, file_id: str, owner: Owner | None = None) -> Work[None]:
        mine, args = owned(owner, 2)
        rows = yield Statement(
            f"DELETE FROM files WHERE id = $1{mine} RETURNING 1",
            (file_id, *args),
        )
        if not rows:
            raise NotFound(f"no file {file_id!r}")

    async def read_bytes(self, sha256: str) -> AsyncIterator[bytes]:
        part = 0
        while (data := await self._part(sha256, part)) is not None:
            yield data
            part += 1
        if part == 0:
            raise NotFound(f"no content {sha256!r}")

    @reads
    def _part(self, sha256: str, part: int) -> Work[bytes | None]:
        rows = yield Statement("SELECT data FROM blobs WHERE sha256 = $1 AND part = $2", (sha256, part))
        return bytes(rows[0][0]) if rows else None

    def _size_of(self, sha256: str) -> Work[int]:
        rows = yield Statement(
            f"SELECT substr(data, 1, {START}) AS start, length(data) FROM blobs WHERE sha256 = $1", (sha256,)
        )
        # SQLite has NULL for the beginning of nothing.
        return sum(self._db.cipher.plain_size(bytes(start or b""), int(size)) for start, size in rows)

    @writes
    def add_document(self, document: Document, contents: Sequence[ContentItem]) -> Work[None]:
        yield from hold(document.thread_id)
        yield Statement(
            f"INSERT INTO documents ({DOCUMENT_COLUMNS}) VALUES ({placeholders(1, 9)})",
            (
                document.id,
                document.thread_id,
                document.file_id,
                document.name,
                document.ext,
                document.mime,
                document.size,
                document.sha256,
                micros(document.created_at),
            ),
        )
        yield Many(
            "INSERT INTO contents"
            " (document_id, sequence_nr, thread_id, name, ext, content_type, data, metadata, summary)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            [
                (
                    document.id,
                    item.sequence_nr,
                    document.thread_id,
                    item.name,
                    item.ext,
                    item.content_type,
                    item.data,
                    dump(item.metadata),
                    item.summary,
                )
                for item in contents
            ],
        )

    @reads
    def get_document(self, thread_id: str, document_id: str) -> Work[Document]:
        rows = yield Statement(
            f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE id = $1 AND thread_id = $2",
            (document_id, thread_id),
        )
        if not rows:
            raise NotFound(f"no document {document_id!r} in thread {thread_id!r}")
        return _document(rows[0])

    @reads
    def find_documents(self, thread_id: str) -> Work[list[Document]]:
        rows = yield Statement(
            f"SELECT {DOCUMENT_COLUMNS} FROM documents WHERE thread_id = $1 ORDER BY created_at, id",
            (thread_id,),
        )
        return [_document(row) for row in rows]

    @reads
    def contents(self, thread_id: str, document_id: str) -> Work[list[ContentItem]]:
        rows = yield Statement(
            "SELECT sequence_nr, name, ext, content_type, data, metadata, summary FROM contents"
            " WHERE document_id = $1 AND thread_id = $2 ORDER BY sequence_nr",
            (document_id, thread_id),
        )
        return [
            ContentItem(
                sequence_nr=row[0],
                name=row[1],
                ext=row[2],
                content_type=row[3],
                data=row[4],
                metadata=load(row[5]),
                summary=row[6],
            )
            for row in rows
        ]

    @writes
    def collect(self, *, older_than: datetime, limit: int = 100) -> Work[int]:
        rows = yield Statement(
            "DELETE FROM blobs WHERE sha256 IN (SELECT sha256 FROM blobs AS b"
            " WHERE NOT EXISTS (SELECT 1 FROM files WHERE files.sha256 = b.sha256)"
            " AND NOT EXISTS (SELECT 1 FROM documents WHERE documents.sha256 = b.sha256)"
            " GROUP BY sha256 HAVING max(added_at) < $1 LIMIT $2) RETURNING sha256",
            (micros(older_than), limit),
        )
        return len({row[0] for row in rows})


def _file(row: Row) -> File:
    return File(
        id=row[0],
        owner=Owner(tenant=row[1], user_id=row[2]),
        name=row[3],
        mime=row[4],
        size=row[5],
        sha256=row[6],
        created_at=moment(row[7]),
    )


def _document(row: Row) -> Document:
    try:
        created_at = moment(row[8])
    except (TypeError, OverflowError) as exc:
        raise Corrupt(f"document {row[0]!r} of thread {row[1]!r} cannot be read back") from exc
    if not all(isinstance(text, str) for text in (*row[:6], row[7])):
        raise Corrupt(f"document {row[0]!r} of thread {row[1]!r} cannot be read back")
    return Document(
        id=row[0],
        thread_id=row[1],
        file_id=row[2],
        name=row[3],
        ext=row[4],
        mime=row[5],
        size=row[6],
        sha256=row[7],
        created_at=created_at,
    )
