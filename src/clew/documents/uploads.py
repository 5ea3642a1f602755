"""Uploads: a stream of bytes becomes a file, kept under its sha256 in parts of one size."""

import asyncio
import errno
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from clew.domain.documents import clean_name, media_type
from clew.domain.errors import Invalid, StorageFull
from clew.domain.records import File
from clew.domain.thread import Owner
from clew.ports.clock import Clock
from clew.ports.files import Files

# The same content must be split into the same parts for every uploader: parts are stored once.
PART_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    files: Files
    clock: Clock
    new_id: Callable[[], str]
    max_bytes: int
    # Where a file is buffered until its sha256 is known; the system's temporary folder unless set.
    folder: Path | None = None

    async def add(self, name: str, data: AsyncIterable[bytes], *, owner: Owner) -> File:
        """Durable on return. Raises Invalid if it is too large, QuotaExceeded, StorageFull; and whatever `data` raises.

        A file is visible only once it is complete; the parts of an aborted upload are collected later.
        """
        digest = sha256()
        size = 0
        head = b""
        with SpooledTemporaryFile(
            max_size=PART_BYTES, dir=None if self.folder is None else str(self.folder)
        ) as spool:
            async for part in _in_parts(data):
                size += len(part)
                if size > self.max_bytes:
                    raise Invalid(f"a file may have at most {self.max_bytes} bytes", field="file")
                head = head or part
                await asyncio.to_thread(_keep, part, spool, digest.update)
            file = File(
                id=f"file_{self.new_id()}",
                owner=owner,
                name=clean_name(name),
                mime=media_type(clean_name(name), head),
                size=size,
                sha256=digest.hexdigest(),
                created_at=self.clock(),
            )
            await self.files.require_room(owner, size)
            spool.seek(0)
            await self._store(file.sha256, spool)
        await self.files.add_file(file)
        return file

    async def _store(self, digest: str, spool: IO[bytes]) -> None:
        for number in count():
            part = await asyncio.to_thread(spool.read, PART_BYTES)
            if not part and number:
                return
            # An empty file has one empty part: it must be found too.
            await self.files.add_part(digest, number, part, now=self.clock())


async def whole(data: bytes) -> AsyncIterator[bytes]:
    """Bytes that are here already, as a stream."""
    yield data


async def _in_parts(data: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """In pieces large enough for a call to another thread, of PART_BYTES at most."""
    waiting = bytearray()
    async for piece in data:
        waiting += piece
        while len(waiting) >= PART_BYTES:
            yield bytes(waiting[:PART_BYTES])
            del waiting[:PART_BYTES]
    if waiting:
        yield bytes(waiting)


def _keep(part: bytes, spool: IO[bytes], count_in: Callable[[bytes], None]) -> None:
    count_in(part)
    try:
        spool.write(part)
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull from exc
        raise
