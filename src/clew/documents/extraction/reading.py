"""Reading of one file: its items so far, and the budget that is left."""

import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from clew.documents.gist import gist
from clew.domain.documents import clean_path, clean_text, split_name
from clew.domain.records import ContentItem
from clew.domain.thread import Json

MAX_DEPTH = 3  # a zip in a zip in a mail
MAX_ENTRIES = 10_000
MAX_ITEMS = 10_000
MAX_PIXELS = 64_000_000
MAX_RATIO = 100
# An archive that unpacks to less than this is no bomb, whatever its ratio.
HARMLESS_BYTES = 10 * 2**20

_MAX_WARNINGS = 50
_PROGRESS_SECONDS = 0.2


class Unreadable(Exception):
    """A file, or a part of an archive, cannot be read; the words are for a person."""


class Enough(Exception):
    """A limit of the whole reading is reached. What was read so far stays."""


class Sink(Protocol):
    """Receives items and warnings as they are read."""

    def item(self, item: ContentItem) -> None: ...

    def warning(self, text: str) -> None: ...

    def progress(self, done: int, total: int) -> None: ...


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, or a part of an archive or a mail."""

    name: str
    data: bytes

    @property
    def extension(self) -> str:
        return split_name(self.name)[1]


@dataclass(slots=True)
class ReadBudget:
    """The budget left for one upload, with everything that is packed in it."""

    output_bytes: int
    unpacked_bytes: int
    cpu_seconds: float = float("inf")
    items: int = 0
    entries: int = MAX_ENTRIES
    warnings: int = _MAX_WARNINGS
    reported_at: float = field(default=float("-inf"))

    @classmethod
    def of(cls, data: bytes, *, output_bytes: int, cpu_seconds: float = float("inf")) -> "ReadBudget":
        return cls(
            output_bytes=output_bytes,
            unpacked_bytes=max(HARMLESS_BYTES, MAX_RATIO * len(data)),
            cpu_seconds=cpu_seconds,
        )


class Reading:
    """What a reader gets beside the bytes: it takes items and counts their cost.

    `read` reads what is inside: an attachment, a part of an archive.
    """

    def __init__(
        self,
        read: Callable[[SourceFile, "Reading"], None],
        sink: Sink,
        budget: ReadBudget,
        *,
        path: str,
        depth: int = 0,
    ) -> None:
        self._read = read
        self._sink = sink
        self._budget = budget
        self._path = path
        self.depth = depth

    def text(
        self,
        text: str,
        *,
        part: str = "",
        ext: str = "txt",
        media: str = "text/plain",
        summary: str | None = None,
        **metadata: Json,
    ) -> None:
        """A piece of text. One that is too long for what is left is cut, and says so."""
        text = clean_text(text)
        room = self._budget.output_bytes
        if len(text) * 4 > room and len(data := text.encode()) > room:
            text = data[: max(0, room)].decode(errors="ignore")
            metadata["truncated"] = True
        if summary is None:
            summary = gist(text) or "(no text)"
        self._add(part, ext, media, text, summary, metadata, is_text=True)
        if "truncated" in metadata:
            raise Enough(f"the text was cut after {len(text):,} characters: there is more than may be kept")

    def binary(
        self, data: bytes, *, part: str = "", ext: str, media: str, summary: str, **metadata: Json
    ) -> None:
        """Something that is not text. It is kept whole or not at all."""
        if (len(data) + 2) // 3 * 4 > self._budget.output_bytes:
            self.warn(f"{self._name(part)} was left out: it is larger than may be kept")
            return
        self._add(part, ext, media, b64encode(data).decode("ascii"), summary, metadata, is_text=False)

    def warn(self, text: str) -> None:
        """A warning to the user. Inside an archive it names the part."""
        self._budget.warnings -= 1
        if self._budget.warnings >= 0:
            self._sink.warning(clean_text(f"{self._path}: {text}" if self.depth else text))

    def progress(self, done: int, total: int) -> None:
        """Report progress. Raises Enough when the time is used up."""
        self._check_time()
        now = time.monotonic()
        if now - self._budget.reported_at >= _PROGRESS_SECONDS and not self.depth:
            self._budget.reported_at = now
            self._sink.progress(done, total)

    def time_left(self) -> float:
        """Seconds of computing, until the whole reading is stopped."""
        return self._budget.cpu_seconds - time.process_time()

    def inside(self, name: str, data: bytes) -> None:
        """Read what was packed into this."""
        self.spend(entries=1, unpacked=len(data))
        path = clean_path(f"{self._stem}/{name}" if self.depth else name)
        inner = Reading(self._read, self._sink, self._budget, path=path, depth=self.depth + 1)
        self._read(SourceFile(name, data), inner)

    def spend(self, *, entries: int = 0, unpacked: int = 0) -> None:
        """Count what was unpacked, over all archives inside each other. Raises Enough."""
        self._check_time()
        self._budget.entries -= entries
        self._budget.unpacked_bytes -= unpacked
        if self._budget.entries < 0:
            raise Enough(f"reading stopped: more than {MAX_ENTRIES:,} files are packed into it")
        if self._budget.unpacked_bytes < 0:
            raise Enough(f"reading stopped: it unpacks to more than {MAX_RATIO} times its size")

    def _add(
        self, part: str, ext: str, media: str, data: str, summary: str, metadata: Json, *, is_text: bool
    ) -> None:
        self._check_time()
        if self._budget.items >= MAX_ITEMS:
            raise Enough(f"reading stopped after {MAX_ITEMS:,} items")
        self._budget.items += 1
        self._budget.output_bytes -= len(data) if data.isascii() else len(data.encode())
        kind = {"isText": is_text, "base64Encoded": not is_text, "aiProcessed": False}
        self._sink.item(
            ContentItem(
                sequence_nr=self._budget.items,
                name=clean_path(self._name(part)),
                ext=ext,
                content_type=media,
                data=data,
                metadata=kind | metadata,
                summary=clean_text(summary),
            )
        )

    @property
    def _stem(self) -> str:
        return split_name(self._path)[0]

    def _name(self, part: str) -> str:
        if not part or not self.depth:
            return part or self._stem
        return f"{self._stem}/{part}"

    def _check_time(self) -> None:
        if time.process_time() > self._budget.cpu_seconds:
            raise Enough(f"reading stopped after {self._budget.items:,} items: it takes too long")
