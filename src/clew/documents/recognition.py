"""Text recognition: an extractor that reads pictures and scanned pages with Tesseract, after another has read the file.

Tesseract runs as a program with limits of its own, once a picture. The texts are marked with `ocr` in their metadata.
"""

import sys
from base64 import b64decode
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clew.documents.documents import OCR
from clew.documents.gist import gist
from clew.domain.documents import Extraction, clean_text
from clew.domain.records import ContentItem
from clew.ports.files import Extractor
from clew.processes import limited
from clew.processes.run import NotStarted, TimedOut, TooMuch, run
from clew.processes.tenant_slots import TenantSlots

PROGRAM = "tesseract"
MOST_PICTURES = 50
_SECONDS = 60.0
_CPU_SECONDS = 60
_MEMORY_BYTES = 2 * 2**30
_MOST = 4 * 2**20
_WORKERS = 2


@dataclass(frozen=True, slots=True)
class RecognizingExtractor:
    """The Extractor port. Only pictures are read that stand where there is no text."""

    inner: Extractor
    program: str
    languages: str
    environment: Mapping[str, str]
    slots: TenantSlots

    @classmethod
    def around(
        cls, inner: Extractor, *, program: str, languages: str, environment: Mapping[str, str]
    ) -> "RecognizingExtractor":
        names = ("PATH", "LANG", "LC_ALL", "TESSDATA_PREFIX")
        known = {name: environment[name] for name in names if name in environment}
        # One thread a picture: several are read at once.
        return cls(inner, program, languages, known | {"OMP_THREAD_LIMIT": "1"}, TenantSlots(_WORKERS))

    async def extract(
        self,
        name: str,
        parts: AsyncIterable[bytes],
        *,
        tenant: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> Extraction:
        found = await self.inner.extract(name, parts, tenant=tenant, progress=progress)
        pictures = without_text(found.contents)
        if not pictures:
            return found
        texts: dict[int, str] = {}
        for number, item in enumerate(pictures[:MOST_PICTURES], 1):
            async with self.slots.taken(tenant):
                texts[item.sequence_nr] = await self._text(b64decode(item.data))
            if progress is not None:
                progress(number, len(pictures))
        warnings = [one for one in found.warnings if "may be scanned" not in one or not any(texts.values())]
        if len(pictures) > MOST_PICTURES:
            warnings.append(f"the text of {MOST_PICTURES} of {len(pictures)} pictures was recognized")
        return Extraction(contents=_with_texts(found.contents, texts), warnings=warnings)

    async def _text(self, picture: bytes) -> str:
        """The text of a picture; empty if it has none, or cannot be read within the limits."""
        limits = (sys.executable, "-I", str(Path(limited.__file__)), str(_CPU_SECONDS), str(_MEMORY_BYTES))
        try:
            ended = await run(
                [*limits, self.program, "stdin", "stdout", "-l", self.languages],
                folder=Path("/"),
                environment=self.environment,
                seconds=_SECONDS,
                most=_MOST,
                given=picture,
            )
        except (NotStarted, TimedOut, TooMuch):
            return ""
        return clean_text(ended.out.decode(errors="replace")).strip() if ended.code == 0 else ""


def without_text(items: Sequence[ContentItem]) -> list[ContentItem]:
    """The pictures of a file that has no text where they stand: on their page, or anywhere if it has no pages."""
    written = {_page(item) for item in items if item.metadata.get("isText") and item.data.strip()}
    pictures = [item for item in items if item.content_type.startswith("image/")]
    return [item for item in pictures if (_page(item) not in written if _page(item) else not written)]


def _with_texts(items: Sequence[ContentItem], texts: Mapping[int, str]) -> list[ContentItem]:
    """Each text in the place of its page's, which is empty; else after its picture."""
    pages: dict[int, list[str]] = {}
    for item in items:
        if (page := _page(item)) and texts.get(item.sequence_nr):
            pages.setdefault(page, []).append(texts[item.sequence_nr])
    made: list[ContentItem] = []
    for item in items:
        page = _page(item)
        if item.metadata.get("isText") and page in pages:
            made.append(_told(item, "\n\n".join(pages.pop(page))))
            continue
        made.append(item)
        if not page and texts.get(item.sequence_nr):
            text = replace(item, ext="txt", content_type="text/plain", name=f"{item.name}_text", metadata={})
            made.append(_told(text, texts[item.sequence_nr]))
    return [replace(item, sequence_nr=number) for number, item in enumerate(made, 1)]


def _told(item: ContentItem, text: str) -> ContentItem:
    kind = {"isText": True, "base64Encoded": False, "aiProcessed": False, OCR: True}
    return replace(item, data=text, metadata={**item.metadata, **kind}, summary=gist(text))


def _page(item: ContentItem) -> int | None:
    """Of a text by its metadata; of a picture by its name, `page_3_image_1`."""
    if isinstance(page := item.metadata.get("page"), int):
        return page
    kind, _, rest = item.name.partition("_")
    number = rest.partition("_")[0]
    return int(number) if kind == "page" and number.isdigit() else None
