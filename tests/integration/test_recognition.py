"""Text recognition: pictures and scanned pages are read where there is no text, by a program with limits."""

import os
import stat
import sys
from base64 import b64encode
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clew.config import load_settings
from clew.documents.recognition import RecognizingExtractor
from clew.domain.documents import Extraction
from clew.domain.errors import ConfigError
from clew.domain.records import ContentItem
from tests.app import open_house
from tests.processes import ROOT

pytestmark = pytest.mark.anyio


@dataclass
class Read:
    """An extractor that found this."""

    contents: list[ContentItem]
    warnings: list[str] = field(default_factory=list)

    async def extract(
        self,
        name: str,
        parts: AsyncIterable[bytes],
        *,
        tenant: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> Extraction:
        return Extraction(contents=self.contents, warnings=self.warnings)


def item(name: str, data: str, *, text: bool, **metadata: Any) -> ContentItem:
    return ContentItem(
        sequence_nr=0,
        name=name,
        ext="txt" if text else "png",
        content_type="text/plain" if text else "image/png",
        data=data if text else b64encode(f"PNG...TEXT{data}".encode()).decode(),
        metadata={"isText": text, **metadata},
        summary="",
    )


def program(folder: Path) -> str:
    """An executable, as Tesseract is one."""
    path = folder / "tesseract"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests" / "fake_tesseract.py"} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def recognized(folder: Path, *items: ContentItem, warnings: Any = ()) -> Extraction:
    numbered = [
        ContentItem(**{name: getattr(one, name) for name in one.__slots__} | {"sequence_nr": number})
        for number, one in enumerate(items, 1)
    ]
    extractor = RecognizingExtractor.around(
        Read(numbered, [*warnings]),
        program=program(folder),
        languages="eng+deu",
        environment={"PATH": os.environ["PATH"], "A_KEY": "secret"},  # noqa: TID251 - a child's
    )

    async def nothing() -> Any:
        yield b""

    return await extractor.extract("scan.pdf", nothing())


def shown(found: Extraction) -> list[tuple[int, str, str]]:
    return [
        (one.sequence_nr, one.name, one.data if one.metadata["isText"] else "(picture)")
        for one in found.contents
    ]


async def test_a_scanned_page_gets_its_text_in_its_place(tmp_path: Path) -> None:
    found = await recognized(
        tmp_path,
        item("page_1", "Written", text=True, page=1),
        item("page_1_image_1", "a logo", text=False),
        item("page_2", "", text=True, page=2),
        item("page_2_image_1", "Invoice 17", text=False),
    )
    assert shown(found) == [
        (1, "page_1", "Written"),
        (2, "page_1_image_1", "(picture)"),
        (3, "page_2", "Invoice 17 (eng+deu)"),
        (4, "page_2_image_1", "(picture)"),
    ]
    assert [one.metadata.get("ocr") for one in found.contents] == [None, None, True, None]
    assert found.contents[2].metadata["page"] == 2


async def test_a_picture_gets_a_text_beside_it(tmp_path: Path) -> None:
    found = await recognized(tmp_path, item("sign", "No entry", text=False))
    assert shown(found) == [(1, "sign", "(picture)"), (2, "sign_text", "No entry (eng+deu)")]


async def test_what_cannot_be_read_stays_as_it_was_with_its_warning(tmp_path: Path) -> None:
    warning = "there is no text on its pages; they may be scanned"
    page = (item("page_1", "", text=True, page=1), item("page_1_image_1", "BROKEN", text=False))
    found = await recognized(tmp_path, *page, warnings=[warning])
    assert shown(found) == [(1, "page_1", ""), (2, "page_1_image_1", "(picture)")]
    assert found.warnings == [warning]
    page = (item("page_1", "", text=True, page=1), item("page_1_image_1", "fine", text=False))
    assert (await recognized(tmp_path, *page, warnings=[warning])).warnings == []


async def test_a_server_does_not_start_without_the_program_it_was_told_to_use(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "CLEW_DOCUMENTS_OCR_LANGUAGES": "eng"}
    with pytest.raises(ConfigError, match="tesseract is not there"):
        async with open_house("memory", tmp_path, **environ):
            pass


def test_languages_are_words_with_a_plus_between(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="like eng"):
        load_settings({"CLEW_DOCUMENTS_OCR_LANGUAGES": "--help"}, cwd=tmp_path)
